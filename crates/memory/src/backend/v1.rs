//! cgroup v1: `memory.limit_in_bytes` and the freezer hierarchy.

use super::dip::{dip, dippable};
use super::members::{bring_memory, children, create, vanished};
use super::{Backend, SHRINK_STEP, shares, signal_all, signals};
use crate::PAGE;
use crate::control::{Feedback, Picture};
use crate::error::{Error, Result};
use crate::system::place::{self, Limits};
use crate::system::stat::{self, Growth};
use crate::system::{processes, read, read_number, write};
use std::fs::File;
use std::path::{Path, PathBuf};

/// A contributed group in v1 hierarchies.
#[derive(Debug)]
pub struct V1 {
    base: PathBuf,
    group: PathBuf,
    freezer: Option<PathBuf>,
    /// The base is the top of the hierarchy, as far as it can be seen from here.
    at_top: bool,
    /// Nothing limits the base: read anew with each picture.
    whole_machine: bool,
    limit: Option<u64>,
    /// How often was evicted.
    turn: u32,
    opaque_refaults: Growth,
    own_refaults: Growth,
    journal: Option<PathBuf>,
    /// Who was stopped by others when all were.
    stopped_before: signals::Known,
    _held: Vec<File>,
}

impl V1 {
    /// Creates the contributed group below `base` of the memory hierarchy, and `freezer`.
    pub fn create(base: &Path, at_top: bool, group: PathBuf, freezer: Option<PathBuf>) -> Result<Self> {
        let mut held = Vec::new();
        let made = Self::make(base, &group, freezer.as_deref(), &mut held);
        let whole_machine = made.inspect_err(|_| {
            for (directory, _) in &held {
                // One that somebody is in, left by a controller that was killed, stays.
                let _stays = std::fs::remove_dir(directory);
            }
        })?;
        Ok(Self {
            base: base.to_owned(),
            group,
            freezer,
            at_top,
            whole_machine,
            limit: None,
            turn: 0,
            opaque_refaults: Growth::default(),
            own_refaults: Growth::default(),
            journal: None,
            stopped_before: signals::Known::new(),
            _held: held.into_iter().map(|(_, file)| file).collect(),
        })
    }

    /// Makes the groups, noted in `held` one by one. Gives whether nothing limits the base.
    fn make(base: &Path, group: &Path, freezer: Option<&Path>, held: &mut Vec<(PathBuf, File)>) -> Result<bool> {
        for directory in std::iter::once(group).chain(freezer) {
            held.push((directory.to_owned(), create(directory)?));
        }
        // Without this the kernel kills when nothing can be evicted; with it the group waits.
        write(group.join("memory.oom_control"), "1")?;
        bring_memory(group);
        Ok(limits(base)?.is_none())
    }

    fn write_limit(&self, bytes: u64) -> Result<()> {
        let text = bytes.to_string();
        write(self.group.join("memory.limit_in_bytes"), &text).map_err(vanished(&self.group)).map_err(|error| {
            match error {
                Error::Io { source, .. } => Error::LimitRefused { group: self.group.clone(), limit: text, source },
                other => other,
            }
        })
    }
}

