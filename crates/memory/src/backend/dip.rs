//! Evicting where there is no `memory.reclaim`: the limit of a group is lowered by a step, which makes the kernel evict that
//! much, and set back at once.

use super::SHRINK_STEP;
use crate::PAGE;
use crate::error::{Error, Result};
use crate::system::place::NO_LIMIT;
use crate::system::{read_number, write};
use std::path::Path;

/// Evicts up to `bytes` from a group without a limit of its own; gives how many went. From a group that
/// ends meanwhile none did.
pub fn dip(group: &Path, bytes: u64, journal: Option<&Path>) -> Result<u64> {
    let evicted = match lower_and_raise(group, bytes, journal) {
        Err(error) if matches!(error.errno(), Some(libc::ENOENT | libc::ENODEV)) => 0,
        // The journal stays: whoever cleans up tries again to set the limit back.
        other => return other,
    };
    journal.map_or(Ok(()), forget)?;
    Ok(evicted)
}

/// What a group holds that may be evicted from by its limit. One that somebody set is not ours to touch: dying in between would
/// change it for good, while "no limit" is restored by any cleaning up.
pub fn dippable(group: &Path) -> Result<u64> {
    let limit = read_number(group.join("memory.limit_in_bytes"))?;
    if limit < NO_LIMIT { Ok(0) } else { read_number(group.join("memory.usage_in_bytes")) }
}

fn lower_and_raise(group: &Path, bytes: u64, journal: Option<&Path>) -> Result<u64> {
    let (limit_file, usage_file) = (group.join("memory.limit_in_bytes"), group.join("memory.usage_in_bytes"));
    let usage = dippable(group)?;
    if usage < PAGE {
        return Ok(0);
    }
    let step = bytes.min(SHRINK_STEP).min(usage / 2);
    // On a full disk, say: should this process die in between, nobody would set the limit back. Then the kernel chooses by itself.
    if journal.is_some_and(|journal| std::fs::write(journal, limit_file.as_os_str().as_encoded_bytes()).is_err()) {
        return Ok(0);
    }
    let lowered = write(&limit_file, &(usage - step).to_string());
    write(&limit_file, "-1")?;
    journal.map_or(Ok(()), forget)?;
    if lowered.is_err() {
        return Ok(0);
    }
    Ok(usage.saturating_sub(read_number(&usage_file)?).min(step))
}

/// Removes the journal, if there is one.
fn forget(journal: &Path) -> Result<()> {
    match std::fs::remove_file(journal) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io("removing", journal)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a full disk ended the controller, and with it all limits.
    #[test]
    fn what_cannot_be_written_down_is_not_done() {
        let dir = tempfile::tempdir().unwrap();
        let (limit, journal) = (dir.path().join("memory.limit_in_bytes"), dir.path().join("eviction"));
        std::fs::write(&limit, "9223372036854771712").unwrap();
        std::fs::write(dir.path().join("memory.usage_in_bytes"), "104857600").unwrap();
        std::os::unix::fs::symlink("/dev/full", &journal).unwrap();
        assert_eq!(dip(dir.path(), 1 << 20, Some(&journal)).unwrap(), 0);
        assert_eq!(read_number(&limit).unwrap(), 9_223_372_036_854_771_712);
    }
}
