//! One operation per file. Each is one batch: committed whole, or nothing changed.

pub(crate) mod create;
pub(crate) mod hold;
pub(crate) mod link;
pub(crate) mod lookup;
pub(crate) mod orphan;
pub(crate) mod readdir;
pub(crate) mod rename;
pub(crate) mod unlink;
pub(crate) mod update;
pub(crate) mod xattr;

use crate::inode::State;
use crate::record::Record;
use crate::{Error, Result};
use ullage_types::{Kind, Timestamp};

/// Longest name, in bytes.
pub(crate) const NAME_MAX: usize = 255;

/// Most names of one file, as ext4 has it.
pub(crate) const LINK_MAX: u32 = 65_000;

/// Refuses names that no entry can have.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0) {
        return Err(Error::Invalid);
    }
    Ok(())
}

/// Refuses what is no directory, or one that was removed.
pub(crate) fn check_directory(state: &State) -> Result<()> {
    if state.record.kind != Kind::Directory {
        return Err(Error::NotDirectory);
    }
    if state.record.nlink == 0 {
        return Err(Error::NotFound);
    }
    Ok(())
}

/// Data or entries changed.
pub(crate) fn touch(record: &mut Record, now: Timestamp) {
    record.mtime = after(record.mtime, now);
    record.ctime = after(record.ctime, now);
}

/// The new value of a time that was `before`: now, and later than before even within one tick of the coarse clock, so
/// that whoever has seen the old one sees that something changed.
pub fn after(before: Timestamp, now: Timestamp) -> Timestamp {
    const TICK_NANOSECONDS: i128 = 10_000_000;
    let nanoseconds = |time: Timestamp| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds);
    let ahead = nanoseconds(before) - nanoseconds(now);
    if !(0..TICK_NANOSECONDS).contains(&ahead) {
        return now;
    }
    match before.nanoseconds {
        999_999_999 => Timestamp { seconds: before.seconds + 1, nanoseconds: 0 },
        nanoseconds => Timestamp { nanoseconds: nanoseconds + 1, ..before },
    }
}
