//! How much memory there is, and how much of it is free: of the machine, or of a box in it.

use super::{keyed, read};
use crate::PAGE;
use crate::control::Picture;
use crate::error::Result;

/// Pages of the whole machine: all, free, and file cache not used twice.
pub fn machine() -> Result<Picture> {
    let text = read("/proc/meminfo")?;
    let pages = |key| keyed(&text, key) * 1024 / PAGE;
    Ok(Picture {
        total: pages("MemTotal"),
        free: pages("MemFree"),
        contributed: 0,
        cold_cache: pages("Inactive(file)"),
    })
}

/// Pages of a box of `limit` bytes holding `usage` bytes, inside the machine: what the box may still
/// use is free only as far as the machine has it.
pub fn boxed(machine: Picture, limit: u64, usage: u64, contributed: u64, cold_cache: u64) -> Picture {
    let total = (limit / PAGE).min(machine.total);
    let free = (limit.saturating_sub(usage) / PAGE).min(machine.free);
    Picture { total, free, contributed: contributed / PAGE, cold_cache: cold_cache / PAGE }
}

/// Whether there is any swap: without it only file pages can be evicted.
pub fn has_swap() -> bool {
    read("/proc/meminfo").is_ok_and(|text| keyed(&text, "SwapTotal") > 0)
}

/// Bytes swapped out on the whole machine.
pub fn swapped() -> u64 {
    read("/proc/meminfo").map_or(0, |text| keyed(&text, "SwapTotal").saturating_sub(keyed(&text, "SwapFree")) * 1024)
}
