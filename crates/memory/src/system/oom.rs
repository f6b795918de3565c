//! Whom the kernel ends first when memory runs out.

use super::{read, write};
use crate::error::Result;

/// Before everybody else.
pub const FIRST: i32 = 1000;

/// How much earlier, or later, than by its size a process is ended.
pub fn score(pid: i32) -> Option<i32> {
    read(file(pid)).ok()?.trim().parse().ok()
}

/// Sets it. What is started later inherits it; below what it once was it is lowered only by root.
pub fn set_score(pid: i32, score: i32) -> Result<()> {
    write(file(pid), &score.to_string())
}

fn file(pid: i32) -> String {
    format!("/proc/{pid}/oom_score_adj")
}
