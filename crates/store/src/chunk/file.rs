//! One chunk's file: header, then data.

use super::header::{BLOCK_BYTES, HEADER_BYTES, Header};
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

/// Why a file could not be read.
#[derive(Debug)]
pub(crate) enum ReadError {
    Io(io::Error),
    /// The block at this offset does not match its checksum (0: or the header).
    Damaged(u64),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Bytes the file system allocated to the file.
pub(crate) fn allocated(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.blocks() * 512)
}

/// Writes a new file: header, `data`, and a hole up to the header's size. Pages of zeros are left out, so that what a chunk had as
/// a hole does not begin to cost when it is copied. Its length comes first: xfs gives a file that grows blocks beyond its end, which would
/// be measured.
pub(crate) fn write_new(path: &Path, header: &Header, data: &[u8], flush: bool) -> io::Result<File> {
    let file = File::options().read(true).write(true).create_new(true).open(path)?;
    file.set_len(HEADER_BYTES as u64 + header.size)?;
    file.write_all_at(&header.page(), 0)?;
    write_without_zeros(&file, data)?;
    if flush {
        file.sync_data()?;
    }
    Ok(file)
}

/// Writes the pages of a chunk's data that are not all zeros.
fn write_without_zeros(file: &File, data: &[u8]) -> io::Result<()> {
    let (mut start, mut at) = (0, 0);
    // What is empty ends the last run of pages.
    for page in data.chunks(HEADER_BYTES).chain([&[][..]]) {
        let next = at + page.len();
        if page.iter().all(|byte| *byte == 0) {
            if start < at {
                file.write_all_at(&data[start..at], (HEADER_BYTES + start) as u64)?;
            }
            start = next;
        }
        at = next;
    }
    Ok(())
}

pub(crate) fn read_header(file: &File) -> Result<Header, ReadError> {
    let mut page = vec![0; HEADER_BYTES];
    match file.read_exact_at(&mut page, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(ReadError::Damaged(0)),
        Err(error) => Err(error.into()),
        Ok(()) => Header::from_page(&page).map_err(|_| ReadError::Damaged(0)),
    }
}

/// Reads `length` bytes at `offset` (cut at the end of the data), checking every block touched.
pub(crate) fn read(file: &File, header: &Header, offset: u64, length: u64) -> Result<Vec<u8>, ReadError> {
    let end = offset.saturating_add(length).min(header.size);
    if offset >= end {
        return Ok(Vec::new());
    }
    let block = BLOCK_BYTES as u64;
    let from = offset / block * block;
    let to = (end.div_ceil(block) * block).min(header.size);
    let mut bytes = vec![0; (to - from) as usize];
    match file.read_exact_at(&mut bytes, HEADER_BYTES as u64 + from) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(ReadError::Damaged(from)),
        other => other?,
    }
    let first = (from / block) as usize;
    for (position, data) in bytes.chunks(BLOCK_BYTES).enumerate() {
        if header.checksums.get(first + position) != Some(&xxh3_64(data)) {
            return Err(ReadError::Damaged(from + (position * BLOCK_BYTES) as u64));
        }
    }
    bytes.truncate((end - from) as usize);
    bytes.drain(..(offset - from) as usize);
    Ok(bytes)
}

/// Allocates the blocks under `length` data bytes at `offset` without changing what is read.
pub(crate) fn reserve(file: &File, offset: u64, length: u64) -> io::Result<()> {
    if length == 0 {
        return Ok(());
    }
    match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, HEADER_BYTES as u64 + offset, length) {
        // Such a file system allocates at the write; the recount sees what it was.
        Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
        other => Ok(other?),
    }
}

/// Overwrites header and data in place; only ever from a record that is durable.
pub(crate) fn patch(file: &File, header: &Header, offset: u64, data: &[u8]) -> io::Result<()> {
    let end = HEADER_BYTES as u64 + header.size;
    if file.metadata()?.len() < end {
        file.set_len(end)?;
    }
    file.write_all_at(data, HEADER_BYTES as u64 + offset)?;
    file.write_all_at(&header.page(), 0)
}

/// Copies only the pages that hold data, so that blocks reserved and never written are left behind.
pub(crate) fn copy_without_holes(from: &File, to: &Path) -> io::Result<File> {
    let copy = File::options().read(true).write(true).create_new(true).open(to)?;
    let length = from.metadata()?.len();
    copy.set_len(length)?;
    let mut page = vec![0; HEADER_BYTES];
    let mut at = 0;
    while at < length {
        let count = ((length - at) as usize).min(page.len());
        let page = &mut page[..count];
        from.read_exact_at(page, at)?;
        if at == 0 || page.iter().any(|byte| *byte != 0) {
            copy.write_all_at(page, at)?;
        }
        at += count as u64;
    }
    copy.sync_all()?;
    Ok(copy)
}
