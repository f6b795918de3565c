//! Files that somebody still writes to after they were given back, or that a plain tree still needs to know as ours. They wait in a
//! directory of their own, are tried again, less and less often, and are kept when nothing helps: the next start tries again.

use super::core::Core;
use super::retire::{Holders, holders};
use super::{leaf, stats::count};
use rustix::fs::AtFlags;
use rustix::io::Errno;
use std::sync::atomic::Ordering;
use std::time::Instant;

pub const DIRECTORY: &str = "quarantine";
/// After this many tries, a week with the usual pauses, a file is left alone until the next start.
const MOST_TRIES: u32 = 600;

/// Where a file of this name waits.
pub fn path(name: &str) -> String {
    format!("{DIRECTORY}/{name}")
}

struct Held {
    name: String,
    tries: u32,
    due: Instant,
}

/// What waits; of the worker alone.
#[derive(Default)]
pub struct Quarantine(Vec<Held>);

impl Quarantine {
    /// Makes the directory, and finds what an earlier use left in it.
    pub fn load(core: &Core) -> rustix::io::Result<Self> {
        let mut quarantine = Self::default();
        for entry in rustix::fs::Dir::new(leaf::own_directory(core.root(), DIRECTORY)?)? {
            let entry = entry?;
            if let Some(name) = entry.file_name().to_str().ok().filter(|name| super::name::parse(name).is_some()) {
                quarantine.0.push(Held { name: name.to_owned(), tries: 0, due: Instant::now() });
            }
        }
        core.counters.in_quarantine.store(quarantine.0.len() as u64, Ordering::Relaxed);
        Ok(quarantine)
    }

    /// A file was moved here.
    pub fn add(&mut self, name: &str, core: &Core) {
        self.0.push(Held { name: name.to_owned(), tries: 0, due: Instant::now() + core.config.quarantine_retry });
        count(&core.counters.in_quarantine);
    }

    /// When to try again.
    pub fn due(&self) -> Option<Instant> {
        self.0.iter().map(|held| held.due).min()
    }

    /// Tries all of them, for the last time.
    pub fn retry_all(&mut self, core: &Core) {
        if let Some(last) = self.0.iter().map(|held| held.due).max() {
            self.retry(core, last);
        }
    }

    /// Tries those that are due by then, and removes those that nobody needs any more.
    pub fn retry(&mut self, core: &Core, now: Instant) {
        if self.due().is_none_or(|due| due > now) {
            return;
        }
        let Ok(dir) = leaf::open_directory(core.root(), DIRECTORY) else { return };
        self.0.retain_mut(|held| {
            if held.due > now {
                return true;
            }
            // Where there are no leases nobody is asked anywhere.
            let is_held = || -> rustix::io::Result<bool> {
                Ok(core.abilities.leases && holders(&dir, &held.name)?.0 == Holders::Writers)
            };
            let needed = match core.vouches(&dir, &held.name) {
                Ok(false) => is_held(),
                other => other,
            };
            let free = match needed {
                Ok(false) => rustix::fs::unlinkat(&dir, &*held.name, AtFlags::empty()).is_ok(),
                // Without the file there is nothing to do.
                Err(Errno::NOENT) => true,
                Ok(true) | Err(_) => false,
            };
            if free {
                core.counters.in_quarantine.fetch_sub(1, Ordering::Relaxed);
                count(&core.counters.removed);
                return false;
            }
            held.tries += 1;
            held.due = now + core.config.quarantine_retry * 2u32.pow(held.tries.min(10));
            if held.tries > MOST_TRIES {
                tracing::warn!(
                    name = held.name,
                    "a file in quarantine is still being written to, or linked to; it is kept until the next start"
                );
            }
            held.tries <= MOST_TRIES
        });
    }
}
