//! Writing a chunk as a whole: create, overwrite, truncate, and changes too large for the journal.

use super::error::OpError;
use super::expected::Expected;
use super::file;
use super::header::{CHUNK_MAX_BYTES, Header};
use super::index::{Access, CHARGED_MAX, ChunkInfo};
use super::ledger::Ledger;
use super::name::ChunkName;
use super::record::{Record, Source};
use super::store::{ChunkStore, Done, INLINE_MAX_BYTES};
use std::fs;
use std::sync::Arc;
use ullage_journal::Durability;

/// The mode of a chunk for which none is stated.
const NEW_MODE: u16 = 0o600;

/// What a chunk is to become.
pub(crate) struct Content<'a> {
    pub(crate) name: &'a ChunkName,
    pub(crate) owner: Arc<str>,
    pub(crate) mode: u16,
    pub(crate) data: &'a [u8],
    /// At least the data's length; a hole follows the data.
    pub(crate) size: u64,
    /// Who pays for growth.
    pub(crate) payer: &'a Arc<str>,
}

impl<L: Ledger> ChunkStore<L> {
    /// Creates a chunk, or with `replace` overwrites it as a whole; an existing chunk keeps its owner, and its mode unless the owner
    /// states another.
    #[expect(clippy::too_many_arguments, reason = "the fields of one request")]
    pub fn put(
        &self,
        name: &ChunkName,
        by: &str,
        owner: &Arc<str>,
        payer: &Arc<str>,
        mode: Option<u16>,
        data: &[u8],
        replace: impl Into<Expected>,
        payment: &L::Payment,
    ) -> Result<Done<L::Receipt>, OpError<L::Refusal>> {
        self.check_room()?;
        let _exclusive = self.lock(name).write();
        self.check_running()?;
        let old = self.stat(name);
        replace.into().check(name, old.as_ref())?;
        if old.as_ref().is_some_and(|old| !old.permits(by, Access::Remove)) {
            return Err(OpError::Forbidden(name.clone()));
        }
        let owner = old.as_ref().map_or(owner, |old| &old.owner);
        let kept = old.as_ref().filter(|_| mode.is_none() || **owner != *by).map(|old| old.mode);
        let mode = kept.or(mode).unwrap_or(NEW_MODE);
        let content = Content { name, owner: Arc::clone(owner), mode, data, size: data.len() as u64, payer };
        self.replace(content, old.as_ref(), payment)
    }

    /// Cuts a chunk, or lengthens it by a hole.
    pub fn truncate(
        &self,
        name: &ChunkName,
        by: &str,
        payer: &Arc<str>,
        size: u64,
        payment: &L::Payment,
    ) -> Result<Done<L::Receipt>, OpError<L::Refusal>> {
        self.check_room()?;
        let _exclusive = self.lock(name).write();
        self.check_running()?;
        let old = self.find_for(name, by, Access::Change)?;
        if size == old.size {
            return self.write_in_place(name, &old, payer, 0, &[], payment);
        }
        let (file, header) = self.open_chunk(name, old.generation)?;
        let data = file::read(&file, &header, 0, size).map_err(|e| self.read_error(name, e))?;
        let content = Content { name, owner: Arc::clone(&old.owner), mode: old.mode, data: &data, size, payer };
        self.replace(content, Some(&old), payment)
    }

    /// The caller holds the chunk's lock exclusively.
    pub(crate) fn replace(
        &self,
        content: Content<'_>,
        old: Option<&ChunkInfo>,
        payment: &L::Payment,
    ) -> Result<Done<L::Receipt>, OpError<L::Refusal>> {
        let Content { name, owner, mode, data, size, payer } = content;
        if size > CHUNK_MAX_BYTES {
            return Err(OpError::TooLarge);
        }
        self.check_inodes()?;
        let inline = data.len() <= INLINE_MAX_BYTES;
        let mut header = Header {
            name: name.clone(),
            owner: Arc::clone(&owner),
            mode,
            generation: 0,
            size,
            checksums: Header::checksums_of(data, size),
        };
        // The generation is known only under the lock, where no disk is waited for; it is stamped before the flush by
        // being taken in advance. Gaps are harmless.
        header.generation = self.take_generation();
        let id = self.next_file();
        let path = self.directory.new_file(id);
        let flush = !inline && self.options.durability == Durability::Disk;
        let written = file::write_new(&path, &header, data, flush).and_then(|file| file::allocated(&file));
        let allocated = written.map_err(|error| {
            // What is left of it is removed at the next start in any case.
            let _ = fs::remove_file(&path);
            OpError::io("write", &path, error)
        })?;
        let none = Vec::new();
        let (charges, postings) = ChunkInfo::recharge(old.map_or(&none, |old| &old.charges), payer, allocated);
        if charges.len() > CHARGED_MAX {
            let _ = fs::remove_file(&path);
            return Err(OpError::Crowded(name.clone()));
        }
        let info = ChunkInfo { owner, mode, size, generation: header.generation, charges };
        let source = if inline { Source::Inline(header.body(), data.into()) } else { Source::File(id) };
        let record = Record::Replace { name: name.clone(), info: info.clone(), source, note: Vec::new() };
        let change = record.encode_change();
        let gate = self.gate.read();
        let booked = self.book(name, &info, change, &postings, payment);
        let (pending, receipt) = booked.map_err(|refusal| {
            let _ = fs::remove_file(&path);
            OpError::Refused(refusal)
        })?;
        self.complete(pending)?;
        let target = self.directory.chunk(name);
        self.applied("rename", &target, || fs::rename(&path, &target))?;
        drop(gate);
        Ok(Done { info: Some(info), receipt })
    }

    pub(crate) fn take_generation(&self) -> u64 {
        let mut state = self.state.lock();
        state.index.generation += 1;
        state.index.generation
    }
}
