//! How much memory there is, and how much of it is free: of the machine, or of a box in it.

use super::{keyed, read, read_number};
use crate::PAGE;
use crate::control::Picture;
use crate::error::{Error, Result};
use std::path::Path;

/// What v1 shows where nothing is set is a little below 2^63; v2 says "max".
pub const NO_LIMIT: u64 = 1 << 62;

/// What the limits on a group leave it, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The smallest of its limit and those of the groups above it.
    pub smallest: u64,
    /// What may still be used before one of them is reached.
    pub left: u64,
}

/// The limits on a group: its own and those of all groups above it that can be seen from here, given the
/// names of the files; `None` where nothing is limited. Of several limits of one group the smallest counts: beyond `memory.high`
/// the kernel slows whoever asks for more until there is less, so that is the memory there is.
pub fn limits(group: &Path, limits: &[&str], usage: &str) -> Result<Option<Limits>> {
    let mut found: Option<Limits> = None;
    for level in group.ancestors().take_while(|level| level.join("cgroup.procs").exists()) {
        let mut limit = u64::MAX;
        for file in limits {
            match read_number(level.join(file)) {
                // The top of v2 has no limit.
                Err(error) if error.errno() == Some(libc::ENOENT) && level.exists() => {}
                other => limit = limit.min(other.map_err(gone(level))?),
            }
        }
        if limit < NO_LIMIT {
            let left = limit.saturating_sub(read_number(level.join(usage)).map_err(gone(level))?);
            let before = found.unwrap_or(Limits { smallest: u64::MAX, left: u64::MAX });
            found = Some(Limits { smallest: before.smallest.min(limit), left: before.left.min(left) });
        }
    }
    Ok(found)
}

fn gone(level: &Path) -> impl Fn(Error) -> Error {
    move |error| match error.errno() {
        Some(libc::ENOENT | libc::ENODEV) => Error::GroupVanished(level.to_owned()),
        _ => error,
    }
}

/// Pages of a base with these limits, beside contributed work of so many bytes of which `memory.stat`, whose keys begin so, says `own`.
pub fn picture(base: &Path, limits: Option<Limits>, contributed: u64, own: &str, prefix: &str) -> Result<Picture> {
    let machine = machine()?;
    let (contributed, own_cold) = (contributed / PAGE, cold(own, prefix));
    let Some(limits) = limits else { return Ok(whole(machine, contributed, own_cold)) };
    let all = cold(&read(base.join("memory.stat"))?, prefix);
    Ok(boxed(machine, limits, contributed, all, own_cold))
}

/// Pages of the whole machine: all, free, and cold file cache.
pub fn machine() -> Result<Picture> {
    let text = read("/proc/meminfo")?;
    let pages = |key| keyed(&text, key) * 1024 / PAGE;
    Ok(Picture {
        total: pages("MemTotal"),
        free: pages("MemFree"),
        contributed: 0,
        // What is mapped is used without the kernel noticing before it needs memory.
        cold_cache: pages("Inactive(file)").saturating_sub(pages("Mapped")),
    })
}

/// Cold file cache of a group with all below it, in pages, from its `memory.stat` (v1's hierarchical sums are `total_…`).
fn cold(stat: &str, prefix: &str) -> u64 {
    let bytes = |key| keyed(stat, &format!("{prefix}{key} "));
    bytes("inactive_file").saturating_sub(bytes(if prefix.is_empty() { "file_mapped" } else { "mapped_file" })) / PAGE
}

/// Pages of the whole machine, beside contributed work with so much memory and cold cache.
fn whole(machine: Picture, contributed: u64, own_cold: u64) -> Picture {
    Picture { contributed, cold_cache: machine.cold_cache.saturating_sub(own_cold), ..machine }
}

