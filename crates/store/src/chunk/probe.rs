//! Whether the file system says at once what a file takes of it: chunks are charged that, right after they are written.

use super::directory::Directory;
use super::file;
use super::header::{HEADER_BYTES, Header};
use super::store::INLINE_MAX_BYTES;
use std::fs;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// What nothing makes smaller.
fn incompressible() -> Vec<u8> {
    (0..INLINE_MAX_BYTES as u64 / 8).flat_map(|word| xxh3_64(&word.to_le_bytes()).to_le_bytes()).collect()
}

/// Refuses a file system on which chunks would be nearly free. A full one is asked again at the next start: what is there can be read.
pub(crate) fn probe(directory: &Directory) -> io::Result<()> {
    // Emptied at each start, and no chunk's file has this number.
    let path = directory.new_file(0);
    let data = incompressible();
    let size = data.len() as u64;
    let name = "probe/probe".parse().map_err(|_| io::Error::from(ErrorKind::InvalidInput))?;
    let checksums = Header::checksums_of(&data, size);
    let header = Header { name, owner: Arc::from("probe"), mode: 0, generation: 0, size, checksums };
    let written = file::write_new(&path, &header, &data, false).and_then(|file| file::allocated(&file));
    let removed = fs::remove_file(&path);
    match written {
        Ok(allocated) => removed.and_then(|()| judge(allocated)),
        Err(error) if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => Ok(()),
        Err(error) => Err(error),
    }
}

/// What the file system shows of a file of [`INLINE_MAX_BYTES`] and a header that was just written.
fn judge(allocated: u64) -> io::Result<()> {
    let written = HEADER_BYTES + INLINE_MAX_BYTES;
    if allocated >= INLINE_MAX_BYTES as u64 / 2 {
        return Ok(());
    }
    let message = format!(
        "of {written} bytes that were written it shows {allocated} to be in use, and the rest only later (as ZFS does): chunks would be charged \
         too little. Put the store on another, like ext4, xfs or btrfs"
    );
    Err(io::Error::new(ErrorKind::Unsupported, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On such a file system chunks of any size cost half a KiB.
    #[test]
    fn a_file_system_that_shows_late_what_a_file_takes_is_refused() {
        for (allocated, is_taken) in [(0, false), (512, false), (32_767, false), (32_768, true), (69_632, true)] {
            assert_eq!(judge(allocated).is_ok(), is_taken, "{allocated}");
        }
        let said = judge(512).unwrap_err().to_string();
        assert!(said.contains("69632") && said.contains("512"), "{said}");
    }

    #[test]
    fn a_probe_leaves_nothing_behind() {
        let root = tempfile::tempdir().unwrap();
        let directory = Directory::create(root.path()).unwrap();
        probe(&directory).unwrap();
        assert_eq!(fs::read_dir(directory.news()).unwrap().count(), 0);
    }
}
