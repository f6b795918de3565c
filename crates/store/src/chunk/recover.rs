//! After a start: redo what was committed, then compare the accounts with what the file system says.

use super::directory::Directory;
use super::error::OpError;
use super::file;
use super::header::Header;
use super::index::{ChunkInfo, Index};
use super::ledger::Ledger;
use super::name::ChunkName;
use super::record::{Record, Source};
use super::store::State;
use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io;
use std::path::Path;
use ullage_journal::Recovered;
use ullage_journal::codec::Decoder;
use ullage_journal::parts::Begun;

/// What the recount found. All zero but `chunks` after a clean end, and after `kill -9` too but for `unfinished` and
/// `trimmed`.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Recount {
    /// Chunks accounted for.
    pub chunks: u64,
    /// Bytes they occupy.
    pub allocated_bytes: u64,
    /// Files that were never committed, removed.
    pub unfinished: u64,
    /// Chunks whose file held blocks that a write never committed had reserved; now freed.
    pub trimmed: u64,
    /// Files nobody accounts for, moved to `lost/`.
    pub lost: u64,
    /// Chunks without a file: credited and forgotten.
    pub missing: u64,
    /// Bytes credited because the file system holds less than was charged.
    pub credited_bytes: u64,
    /// Bytes the file system holds beyond what was charged (its own metadata, allocated late); nobody pays for them.
    pub uncharged_bytes: u64,
}

pub(crate) fn recover<L: Ledger>(
    directory: &Directory,
    recovered: Recovered,
    state: &mut State<L>,
) -> Result<(Recount, Vec<Record<'static>>), OpError<L::Refusal>> {
    let stopped = |why: String| OpError::Stopped(why);
    if let Some(snapshot) = &recovered.snapshot {
        let mut from = Decoder::new(snapshot);
        state.index = Index::decode(&mut from).map_err(|e| stopped(e.to_string()))?;
        let ledger = from.bytes().map_err(|e| stopped(e.to_string()))?;
        state.ledger.load(ledger).map_err(stopped)?;
    }
    let decode = |bytes| Record::decode(bytes).map_err(|e| stopped(e.to_string()));
    let failed = |error: io::Error| stopped(format!("redo a change: {error}"));
    // The last change of each chunk whose new file was put in place: what is there now is that file, or made from it, even where
    // a torn header does not say so.
    let mut placed = HashMap::new();
    for (position, bytes) in recovered.records.iter().enumerate() {
        if let Record::Replace { name, source: Source::File(id), .. } = decode(bytes)?
            && !directory.new_file(id).try_exists().map_err(failed)?
        {
            placed.insert(name, position);
        }
    }
    let mut begun = Begun::default();
    for (position, bytes) in recovered.records.iter().enumerate() {
        let record = decode(bytes)?;
        let placed = record.chunk().and_then(|name| placed.get(name));
        if placed.is_none_or(|placed| position >= *placed) {
            apply(directory, &record).map_err(failed)?;
        }
        redo(record, &mut begun, state).map_err(failed)?;
    }
    recount(directory, state).map_err(|e| stopped(format!("recount: {e}")))
}

/// Makes the chunk's file what the record says. Also where a later change is in the file: a header that reached the disk with that one says
/// nothing of the data of those before it, and the records that follow make good what this one takes back.
fn apply(directory: &Directory, record: &Record<'_>) -> io::Result<()> {
    match record {
        Record::Replace { name, source: Source::File(id), .. } => {
            ignore_missing(fs::rename(directory.new_file(*id), directory.chunk(name)))
        }
        Record::Replace { name, source: Source::Inline(header, data), .. } => {
            let header = Header::from_body(header).map_err(io::Error::other)?;
            let path = directory.news().join("redo");
            ignore_missing(fs::remove_file(&path))?;
            file::write_new(&path, &header, data, false)?;
            fs::rename(&path, directory.chunk(name))
        }
        Record::Patch { name, header, offset, data, .. } => {
            let header = Header::from_body(header).map_err(io::Error::other)?;
            match File::options().read(true).write(true).open(directory.chunk(name)) {
                Ok(file) => file::patch(&file, &header, *offset, data),
                // A later record deletes it; if none does, the recount says so.
                Err(error) => ignore_missing(Err(error)),
            }
        }
        Record::Delete { name, .. } => ignore_missing(fs::remove_file(directory.chunk(name))),
        Record::Correct { .. } | Record::Note(_) | Record::NotePart(..) => Ok(()),
    }
}

