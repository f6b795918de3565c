//! Who has what another process is refused: its number says what to look at, or to end.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The process that has a file locked by flock(2), where the kernel tells: not of another container, nor on every file system.
pub(crate) fn of(lock: &Path) -> Option<u32> {
    let file = std::fs::metadata(lock).ok()?;
    let (major, minor) = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
    let place = format!("{major:02x}:{minor:02x}:{}", file.ino());
    holder_in(&std::fs::read_to_string("/proc/locks").ok()?, &place)
}

/// Who waits for a lock has a line too, with an arrow in it.
fn holder_in(locks: &str, place: &str) -> Option<u32> {
    let words = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    words
        .filter(|words| words.get(1) == Some(&"FLOCK") && words.get(5) == Some(&place))
        .find_map(|words| words.get(4)?.parse().ok().filter(|pid| *pid != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_told_from_others() {
        let locks = "1: POSIX  ADVISORY  WRITE 70 fe:01:12 0 EOF\n2: FLOCK  ADVISORY  WRITE -1 fe:01:13 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 72 fe:01:12 0 EOF\n3: -> FLOCK  ADVISORY  WRITE 73 fe:01:12 0 EOF\n";
        assert_eq!(holder_in(locks, "fe:01:12"), Some(72));
        assert_eq!(holder_in(locks, "fe:01:13"), None);
    }
}
