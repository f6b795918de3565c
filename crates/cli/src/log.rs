//! Where the log goes. Users decide how often some lines are due, as whoever opens a file that cannot be read does, and a daemon's log
//! lies on the disk of its catalog: so of each kind there are no more than so many in a time.

use crate::output::shown;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{Stderr, Write, stderr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tracing::callsite::Identifier;
use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::writer::OptionalWriter;

/// Lines of one kind.
const LINES: u64 = 200;
/// In this time.
const PERIOD: Duration = Duration::from_secs(3600);

/// What is told where nobody says.
const USUAL: &str = "info,fjall=off,lsm_tree=off,sfa=off,fuser=error";

/// What is told, as the environment says. Where that cannot be read, what is usual is, and standard error says so.
pub fn filter(asked: Option<&OsStr>) -> EnvFilter {
    let Some(asked) = asked.filter(|asked| !asked.is_empty()) else { return EnvFilter::new(USUAL) };
    let parsed = asked.to_str().ok_or("it is no text".to_owned());
    parsed.and_then(|text| EnvFilter::try_new(text).map_err(|error| error.to_string())).unwrap_or_else(|error| {
        whisper!(
            "ullage: ULLAGE_LOG is '{}', and passed over ({error}): write error, warn, info, debug or trace",
            shown(asked)
        );
        EnvFilter::new(USUAL)
    })
}

static IS_BOUNDED: AtomicBool = AtomicBool::new(false);

/// Bounds the log from now on.
pub fn bound() {
    IS_BOUNDED.store(true, Relaxed);
}

/// Standard error, line by line.
#[derive(Default)]
pub struct Log(Mutex<HashMap<Identifier, Told>>);

/// What was told of one kind.
struct Told {
    since: Instant,
    lines: u64,
}

/// What becomes of a line.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Told,
    Last,
    LeftOut,
    /// It is told, and so many before it were not.
    After(u64),
}

impl Told {
    fn one_more(&mut self, now: Instant) -> Fate {
        let left_out = self.lines.saturating_sub(LINES);
        if now.duration_since(self.since) >= PERIOD {
            *self = Self { since: now, lines: 1 };
            return if left_out > 0 { Fate::After(left_out) } else { Fate::Told };
        }
        self.lines += 1;
        match self.lines {
            LINES => Fate::Last,
            lines if lines > LINES => Fate::LeftOut,
            _ => Fate::Told,
        }
    }
}

impl MakeWriter<'_> for Log {
    type Writer = OptionalWriter<Stderr>;

    fn make_writer(&self) -> Self::Writer {
        OptionalWriter::some(stderr())
    }

    fn make_writer_for(&self, of: &Metadata<'_>) -> Self::Writer {
        // Who asks for more than is usual is to get it.
        if !IS_BOUNDED.load(Relaxed) || *of.level() > Level::INFO {
            return self.make_writer();
        }
        let now = Instant::now();
        let fate = self.0.lock().map_or(Fate::Told, |mut all| {
            all.entry(of.callsite()).or_insert(Told { since: now, lines: 0 }).one_more(now)
        });
        let _ = match fate {
            Fate::LeftOut => return OptionalWriter::none(),
            Fate::Told => Ok(()),
            Fate::Last => writeln!(stderr(), "more lines like the next one are left out, for an hour at most"),
            Fate::After(lines) => writeln!(stderr(), "{lines} lines like the next one were left out"),
        };
        self.make_writer()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_what_there_is_not_gets_what_is_usual() {
        let told = |asked: &str| filter(Some(asked.as_ref())).to_string();
        assert_eq!(told("debug"), "debug");
        for wrong in ["", "[[", "ullage=loud"] {
            assert!(told(wrong).contains("info") && told(wrong).contains("fjall=off"), "{wrong}: {}", told(wrong));
        }
    }

    #[test]
    fn of_each_kind_so_many_lines_are_told_in_an_hour_and_how_many_were_not() {
        let begun = Instant::now();
        let mut told = Told { since: begun, lines: 0 };
        let fates: Vec<Fate> = (0..LINES + 5).map(|_| told.one_more(begun)).collect();
        assert!(fates[..LINES as usize - 1].iter().all(|fate| *fate == Fate::Told));
        assert_eq!(fates[LINES as usize - 1], Fate::Last);
        assert!(fates[LINES as usize..].iter().all(|fate| *fate == Fate::LeftOut));
        assert_eq!(told.one_more(begun + PERIOD), Fate::After(5));
        assert_eq!(told.one_more(begun + PERIOD), Fate::Told);
        assert_eq!(told.one_more(begun + 2 * PERIOD), Fate::Told);
    }
}