/// Pages of a box with limits and so much cold cache, inside the machine: what the box may still use is free only as far as
/// the machine has it, free or as cold cache outside the box.
fn boxed(machine: Picture, limits: Limits, contributed: u64, cold: u64, own_cold: u64) -> Picture {
    let total = (limits.smallest / PAGE).min(machine.total);
    let free = (limits.left / PAGE).min(machine.free + machine.cold_cache.saturating_sub(cold));
    Picture { total, free, contributed, cold_cache: cold.saturating_sub(own_cold) }
}

/// Whether there is any swap: without it only file pages can be evicted.
pub fn has_swap() -> bool {
    read("/proc/meminfo").is_ok_and(|text| keyed(&text, "SwapTotal") > 0)
}

/// Whether there is room left in swap.
pub fn has_free_swap() -> bool {
    read("/proc/meminfo").is_ok_and(|text| keyed(&text, "SwapFree") > 0)
}

/// Bytes swapped out on the whole machine.
pub fn swapped() -> u64 {
    read("/proc/meminfo").map_or(0, |text| keyed(&text, "SwapTotal").saturating_sub(keyed(&text, "SwapFree")) * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn cache_that_is_mapped_or_of_contributed_work_is_not_cold() {
        assert_eq!(cold("inactive_file 81920\nfile_mapped 40960\n", ""), 10);
        assert_eq!(cold("inactive_file 1\ntotal_inactive_file 81920\ntotal_mapped_file 4096\n", "total_"), 19);
        let machine = Picture { total: 1000, free: 10, contributed: 0, cold_cache: 400 };
        assert_eq!(whole(machine, 300, 150), Picture { contributed: 300, cold_cache: 250, ..machine });
    }

    /// Regression: where the cache filled the machine, nothing was free in a box that was half empty.
    #[test]
    fn a_box_may_grow_into_cold_cache_outside() {
        let machine = Picture { total: 1000, free: 10, contributed: 0, cold_cache: 400 };
        let limits = |left: u64| Limits { smallest: 600 * PAGE, left: left * PAGE };
        let expected = Picture { total: 600, free: 310, contributed: 20, cold_cache: 70 };
        assert_eq!(boxed(machine, limits(500), 20, 100, 30), expected);
        assert_eq!(boxed(machine, limits(50), 20, 100, 30).free, 50);
    }

    /// Regression: of a nested box only its own limit was read, and its usage taken from the smallest.
    #[test]
    fn limits_above_a_group_count_with_what_is_used_below_each() {
        let dir = tempfile::tempdir().unwrap();
        let (top, middle) = (dir.path().join("top"), dir.path().join("top/middle"));
        let group = middle.join("box");
        fs::create_dir_all(&group).unwrap();
        let set = |level: &Path, limit: &str, usage: &str| {
            for (file, text) in [("cgroup.procs", ""), ("limit", limit), ("usage", usage)] {
                fs::write(level.join(file), text).unwrap();
            }
        };
        let now = || limits(&group, &["limit", "high"], "usage").unwrap();
        set(&group, "max", "10");
        set(&middle, "9223372036854771712", "400");
        fs::write(top.join("cgroup.procs"), "").unwrap();
        assert_eq!(now(), None, "the top of v2 has neither file");
        set(&middle, "500", "400");
        assert_eq!(now(), Some(Limits { smallest: 500, left: 100 }));
        set(&group, "200", "10");
        assert_eq!(now(), Some(Limits { smallest: 200, left: 100 }));
        set(&top, "1000", "990");
        assert_eq!(now(), Some(Limits { smallest: 200, left: 10 }));
        // Regression: what is bounded by memory.high alone was taken for unlimited.
        set(&top, "max", "990");
        set(&group, "max", "10");
        fs::write(middle.join("high"), "450").unwrap();
        assert_eq!(now(), Some(Limits { smallest: 450, left: 50 }));
        fs::write(middle.join("high"), "max").unwrap();
        assert_eq!(now(), Some(Limits { smallest: 500, left: 100 }));
    }
}
