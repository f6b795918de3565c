//! From "pages referenced so far since the bits were cleared" to LRU positions.
//!
//! The kernel tells, cheaply and without a change to it, how many *distinct* pages a process has
//! referenced since its reference bits were cleared, but not which. That is enough. A page that is
//! seen referenced for the first time when `r` others already were has been away at least since the
//! clearing, so its LRU position is at least `r`; and by working-set theory (Denning and Schwartz;
//! the footprint theory of Xiang and others) the rate at which that count grows when it stands
//! at `r` *is* the rate of accesses to positions `r` and beyond, exactly so for loops and for random
//! access. Windows start anew every ageing period, and samples are dense early and sparse late, so
//! one clearing and some thirty cheap readings give the whole curve, accurate at the tail.

use crate::histogram::Histogram;

/// One reading: when, how many distinct pages, how many of those newly seen are accesses.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    /// Seconds since the bits were cleared.
    at: f64,
    /// Distinct pages referenced since then and still there.
    referenced: u64,
    /// Of the pages newly seen since the previous reading, those that existed before: allocating a
    /// page is no access to an old position.
    hits: u64,
}

/// The growth of the set of referenced pages over one window.
#[derive(Clone, Debug, Default)]
pub struct Footprint {
    points: Vec<Point>,
}

impl Footprint {
    /// Adds a reading, `at` seconds after the clearing; readings come in order of time. `referenced`
    /// leaves out pages allocated since the clearing: what is started and fills its memory in a window
    /// does not push what was there before down the queue for good. The next window counts them.
    pub fn push(&mut self, at: f64, referenced: u64, hits: u64) {
        self.points.push(Point { at, referenced, hits });
    }

    /// Seconds from the clearing to the last reading.
    pub fn span(&self) -> f64 {
        self.points.last().map_or(0.0, |point| point.at)
    }

    /// Accesses seen so far at positions of at least `pages`.
    pub fn hits_beyond(&self, pages: u64) -> u64 {
        let mut before = 0;
        let mut hits = 0;
        for point in &self.points {
            let grown = point.referenced.saturating_sub(before);
            if before >= pages {
                hits += point.hits;
            } else if point.referenced > pages && grown > 0 {
                let beyond = point.referenced - pages;
                hits += (point.hits as f64 * beyond as f64 / grown as f64) as u64;
            }
            before = point.referenced;
        }
        hits
    }

    /// Writes the accesses per second by LRU position into an empty histogram's shape.
    #[must_use]
    pub fn histogram(&self, shape: &Histogram) -> Histogram {
        let mut histogram = shape.empty_like();
        // Accesses per second to position x and beyond never grow with x; where phases make the
        // measured rate do so, the later and larger one stands (more is kept for opaque pages).
        let mut tail_rate = 0.0;
        for (high, rate) in self.segments().into_iter().rev() {
            if rate > tail_rate {
                histogram.add(high.saturating_sub(1), rate - tail_rate);
                tail_rate = rate;
            }
        }
        histogram
    }

    /// `(up to how many pages, accesses/s beyond)`, in order, ending with the extrapolation. The
    /// upper end of each step is taken: half a step too much is kept rather than half too little.
    fn segments(&self) -> Vec<(u64, f64)> {
        let mut segments = Vec::with_capacity(self.points.len() + 1);
        let mut before = 0.0;
        for point in &self.points {
            segments.push((point.referenced, point.hits as f64 / (point.at - before).max(1e-6)));
            before = point.at;
        }
        segments.extend(self.extrapolated());
        segments
    }