fn redo<L: Ledger>(record: Record<'_>, begun: &mut Begun, state: &mut State<L>) -> io::Result<()> {
    if !matches!(record, Record::NotePart(..)) {
        begun.forget();
    }
    let note = match record {
        Record::Replace { name, info, note, .. } | Record::Patch { name, info, note, .. } => {
            state.index.generation = state.index.generation.max(info.generation);
            state.index.insert(name, info);
            note
        }
        Record::Delete { name, generation, note } => {
            state.index.generation = state.index.generation.max(generation);
            state.index.remove(&name);
            note
        }
        Record::Correct { name, info, note } => {
            match info {
                Some(info) => state.index.insert(name, info),
                None => state.index.remove(&name),
            }
            note
        }
        Record::Note(note) => note,
        Record::NotePart(part, bytes) => begun.add(part, &bytes).unwrap_or_default(),
    };
    if note.is_empty() { Ok(()) } else { state.ledger.replay(&note).map_err(io::Error::other) }
}

/// The first number of a new file that no record has: one that had it would be taken for what the record says of a new file.
pub(crate) fn next_file(recovered: &Recovered) -> u64 {
    let ids = recovered.records.iter().filter_map(|bytes| match Record::decode(bytes) {
        Ok(Record::Replace { source: Source::File(id), .. }) => Some(id),
        _ => None,
    });
    ids.max().unwrap_or(0) + 1
}

/// For what is to be gone, or was put in its place before.
pub(crate) fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

fn recount<L: Ledger>(directory: &Directory, state: &mut State<L>) -> io::Result<(Recount, Vec<Record<'static>>)> {
    let mut recount = Recount::default();
    let mut corrections = Vec::new();
    for entry in fs::read_dir(directory.news())? {
        fs::remove_file(entry?.path())?;
        recount.unfinished += 1;
    }
    let mut seen = BTreeSet::new();
    for shard in 0..=255u8 {
        for entry in fs::read_dir(directory.shard(shard))? {
            let entry = entry?;
            let file_name = entry.file_name().to_string_lossy().into_owned();
            let name = ChunkName::from_file_name(&file_name).filter(|name| state.index.get(name).is_some());
            let Some(name) = name else {
                fs::rename(entry.path(), directory.lost(&file_name))?;
                recount.lost += 1;
                continue;
            };
            recount_one(directory, &entry.path(), &name, state, &mut recount, &mut corrections)?;
            seen.insert(name);
        }
    }
    let missing: Vec<ChunkName> = state.index.names().filter(|name| !seen.contains(*name)).cloned().collect();
    for name in missing {
        tracing::error!(chunk = %name, "a chunk's file is missing; its owner is credited");
        recount.missing += 1;
        correct(&name, 0, state, &mut recount, &mut corrections);
    }
    Ok((recount, corrections))
}

fn recount_one<L: Ledger>(
    directory: &Directory,
    path: &Path,
    name: &ChunkName,
    state: &mut State<L>,
    recount: &mut Recount,
    corrections: &mut Vec<Record>,
) -> io::Result<()> {
    let charged = state.index.get(name).map_or(0, ChunkInfo::allocated);
    let file = File::open(path)?;
    let mut allocated = file::allocated(&file)?;
    if allocated > charged {
        let copy = directory.news().join("trim");
        let _ = fs::remove_file(&copy);
        match file::copy_without_holes(&file, &copy).and_then(|copied| file::allocated(&copied)) {
            Ok(trimmed) if trimmed < allocated => {
                fs::rename(&copy, path)?;
                allocated = trimmed;
                recount.trimmed += 1;
            }
            Ok(_) => fs::remove_file(&copy)?,
            // What is there can be read and removed; a later start trims it.
            Err(error) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
                ignore_missing(fs::remove_file(&copy))?;
            }
            Err(error) => return Err(error),
        }
    }
    recount.chunks += 1;
    recount.allocated_bytes += allocated;
    recount.uncharged_bytes += allocated.saturating_sub(charged);
    if allocated < charged {
        correct(name, allocated, state, recount, corrections);
    }
    Ok(())
}

fn correct<L: Ledger>(
    name: &ChunkName,
    allocated: u64,
    state: &mut State<L>,
    recount: &mut Recount,
    corrections: &mut Vec<Record>,
) {
    let Some(old) = state.index.get(name).cloned() else { return };
    recount.credited_bytes += old.allocated().saturating_sub(allocated);
    let (charges, postings) = ChunkInfo::recharge(&old.charges, &old.owner, allocated);
    let note = state.ledger.correct(&postings);
    let info = (allocated > 0).then_some(ChunkInfo { charges, ..old });
    match &info {
        Some(info) => state.index.insert(name.clone(), info.clone()),
        None => state.index.remove(name),
    }
    corrections.push(Record::Correct { name: name.clone(), info, note });
}
