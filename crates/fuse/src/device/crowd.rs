//! Whether one reader keeps up with what comes.

use std::time::{Duration, Instant};

/// Requests that are looked at together.
const WINDOW: u32 = 64;
/// A request that was there so soon after the one before had been waiting. That of whoever was just answered had not: he was quick, while what
/// nobody waits for was worked off.
const AT_ONCE: Duration = Duration::from_micros(2);
/// Of a window so many, in hundredths, had been waiting where one reader does not keep up.
const MANY: u32 = 25;
/// How long all readers stay, doubled each time that one is not enough again soon after.
const STAY_LEAST: Duration = Duration::from_millis(50);
const STAY_MOST: Duration = Duration::from_secs(10);

/// What a reader sees of the queue.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    requests: u32,
    waiting: u32,
    /// Who was answered last.
    last: u32,
    /// Until when all readers stay, and for how long that was.
    until: Option<Instant>,
    stay: Duration,
    /// When they left last.
    left: Option<Instant>,
}

impl Crowd {
    /// A request of this caller came, and was waited for so long. At the end of each window: whether more than one reader is needed.
    pub fn saw(&mut self, caller: u32, waited: Duration, now: impl FnOnce() -> Instant) -> Option<bool> {
        let another = std::mem::replace(&mut self.last, caller) != caller;
        self.requests += 1;
        self.waiting += u32::from(another && waited < AT_ONCE);
        if self.requests < WINDOW {
            return None;
        }
        let many = self.waiting * 100 >= MANY * self.requests;
        (self.requests, self.waiting) = (0, 0);
        Some(self.decide(many, now()))
    }

    fn decide(&mut self, many: bool, now: Instant) -> bool {
        if let Some(until) = self.until {
            // With all of them there nothing piles up: one is tried now and then.
            if now >= until {
                (self.until, self.left) = (None, Some(now));
            }
        } else if many {
            let soon = self.left.is_some_and(|left| now - left < self.stay);
            self.stay = if soon { self.stay * 2 } else { STAY_LEAST }.min(STAY_MOST);
            self.until = Some(now + self.stay);
        }
        self.until.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(crowd: &mut Crowd, waiting: u32, now: Instant) -> bool {
        let waited = |request| if request < waiting { Duration::ZERO } else { AT_ONCE * 3 };
        let seen: Vec<_> = (0..WINDOW).map(|request| crowd.saw(request, waited(request), || now)).collect();
        assert!(seen.iter().rev().skip(1).all(Option::is_none));
        seen.last().copied().flatten().unwrap()
    }

    #[test]
    fn one_reader_is_enough_for_whoever_asks_one_thing_after_another() {
        let (mut crowd, now) = (Crowd::default(), Instant::now());
        assert!(!window(&mut crowd, 0, now));
        assert!(!window(&mut crowd, WINDOW / 8, now));
        let same: Vec<_> = (0..WINDOW).filter_map(|_| crowd.saw(7, Duration::ZERO, || now)).collect();
        assert_eq!(same, [false]);
    }

    #[test]
    fn all_stay_for_longer_and_longer_where_one_is_not_enough_again_and_again() {
        let (mut crowd, start) = (Crowd::default(), Instant::now());
        let ms = |ms| start + Duration::from_millis(ms);
        assert!(window(&mut crowd, WINDOW / 2, ms(0)));
        assert!(window(&mut crowd, 0, ms(49)), "nothing piles up, since all are there");
        assert!(!window(&mut crowd, 0, ms(50)), "tried");
        assert!(window(&mut crowd, WINDOW / 2, ms(51)));
        assert!(window(&mut crowd, 0, ms(150)));
        assert!(!window(&mut crowd, 0, ms(151)), "twice as long");
        assert!(!window(&mut crowd, 0, ms(1000)));
        assert!(window(&mut crowd, WINDOW, ms(2000)));
        assert!(!window(&mut crowd, 0, ms(2050)), "that was another crowd");
    }
}
