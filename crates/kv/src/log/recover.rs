//! Reading the log after a start: the records in order, up to the first that is not whole.

use super::BLOCK;
use super::medium::{Medium, read_exact_at};
use super::record::{Decoded, HEADER_BYTES, Header, decode_changes};
use crate::{Change, Error, Seq};
use std::io;
use std::path::Path;

/// Takes the changes of a record and its last commit.
type Apply<'a> = dyn FnMut(&[Change], Seq) -> Result<(), Error> + 'a;

/// Bytes looked through at a time.
const LOOK_BYTES: usize = 1 << 20;

/// What the log held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recovered {
    /// The newest epoch seen; 0 when the log was empty.
    pub newest_epoch: u64,
    /// The file it was in.
    pub newest_file: usize,
    /// The newest commit, from the log or from the engine.
    pub newest: Seq,
    /// Records replayed.
    pub records: u64,
}

/// Replays what follows commit `applied`, in order, by `apply(changes, last)`.
///
/// A record that is not whole ends its file: it was being written, or waiting to be flushed, when power went. Whole
/// records after it may be left of the same flush, and are dropped with it. But each says up to which commit all was
/// durable when it was written: where that is beyond the gap, the medium lost what was acknowledged. That is an error,
/// never skipped.
///
/// `checked` is false only for the canary of the crash tests: records are then taken without their checksum.
pub(crate) fn recover(
    media: [&dyn Medium; 2],
    path: &Path,
    store: u64,
    applied: Seq,
    checked: bool,
    apply: &mut Apply<'_>,
) -> Result<Recovered, Error> {
    let failed = |source: io::Error| Error::Io { doing: "read the log of", path: path.to_owned(), source };
    let mut recovered = Recovered { newest: applied, ..Recovered::default() };
    let mut order = Vec::with_capacity(media.len());
    for (file, medium) in media.iter().enumerate() {
        if let Some(first) = read_header(*medium, 0, store).map_err(failed)?? {
            order.push((first.epoch, file));
        }
    }
    order.sort_unstable();
    for (epoch, file) in order {
        (recovered.newest_epoch, recovered.newest_file) = (epoch, file);
        let mut offset = 0;
        let mut before: Option<Header> = None;
        while let Some(header) = read_header(media[file], offset, store).map_err(failed)?? {
            if !follows(before.as_ref(), &header) {
                break;
            }
            let Some(payload) = read_payload(media[file], offset, &header, checked).map_err(failed)? else { break };
            if header.last > recovered.newest {
                if header.first.0 > recovered.newest.0.saturating_add(1) {
                    return Err(Error::Corrupt(format!(
                        "the log lacks the commits between {} and {}",
                        recovered.newest.0, header.first.0
                    )));
                }
                apply(&decode_changes(&payload, header.count)?, header.last)?;
                recovered.newest = header.last;
                recovered.records += 1;
            }
            offset += header.record_bytes().next_multiple_of(BLOCK as u64);
            before = Some(header);
        }
    }
    for medium in media {
        if let Some(durable) = find_beyond(medium, store, recovered.newest).map_err(failed)? {
            return Err(Error::Corrupt(format!(
                "the log is readable up to commit {} only, but commit {} was durable",
                recovered.newest.0, durable.0
            )));
        }
    }
    Ok(recovered)
}

/// What was durable beyond `newest` says some whole record, wherever it is.
fn find_beyond(medium: &dyn Medium, store: u64, newest: Seq) -> io::Result<Option<Seq>> {
    let len = medium.len()?;
    let mut bytes = vec![0; LOOK_BYTES.min(len as usize)];
    let mut start = 0;
    while start < len {
        let n = bytes.len().min((len - start) as usize);
        let piece = bytes.get_mut(..n).unwrap_or_default();
        if !read_exact_at(medium, piece, start)? {
            return Ok(None);
        }
        for (at, block) in piece.chunks(BLOCK).enumerate() {
            let Decoded::Header(header) = Header::decode(block) else { continue };
            let offset = start + (at * BLOCK) as u64;
            if header.store == store
                && header.durable > newest
                && read_payload(medium, offset, &header, true)?.is_some()
            {
                return Ok(Some(header.durable));
            }
        }
        start += n as u64;
    }
    Ok(None)
}

fn follows(before: Option<&Header>, next: &Header) -> bool {
    match before {
        None => next.index == 0,
        Some(before) => {
            next.epoch == before.epoch
                && next.salt == before.salt
                && Some(next.index) == before.index.checked_add(1)
                && Some(next.first.0) == before.last.0.checked_add(1)
        }
    }
}

/// The header at `offset`; none when there is no whole one. The outer error is the medium's.
fn read_header(medium: &dyn Medium, offset: u64, store: u64) -> io::Result<Result<Option<Header>, Error>> {
    let mut bytes = [0; HEADER_BYTES];
    if !read_exact_at(medium, &mut bytes, offset)? {
        return Ok(Ok(None));
    }
    Ok(match Header::decode(&bytes) {
        Decoded::Nothing => Ok(None),
        Decoded::Newer(found) => Err(Error::Newer { found, known: 1 }),
        Decoded::Header(header) if header.store != store => {
            Err(Error::Corrupt("the log belongs to another catalog".to_owned()))
        }
        Decoded::Header(header) => Ok(Some(header)),
    })
}

/// The changes after a header; none when they are not whole.
fn read_payload(medium: &dyn Medium, offset: u64, header: &Header, checked: bool) -> io::Result<Option<Vec<u8>>> {
    if offset.saturating_add(header.record_bytes()) > medium.len()? {
        return Ok(None);
    }
    let mut payload = vec![0; header.payload_bytes as usize];
    if !read_exact_at(medium, &mut payload, offset + HEADER_BYTES as u64)? {
        return Ok(None);
    }
    Ok((!checked || crc32fast::hash(&payload) == header.payload_sum).then_some(payload))
}
