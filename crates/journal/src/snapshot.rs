//! A snapshot: the state in a file of its own, put in place by rename. It is framed as records are, in pieces; `durable` of each
//! says how many bytes of the state follow it.

use crate::reserve::Reserve;
use crate::{JournalError, frame};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The most in one frame, whose length has four bytes.
const PIECE_BYTES: usize = frame::RECORD_MAX_BYTES;
const _: () = assert!(PIECE_BYTES <= u32::MAX as usize);

pub(crate) fn path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("snapshot-{number:012}"))
}

/// Writes `state` so that it is either wholly there after a crash or not at all.
pub(crate) fn write(directory: &Path, number: u64, state: &[u8], reserve: &Reserve) -> Result<(), JournalError> {
    let target = path(directory, number);
    let temporary = target.with_extension("new");
    let written = reserve.or_with_it(|| {
        let mut file = File::create(&temporary)?;
        write_pieces(&mut file, number, state, PIECE_BYTES)?;
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

/// Removes what a crash left of snapshots that it kept from becoming whole.
pub(crate) fn remove_unfinished(directory: &Path) -> Result<(), JournalError> {
    let list = |e| JournalError::io("list", directory, e);
    for entry in fs::read_dir(directory).map_err(list)? {
        let path = entry.map_err(list)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("snapshot-") && path.extension().is_some_and(|extension| extension == "new") {
            fs::remove_file(&path).map_err(|e| JournalError::io("remove", &path, e))?;
        }
    }
    Ok(())
}

/// Reads snapshot `number`. It was flushed before it got its name, so damage is an error.
pub(crate) fn read(directory: &Path, number: u64) -> Result<Vec<u8>, JournalError> {
    let file = path(directory, number);
    let bytes = fs::read(&file).map_err(|e| JournalError::io("read", &file, e))?;
    join_pieces(&bytes, number).map_err(|offset| JournalError::Damaged {
        path: file,
        offset: offset as u64,
        durable: bytes.len() as u64,
    })
}

fn write_pieces(file: &mut impl Write, number: u64, state: &[u8], most: usize) -> io::Result<()> {
    let mut bytes = Vec::new();
    let (mut rest, mut offset) = (state, 0);
    loop {
        let (piece, after) = rest.split_at(rest.len().min(most));
        bytes.clear();
        frame::encode(&mut bytes, number, offset, after.len() as u64, piece);
        file.write_all(&bytes)?;
        offset += bytes.len() as u64;
        rest = after;
        if rest.is_empty() {
            return Ok(());
        }
    }
}

/// The state, or where the first piece is that does not check.
fn join_pieces(bytes: &[u8], number: u64) -> Result<Vec<u8>, usize> {
    let mut state = Vec::new();
    let mut at = 0;
    loop {
        let piece = frame::decode(bytes, number, at).ok_or(at)?;
        state.extend_from_slice(piece.payload);
        at = piece.next;
        if piece.durable == 0 {
            return if at == bytes.len() { Ok(state) } else { Err(at) };
        }
    }
}

pub(crate) fn sync_directory(directory: &Path) -> Result<(), JournalError> {
    File::open(directory).and_then(|d| d.sync_all()).map_err(|e| JournalError::io("flush directory", directory, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The length of its one frame was cut to four bytes: a state of 4 GiB could not be read, and what it replaced was gone.
    #[test]
    fn a_state_of_any_length_comes_back() {
        let state: Vec<u8> = (0..20).collect();
        for length in 0..=state.len() {
            let state = &state[..length];
            let mut bytes = Vec::new();
            write_pieces(&mut bytes, 3, state, 4).unwrap();
            let pieces = length.div_ceil(4).max(1);
            assert_eq!(bytes.len(), length + pieces * frame::HEADER_BYTES);
            assert_eq!(join_pieces(&bytes, 3), Ok(state.to_vec()));
            for cut in 0..bytes.len() {
                assert!(join_pieces(&bytes[..cut], 3).is_err(), "{length} cut at {cut}");
            }
            bytes.push(0);
            assert!(join_pieces(&bytes, 3).is_err());
        }
    }
}