impl Backend for V1 {
    fn name(&self) -> &'static str {
        "cgroup v1"
    }

    fn group(&self) -> &Path {
        &self.group
    }

    fn picture(&mut self) -> Result<Picture> {
        let contributed = read_number(self.group.join("memory.usage_in_bytes")).map_err(vanished(&self.group))?;
        let limits = limits(&self.base)?;
        self.whole_machine = limits.is_none();
        let own = read(self.group.join("memory.stat")).map_err(vanished(&self.group))?;
        place::picture(&self.base, limits, contributed, &own, "total_")
    }

    /// Opaque refaults are summed over the opaque groups. Not "all less contributed": the kernel brings
    /// each group's counters up to date at different times, and the difference would jump by thousands.
    fn feedback(&mut self) -> Result<Feedback> {
        let own = read(self.group.join("memory.stat")).map_err(vanished(&self.group))?;
        let base = read(self.base.join("memory.stat")).map_err(vanished(&self.base))?;
        let mut opaque = vec![(self.base.clone(), stat::refaults(&base, ""))];
        for group in children(&self.base, &self.group) {
            // One that has just been removed misses nothing any more.
            let Ok(text) = read(group.join("memory.stat")) else { continue };
            opaque.push((group, stat::refaults(&text, "total_")));
        }
        Ok(Feedback {
            opaque_refaults: self.opaque_refaults.since(opaque),
            opaque_stall_us: 0,
            contributed_refaults: self.own_refaults.since([(self.group.clone(), stat::refaults(&own, "total_"))]),
        })
    }

    fn contributed(&self) -> Result<Vec<i32>> {
        processes::below(&self.group, None)
    }

    fn opaque(&self) -> Result<Vec<i32>> {
        if !self.whole_machine {
            return processes::below(&self.base, Some(&self.group));
        }
        let contributed = self.contributed()?;
        Ok(processes::all()?.into_iter().filter(|pid| !contributed.contains(pid)).collect())
    }

    fn limit(&mut self, pages: u64) -> Result<u64> {
        let wanted = pages.saturating_mul(PAGE);
        if self.limit == Some(wanted) {
            return Ok(pages);
        }
        let usage = read_number(self.group.join("memory.usage_in_bytes")).map_err(vanished(&self.group))?;
        let step = wanted.max(usage.saturating_sub(SHRINK_STEP));
        match self.write_limit(step) {
            Ok(()) => self.limit = Some(step),
            // Nothing more can be evicted at the moment; the old limit stands.
            Err(error) if error.errno() == Some(libc::EBUSY) => {}
            Err(error) => return Err(error),
        }
        Ok(self.limit.map_or(u64::MAX, |bytes| bytes / PAGE))
    }

    fn evict(&mut self, pages: u64) -> Result<u64> {
        if self.at_top && self.whole_machine {
            return Ok(0);
        }
        let groups = children(&self.base, &self.group).into_iter();
        let holders = groups.filter_map(|group| dippable(&group).ok().map(|used| (group, used)));
        self.turn = self.turn.wrapping_add(1);
        let journal = self.journal.as_deref();
        let take = |group: &Path, share| dip(group, share, journal);
        Ok(shares::evict(holders.collect(), pages.saturating_mul(PAGE), self.turn, take)? / PAGE)
    }

    fn freeze(&mut self) -> Result<Vec<i32>> {
        match &self.freezer {
            Some(freezer) => {
                write(freezer.join("freezer.state"), "FROZEN").map_err(vanished(freezer)).map(|()| Vec::new())
            }
            None => {
                self.stopped_before = signals::stopped(&self.group)?;
                signal_all(&self.group, libc::SIGSTOP)
            }
        }
    }

    fn thaw(&mut self) -> Result<()> {
        match &self.freezer {
            Some(freezer) => write(freezer.join("freezer.state"), "THAWED").map_err(vanished(freezer)),
            None => signals::resume(&self.group, &self.stopped_before),
        }
    }

    fn stops_by_signals(&self) -> bool {
        self.freezer.is_none()
    }

    fn kill(&mut self) -> Result<()> {
        signal_all(&self.group, libc::SIGKILL).map(drop)
    }

    fn journal(&mut self, file: PathBuf) {
        self.journal = Some(file);
    }
}

fn limits(base: &Path) -> Result<Option<Limits>> {
    place::limits(base, &["memory.limit_in_bytes"], "memory.usage_in_bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: what a process had when it was marked stayed charged to opaque work, and was bounded by nothing.
    #[test]
    fn memory_is_to_come_with_who_is_marked() {
        let dir = tempfile::tempdir().unwrap();
        let group = dir.path().join("group");
        std::fs::create_dir(&group).unwrap();
        let (control, charge) = (group.join("memory.oom_control"), group.join("memory.move_charge_at_immigrate"));
        std::fs::write(control, "").unwrap();
        let create = || V1::create(dir.path(), true, group.clone(), None).map(drop);
        create().unwrap();
        std::fs::write(&charge, "").unwrap();
        create().unwrap();
        assert_eq!(std::fs::read(&charge).unwrap(), b"3");
        std::fs::remove_file(&charge).unwrap();
        std::os::unix::fs::symlink("/dev/full", &charge).unwrap();
        create().unwrap();
    }

    /// Regression: the first of its groups stayed, and with it the box, which nobody could remove.
    #[test]
    fn who_cannot_make_all_groups_leaves_none() {
        let dir = tempfile::tempdir().unwrap();
        let [group, freezer] = ["group", "freezer"].map(|name| dir.path().join(name));
        let create = || V1::create(dir.path(), true, group.clone(), Some(freezer.clone())).unwrap_err();
        // No control groups, which would have what they are told by.
        assert!(matches!(create(), Error::Io { .. }));
        assert!(!group.exists() && !freezer.exists());
        std::fs::create_dir(&freezer).unwrap();
        let _anothers = super::super::hold(&freezer).unwrap().unwrap();
        assert!(matches!(create(), Error::BoxTaken(path) if path == freezer));
        assert!(!group.exists() && freezer.exists());
    }
}
