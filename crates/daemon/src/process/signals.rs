//! The signals that end a server in order.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// All of them, but for a hangup that this process was started to take no notice of, as by nohup(1): to be asked before any is handled.
pub fn end_signals() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| *signal != SIGHUP || !ignores(&status, SIGHUP)).collect()
}

/// Whether the process of this status does nothing at a signal.
fn ignores(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_is_read_from_the_status_of_a_process() {
        for (mask, hangup) in [("0000000000000001", true), ("0000000000001000", false), ("fffffffffffffffe", false)] {
            assert_eq!(ignores(&format!("Name:\tx\nSigIgn:\t{mask}\nSigCgt:\tffff\n"), SIGHUP), hangup, "{mask}");
        }
        assert!(!ignores("", SIGHUP));
    }
}
