//! Counters of misses and stalls.

use super::{keyed, read};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// By how much counters of groups grow, group by group: those of a group that ends go with it, and must
/// not hide how the others grew.
#[derive(Clone, Debug, Default)]
pub struct Growth {
    before: Option<HashMap<PathBuf, u64>>,
}

impl Growth {
    /// The growth of all since the previous call. A group that was not there then began at nothing.
    pub fn since(&mut self, now: impl IntoIterator<Item = (PathBuf, u64)>) -> u64 {
        let now: HashMap<PathBuf, u64> = now.into_iter().collect();
        let before = self.before.replace(now.clone()).unwrap_or_else(|| now.clone());
        now.iter().map(|(group, count)| count.saturating_sub(before.get(group).copied().unwrap_or(0))).sum()
    }
}

/// Pages that had to come back, from a cgroup's `memory.stat` (v1's hierarchical sums are `total_…`).
pub fn refaults(stat: &str, prefix: &str) -> u64 {
    let anonymous = keyed(stat, &format!("{prefix}workingset_refault_anon "));
    let file = keyed(stat, &format!("{prefix}workingset_refault_file "));
    anonymous + file
}

/// The same for the whole machine, from `/proc/vmstat`.
pub fn machine_refaults(vmstat: &str) -> u64 {
    refaults(vmstat, "")
}

/// Microseconds in which some task stalled for memory, from a pressure file; `None` where the
/// kernel keeps no such account.
pub fn stall_us(path: &Path) -> Option<u64> {
    let text = read(path).ok()?;
    let some = text.lines().find(|line| line.starts_with("some"))?;
    some.split_whitespace().find_map(|word| word.strip_prefix("total=")?.parse().ok())
}

#[cfg(test)]
mod tests {
    /// Regression: the growth of the largest counter, or of the sum, hid that of the others.
    #[test]
    fn growth_is_counted_group_by_group() {
        let mut growth = super::Growth::default();
        let mut since = |counts: &[(&str, u64)]| growth.since(counts.iter().map(|(name, count)| (name.into(), *count)));
        assert_eq!(since(&[("a", 1000), ("b", 5)]), 0);
        assert_eq!(since(&[("a", 1000), ("b", 25)]), 20);
        assert_eq!(since(&[("b", 35)]), 10, "a has ended");
        assert_eq!(since(&[("b", 35), ("c", 7)]), 7, "c has begun");
    }

    #[test]
    fn refaults_of_both_hierarchies() {
        let v1 = "workingset_refault_anon 1\nworkingset_refault_file 2\ntotal_workingset_refault_anon 30\ntotal_workingset_refault_file 40\n";
        assert_eq!(super::refaults(v1, "total_"), 70);
        assert_eq!(super::refaults(v1, ""), 3);
    }
}
