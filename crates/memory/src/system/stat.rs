//! Counters of misses and stalls.

use super::{keyed, read};
use std::path::Path;

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
    #[test]
    fn refaults_of_both_hierarchies() {
        let v1 = "workingset_refault_anon 1\nworkingset_refault_file 2\ntotal_workingset_refault_anon 30\ntotal_workingset_refault_file 40\n";
        assert_eq!(super::refaults(v1, "total_"), 70);
        assert_eq!(super::refaults(v1, ""), 3);
    }
}
