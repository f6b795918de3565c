//! A snapshot: one framed record in a file of its own, put in place by rename.

use crate::reserve::Reserve;
use crate::{JournalError, frame};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

pub(crate) fn path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("snapshot-{number:012}"))
}

/// Writes `state` so that it is either wholly there after a crash or not at all.
pub(crate) fn write(directory: &Path, number: u64, state: &[u8], reserve: &Reserve) -> Result<(), JournalError> {
    let target = path(directory, number);
    let temporary = target.with_extension("new");
    let mut bytes = Vec::with_capacity(state.len() + frame::HEADER_BYTES);
    frame::encode(&mut bytes, number, 0, 0, state);
    let written = reserve.or_with_it(|| {
        let mut file = File::create(&temporary)?;
        file.write_all(&bytes)?;
        file.sync_all()
    });
    written.map_err(|error| {
        // What there is of it takes room that is missing.
        let _ = fs::remove_file(&temporary);
        JournalError::io("write", &temporary, error)
    })?;
    fs::rename(&temporary, &target).map_err(|e| JournalError::io("rename", &target, e))?;
    sync_directory(directory)
}

/// Reads snapshot `number`. It was flushed before it got its name, so damage is an error.
pub(crate) fn read(directory: &Path, number: u64) -> Result<Vec<u8>, JournalError> {
    let file = path(directory, number);
    let bytes = fs::read(&file).map_err(|e| JournalError::io("read", &file, e))?;
    match frame::decode(&bytes, number, 0) {
        Some(frame) if frame.next == bytes.len() => Ok(frame.payload.to_vec()),
        _ => Err(JournalError::Damaged { path: file, offset: 0, durable: bytes.len() as u64 }),
    }
}

pub(crate) fn sync_directory(directory: &Path) -> Result<(), JournalError> {
    File::open(directory).and_then(|d| d.sync_all()).map_err(|e| JournalError::io("flush directory", directory, e))
}
