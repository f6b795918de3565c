//! cgroup v2: `memory.high`, `memory.reclaim`, `cgroup.freeze`, `cgroup.kill`.

use super::members::{children, create, vanished};
use super::{Backend, SHRINK_STEP, shares};
use crate::PAGE;
use crate::control::{Feedback, Picture};
use crate::error::{Error, Result};
use crate::system::place::{self, Limits};
use crate::system::stat::{self, Growth};
use crate::system::{processes, read, read_number, write};
use std::fs::File;
use std::path::{Path, PathBuf};

/// A contributed group in the unified hierarchy.
#[derive(Debug)]
pub struct V2 {
    base: PathBuf,
    group: PathBuf,
    /// Nothing limits the base: read anew with each picture.
    whole_machine: bool,
    limit: Option<u64>,
    /// How often was evicted.
    turn: u32,
    opaque_refaults: Growth,
    own_refaults: Growth,
    stall: Growth,
    _held: File,
}

impl V2 {
    /// Creates the contributed group below `base`, which has the memory controller enabled for its
    /// children.
    pub fn create(base: &Path, group: PathBuf) -> Result<Self> {
        let whole_machine = limits(base)?.is_none();
        let held = create(&group)?;
        Ok(Self {
            base: base.to_owned(),
            group,
            whole_machine,
            limit: None,
            turn: 0,
            opaque_refaults: Growth::default(),
            own_refaults: Growth::default(),
            stall: Growth::default(),
            _held: held,
        })
    }

    fn own(&self, file: &str) -> PathBuf {
        self.group.join(file)
    }

    /// Groups beside the contributed one.
    fn siblings(&self) -> Vec<PathBuf> {
        children(&self.base, &self.group)
    }
}

impl Backend for V2 {
    fn name(&self) -> &'static str {
        "cgroup v2"
    }

    fn group(&self) -> &Path {
        &self.group
    }

    fn picture(&mut self) -> Result<Picture> {
        let contributed = read_number(self.own("memory.current")).map_err(vanished(&self.group))?;
        let limits = limits(&self.base)?;
        self.whole_machine = limits.is_none();
        let own = read(self.own("memory.stat")).map_err(vanished(&self.group))?;
        place::picture(&self.base, limits, contributed, &own, "")
    }

    fn feedback(&mut self) -> Result<Feedback> {
        let own_stat = read(self.own("memory.stat")).map_err(vanished(&self.group))?;
        // Summed over the opaque groups: see the v1 back end for why.
        let (mut refaults, mut stalls) = (Vec::new(), Vec::new());
        for group in self.siblings() {
            stalls.extend(stat::stall_us(&group.join("memory.pressure")).map(|stall| (group.clone(), stall)));
            // One that has just been removed misses nothing any more.
            let Ok(text) = read(group.join("memory.stat")) else { continue };
            refaults.push((group, stat::refaults(&text, "")));
        }
        Ok(Feedback {
            opaque_refaults: self.opaque_refaults.since(refaults),
            opaque_stall_us: self.stall.since(stalls),
            contributed_refaults: self.own_refaults.since([(self.group.clone(), stat::refaults(&own_stat, ""))]),
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
        let usage = read_number(self.own("memory.current")).map_err(vanished(&self.group))?;
        // Lowering it makes the kernel reclaim, before it answers, all that is above. It is not raised for what is over it.
        let over = usage.saturating_sub(SHRINK_STEP).min(self.limit.unwrap_or(u64::MAX));
        let step = wanted.max(over);
        if self.limit != Some(step) {
            let text = step.to_string();
            write(self.own("memory.high"), &text).map_err(vanished(&self.group)).map_err(|error| match error {
                Error::Io { source, .. } => Error::LimitRefused { group: self.group.clone(), limit: text, source },
                other => other,
            })?;
            self.limit = Some(step);
        } else if usage > step {
            // memory.high slows whoever allocates; frozen or idle processes must be shrunk by us.
            reclaim(&self.group, (usage - step).min(SHRINK_STEP))?;
        }
        Ok(step / PAGE)
    }

    fn evict(&mut self, pages: u64) -> Result<u64> {
        let used = |group: &Path| read_number(group.join("memory.current"));
        let sized = |group: PathBuf| {
            let used = used(&group).unwrap_or(0);
            (group, used)
        };
        let holders = self.siblings().into_iter().map(sized).collect();
        self.turn = self.turn.wrapping_add(1);
        let evicted = shares::evict(holders, pages.saturating_mul(PAGE), self.turn, |group, share| {
            let before = used(group).unwrap_or(0);
            reclaim(group, share)?;
            Ok(before.saturating_sub(used(group).unwrap_or(before)))
        })?;
        Ok(evicted / PAGE)
    }

    fn freeze(&mut self) -> Result<Vec<i32>> {
        write(self.own("cgroup.freeze"), "1").map_err(vanished(&self.group)).map(|()| Vec::new())
    }

    fn thaw(&mut self) -> Result<()> {
        write(self.own("cgroup.freeze"), "0").map_err(vanished(&self.group))
    }

    fn kill(&mut self) -> Result<()> {
        let file = self.own("cgroup.kill");
        if file.exists() {
            write(file, "1").map_err(vanished(&self.group))
        } else {
            super::signal_all(&self.group, libc::SIGKILL).map(drop)
        }
    }
}

/// Evicts about so many bytes from a group. EAGAIN says that less could be evicted: no error. Nor is
/// a group that is not ours or has no memory controller: the kernel then chooses by itself.
fn reclaim(group: &Path, bytes: u64) -> Result<()> {
    match write(group.join("memory.reclaim"), &bytes.to_string()) {
        Err(error)
            if matches!(
                error.errno(),
                Some(libc::EAGAIN | libc::EACCES | libc::EPERM | libc::ENOENT | libc::ENODEV)
            ) =>
        {
            Ok(())
        }
        other => other,
    }
}

fn limits(base: &Path) -> Result<Option<Limits>> {
    place::limits(base, &["memory.max", "memory.high"], "memory.current")
}
