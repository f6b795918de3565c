//! Writing at an offset.

use super::error::OpError;
use super::file;
use super::header::{BLOCK_BYTES, CHUNK_MAX_BYTES, Header};
use super::index::{Access, CHARGED_MAX, ChunkInfo};
use super::ledger::Ledger;
use super::name::ChunkName;
use super::record::Record;
use super::replace::Content;
use super::store::{ChunkStore, Done, INLINE_MAX_BYTES};
use std::fs::{self, File};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

impl<L: Ledger> ChunkStore<L> {
    /// Writes `data` at `offset`; a gap before it reads as zeros, and no data change nothing. The chunk must exist.
    pub fn write_at(
        &self,
        name: &ChunkName,
        by: &str,
        payer: &Arc<str>,
        offset: u64,
        data: &[u8],
        payment: &L::Payment,
    ) -> Result<Done<L::Receipt>, OpError<L::Refusal>> {
        self.check_room()?;
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= CHUNK_MAX_BYTES);
        let end = end.ok_or(OpError::TooLarge)?;
        let _exclusive = self.lock(name).write();
        self.check_running()?;
        let old = self.find_for(name, by, Access::Change)?;
        if data.len() > INLINE_MAX_BYTES {
            let (file, header) = self.open_chunk(name, old.generation)?;
            let mut whole = file::read(&file, &header, 0, header.size).map_err(|e| self.read_error(name, e))?;
            whole.resize(header.size.max(end) as usize, 0);
            whole[offset as usize..end as usize].copy_from_slice(data);
            let size = whole.len() as u64;
            let content = Content { name, owner: Arc::clone(&old.owner), mode: old.mode, data: &whole, size, payer };
            return self.replace(content, Some(&old), payment);
        }
        self.write_in_place(name, &old, payer, offset, data, payment)
    }

    /// What travels in the journal. The caller holds the chunk's lock exclusively.
    pub(crate) fn write_in_place(
        &self,
        name: &ChunkName,
        old: &ChunkInfo,
        payer: &Arc<str>,
        offset: u64,
        data: &[u8],
        payment: &L::Payment,
    ) -> Result<Done<L::Receipt>, OpError<L::Refusal>> {
        let (file, header) = self.open_chunk(name, old.generation)?;
        let mut header = self.patched(name, &file, header, offset, data)?;
        header.generation = self.take_generation();
        let path = self.directory.chunk(name);
        // Reserving first makes the charge known before anything is committed, and the write unable to fail for space.
        let before = old.allocated();
        let reserved = file::reserve(&file, offset, data.len() as u64)
            .map_err(|e| OpError::io("allocate in", &path, e))
            .and_then(|()| file::allocated(&file).map_err(|e| OpError::io("measure", &path, e)));
        // A file system may keep what it had found when it finds no more.
        let allocated = reserved.inspect_err(|_| self.give_back(name, &file, before))?;
        let (charges, postings) = ChunkInfo::recharge(&old.charges, payer, allocated);
        if charges.len() > CHARGED_MAX {
            self.give_back(name, &file, before);
            return Err(OpError::Crowded(name.clone()));
        }
        let info = ChunkInfo { size: header.size, generation: header.generation, charges, ..old.clone() };
        let record = Record::Patch {
            name: name.clone(),
            info: info.clone(),
            header: header.body(),
            offset,
            data: data.into(),
            note: Vec::new(),
        };
        let change = record.encode_change();
        let gate = self.gate.read();
        let (pending, receipt) = match self.book(name, &info, change, &postings, payment) {
            Ok(booked) => booked,
            Err(refusal) => {
                drop(gate);
                if allocated > before {
                    self.give_back(name, &file, before);
                }
                return Err(OpError::Refused(refusal));
            }
        };
        self.complete(pending)?;
        self.applied("write", &path, || file::patch(&file, &header, offset, data))?;
        drop(gate);
        Ok(Done { info: Some(info), receipt })
    }

    /// The header after the write. What is kept of a block is checked first, so that damage never gets a new checksum.
    fn patched(
        &self,
        name: &ChunkName,
        file: &File,
        mut header: Header,
        offset: u64,
        data: &[u8],
    ) -> Result<Header, OpError<L::Refusal>> {
        let block = BLOCK_BYTES as u64;
        let end = offset + data.len() as u64;
        if data.is_empty() {
            return Ok(header);
        }
        let size = header.size.max(end);
        // A longer chunk changes also the block that was the last one, and every block of the gap.
        let first = if size > header.size { offset.min(header.size) } else { offset } / block;
        let mut checksums = header.checksums.clone();
        checksums.resize(Header::blocks(size), 0);
        for number in first..end.div_ceil(block) {
            let start = number * block;
            let stop = (start + block).min(size);
            let mut bytes = if start >= offset && stop <= end {
                Vec::new()
            } else {
                file::read(file, &header, start, stop - start).map_err(|e| self.read_error(name, e))?
            };
            bytes.resize((stop - start) as usize, 0);
            let (from, to) = (offset.clamp(start, stop), end.clamp(start, stop));
            // A block of the gap gets none of the data.
            if from < to {
                bytes[(from - start) as usize..(to - start) as usize]
                    .copy_from_slice(&data[(from - offset) as usize..(to - offset) as usize]);
            }
            checksums[number as usize] = xxh3_64(&bytes);
        }
        header.size = size;
        header.checksums = checksums;
        Ok(header)
    }

    /// After a refusal, blocks that were reserved are freed until it occupies so much again: those beyond the end of the file, then others by
    /// replacing the file with a copy of what it really holds. Where there is no room for one, the recount of the next start does it.
    fn give_back(&self, name: &ChunkName, file: &File, before: u64) {
        let cut = file.metadata().and_then(|meta| file.set_len(meta.len())).and_then(|()| file::allocated(file));
        if cut.is_ok_and(|left| left <= before) {
            return;
        }
        let path = self.directory.new_file(self.next_file());
        let copied = file::copy_without_holes(file, &path).and_then(|_| fs::rename(&path, self.directory.chunk(name)));
        if let Err(error) = copied {
            tracing::warn!(chunk = %name, %error, "what a refused write had reserved stays so until the next start");
            // What there is of it takes room that others need.
            let _ = fs::remove_file(&path);
        }
    }
}
