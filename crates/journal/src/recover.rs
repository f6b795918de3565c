//! Reading back what was made durable.

use crate::{Durability, JournalError, frame, snapshot};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What a journal held when it was opened.
#[derive(Debug, Default)]
pub struct Recovered {
    /// The newest snapshot.
    pub snapshot: Option<Vec<u8>>,
    /// The records after it, oldest first.
    pub records: Vec<Vec<u8>>,
    /// Bytes cut off as never completed, without the zeros at their end.
    pub torn_bytes: u64,
}

pub(crate) fn segment_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("segment-{number:012}"))
}

/// Numbers of the files called `PREFIX-N`, ascending.
pub(crate) fn numbers(directory: &Path, prefix: &str) -> Result<Vec<u64>, JournalError> {
    let entries = fs::read_dir(directory).map_err(|e| JournalError::io("list", directory, e))?;
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| JournalError::io("list", directory, e))?;
        let name = entry.file_name();
        if let Some(number) = name.to_str().and_then(|n| n.strip_prefix(prefix)).and_then(|n| n.parse().ok()) {
            found.push(number);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Reads everything and cuts torn tails off. Returns also the number the next segment must have.
pub(crate) fn recover(directory: &Path, durability: Durability) -> Result<(Recovered, u64), JournalError> {
    let mut recovered = Recovered::default();
    let first = match numbers(directory, "snapshot-")?.last() {
        Some(&number) => {
            recovered.snapshot = Some(snapshot::read(directory, number)?);
            number
        }
        None => 0,
    };
    // Those before were to be removed.
    let mut segments = numbers(directory, "segment-")?;
    segments.retain(|&number| number >= first);
    for (expected, &number) in (first..).zip(&segments) {
        if number != expected {
            return Err(JournalError::Missing(segment_path(directory, expected)));
        }
        read_segment(directory, number, segments.last() == Some(&number), durability, &mut recovered)?;
    }
    let mut next = first + segments.len() as u64;
    // Each start that fails, or is killed, leaves one: it is made anew, so that they do not take all inodes there are.
    if let Some(&last) = segments.last() {
        let path = segment_path(directory, last);
        if fs::metadata(&path).is_ok_and(|found| found.len() == 0) {
            fs::remove_file(&path).map_err(|e| JournalError::io("remove", &path, e))?;
            next = last;
        }
    }
    Ok((recovered, next))
}

/// A segment is flushed before the next one is made. So only the last may be torn, or any where nothing is flushed.
fn read_segment(
    directory: &Path,
    number: u64,
    is_last: bool,
    durability: Durability,
    recovered: &mut Recovered,
) -> Result<(), JournalError> {
    let path = segment_path(directory, number);
    let bytes = fs::read(&path).map_err(|e| JournalError::io("read", &path, e))?;
    let mut at = 0;
    while let Some(found) = frame::decode(&bytes, number, at) {
        recovered.records.push(found.payload.to_vec());
        at = found.next;
    }
    let torn = bytes[at..].iter().rposition(|&byte| byte != 0).map_or(0, |last| last as u64 + 1);
    let durable = match durability {
        Durability::Disk if !is_last => at as u64 + torn,
        _ => frame::durable_after(&bytes, number, at),
    };
    if durable > at as u64 {
        return Err(JournalError::Damaged { path, offset: at as u64, durable });
    }
    recovered.torn_bytes += torn;
    // What was read of the last one may never have been flushed, or be in memory alone since its flush failed: that counts as written.
    if at < bytes.len() || is_last {
        let file = OpenOptions::new().write(true).open(&path).map_err(|e| JournalError::io("open", &path, e))?;
        let whole = bytes.get(..at).filter(|_| is_last).unwrap_or_default();
        file.write_all_at(whole, 0).map_err(|e| JournalError::io("write", &path, e))?;
        file.set_len(at as u64).map_err(|e| JournalError::io("truncate", &path, e))?;
        file.sync_all().map_err(|e| JournalError::io("flush", &path, e))?;
    }
    Ok(())
}