    /// Pages with a period longer than the window: what was still growing in the last quarter is
    /// taken to go on for another window at that rate, but no faster than in the reading before: what
    /// came all at once (a program starts, and touches what others map too) does not go on. Where
    /// readings came late the quarter begins at the reading before it: fewer readings extrapolate more,
    /// never less.
    fn extrapolated(&self) -> Option<(u64, f64)> {
        let last = self.points.last()?;
        let quarter = self.points.iter().position(|point| point.at >= last.at * 0.75)?;
        let from = if quarter + 1 < self.points.len() { Some(quarter) } else { quarter.checked_sub(1) };
        let cut = from.and_then(|index| self.points.get(index));
        let began = cut.map_or(0.0, |point| point.at);
        let hits: u64 = self.points.iter().filter(|point| point.at > began).map(|point| point.hits).sum();
        let mut rate = hits as f64 / (last.at - began).max(1e-6);
        if let (Some(index), Some(cut)) = (from, cut) {
            let before = index.checked_sub(1).and_then(|index| self.points.get(index)).map_or(0.0, |point| point.at);
            rate = rate.min(cut.hits as f64 / (cut.at - before).max(1e-6));
        }
        (rate > 0.0).then_some((last.referenced + (rate * last.at) as u64, rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the curve at the sampler's spacing.
    fn window(seconds: f64, curve: impl Fn(f64) -> u64) -> Footprint {
        let mut footprint = Footprint::default();
        let (mut at, mut before) = (0.1, 0);
        while before == 0 || at < seconds * 1.25 {
            let now = curve(at.min(seconds));
            footprint.push(at.min(seconds), now, now - before);
            before = now;
            at *= 1.25;
        }
        footprint
    }

    #[test]
    fn a_loop_misses_in_any_memory_smaller_than_itself() {
        let shape = Histogram::for_memory(20_000);
        let histogram = window(60.0, |at| ((at * 1000.0) as u64).min(8000)).histogram(&shape);
        assert!(histogram.misses_in(6_900) > 0.95 * histogram.total());
        assert_eq!(histogram.memory_for_misses(0.0), 8_000);
    }

    #[test]
    fn random_access_misses_in_proportion_to_what_is_missing() {
        let (pages, rate) = (10_000.0, 2_000.0);
        let shape = Histogram::for_memory(20_000);
        let curve = |at: f64| (pages * (1.0 - (-rate * at / pages).exp())) as u64;
        let histogram = window(60.0, curve).histogram(&shape);
        for memory in [2_000, 5_000, 8_000] {
            let expected = 1.0 - memory as f64 / pages;
            let estimated = histogram.misses_in(memory) / histogram.total();
            assert!((estimated - expected).abs() < 0.13, "{memory}: {estimated} instead of {expected}");
        }
    }

    #[test]
    fn allocating_is_no_access_to_an_old_page() {
        let mut footprint = Footprint::default();
        footprint.push(1.0, 5_000, 0);
        footprint.push(2.0, 10_000, 0);
        assert!(footprint.histogram(&Histogram::for_memory(20_000)).total() < 1e-9);
        assert_eq!(footprint.hits_beyond(0), 0);
    }

    #[test]
    fn hits_are_split_at_the_noise_position() {
        let mut footprint = Footprint::default();
        footprint.push(1.0, 1_000, 1_000);
        footprint.push(2.0, 1_500, 500);
        assert_eq!(
            (footprint.hits_beyond(0), footprint.hits_beyond(900), footprint.hits_beyond(1_200)),
            (1_500, 600, 300)
        );
    }

    /// Regression: with no reading between two late ones nothing was extrapolated, as if nothing grew.
    #[test]
    fn late_readings_do_not_look_like_idleness() {
        let mut footprint = Footprint::default();
        footprint.push(10.0, 10_000, 10_000);
        footprint.push(60.0, 60_000, 50_000);
        let histogram = footprint.histogram(&Histogram::for_memory(200_000));
        assert!(histogram.memory_for_misses(0.0) >= 119_000, "{}", histogram.memory_for_misses(0.0));
    }

    /// Regression: a loop that ended within the window was extrapolated as if it went on.
    #[test]
    fn what_stopped_growing_is_not_extrapolated_and_what_goes_on_is() {
        let shape = Histogram::for_memory(100_000);
        let ended = window(10.0, |at| ((at * 5000.0) as u64).min(37_500)).histogram(&shape);
        assert!(ended.memory_for_misses(0.0) <= 37_600, "{}", ended.memory_for_misses(0.0));
        let going_on = window(10.0, |at| (at * 5000.0) as u64).histogram(&shape);
        assert!(going_on.memory_for_misses(0.0) > 80_000);
    }

    /// Regression: when a break began, 1,300 pages of a shared binary were touched by the hog that started; taken to go
    /// on, they kept all that was never used again from being evicted for the whole break.
    #[test]
    fn what_comes_all_at_once_is_not_extrapolated() {
        let burst = window(60.0, |at| ((at * 5000.0) as u64).min(26_800) + if at > 50.0 { 1_300 } else { 0 });
        let need = burst.histogram(&Histogram::for_memory(131_072)).memory_for_misses(0.0);
        assert!((28_100..28_300).contains(&need), "{need}");
    }
}
