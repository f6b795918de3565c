//! The journal's records: one change of one chunk, or of the ledger alone.

use super::index::ChunkInfo;
use super::name::ChunkName;
use std::borrow::Cow;
use ullage_journal::codec::{DecodeError, Decoder, Encoder};
use ullage_journal::parts::{self, PART_BYTES, Part};

/// Where the bytes of a whole chunk are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Source<'a> {
    /// In the file `new/ID`, flushed.
    File(u64),
    /// In the record: header body, data.
    Inline(Vec<u8>, Cow<'a, [u8]>),
}

/// One change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    /// The chunk becomes this.
    Replace { name: ChunkName, info: ChunkInfo, source: Source<'a>, note: Vec<u8> },
    /// Bytes at an offset change; the header becomes this.
    Patch { name: ChunkName, info: ChunkInfo, header: Vec<u8>, offset: u64, data: Cow<'a, [u8]>, note: Vec<u8> },
    /// The chunk goes.
    Delete { name: ChunkName, generation: u64, note: Vec<u8> },
    /// A recount found other charges; a chunk without any is gone.
    Correct { name: ChunkName, info: Option<ChunkInfo>, note: Vec<u8> },
    /// The ledger alone.
    Note(Vec<u8>),
    /// A part of what the ledger alone changes, where that is more than a record holds. It counts once the last is there.
    NotePart(Part, Vec<u8>),
}

/// The records of a note, the last of which makes all of them count.
pub(crate) fn note_records(note: Vec<u8>) -> Vec<Record<'static>> {
    if note.len() <= PART_BYTES {
        return vec![Record::Note(note)];
    }
    parts::split(&note).map(|(part, bytes)| Record::NotePart(part, bytes.to_vec())).collect()
}

impl<'a> Record<'a> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = self.encode_change();
        match self {
            Self::Replace { note, .. }
            | Self::Patch { note, .. }
            | Self::Delete { note, .. }
            | Self::Correct { note, .. }
            | Self::Note(note)
            | Self::NotePart(_, note) => out.bytes(note),
        };
        out.finish()
    }

    /// Whose change it is.
    pub(crate) fn chunk(&self) -> Option<&ChunkName> {
        match self {
            Self::Replace { name, .. }
            | Self::Patch { name, .. }
            | Self::Delete { name, .. }
            | Self::Correct { name, .. } => Some(name),
            Self::Note(_) | Self::NotePart(..) => None,
        }
    }

    /// All but the note, which comes last: it can be done before the lock under which the note is made.
    pub(crate) fn encode_change(&self) -> Encoder {
        let mut out = Encoder::with_capacity(self.length());
        match self {
            Self::Replace { name, info, source, .. } => {
                out.u8(if matches!(source, Source::File(_)) { 1 } else { 2 }).text(name.as_str());
                info.encode(&mut out);
                match source {
                    Source::File(id) => out.u64(*id),
                    Source::Inline(header, data) => out.bytes(header).bytes(data),
                };
            }
            Self::Patch { name, info, header, offset, data, .. } => {
                out.u8(3).text(name.as_str());
                info.encode(&mut out);
                out.bytes(header).u64(*offset).bytes(data);
            }
            Self::Delete { name, generation, .. } => {
                out.u8(4).text(name.as_str()).u64(*generation);
            }
            Self::Correct { name, info, .. } => {
                out.u8(5).text(name.as_str()).u8(u8::from(info.is_some()));
                if let Some(info) = info {
                    info.encode(&mut out);
                }
            }
            Self::Note(_) => {
                out.u8(6);
            }
            Self::NotePart(part, _) => {
                out.u8(match part {
                    Part::First => 7,
                    Part::Next => 8,
                    Part::Last => 9,
                });
            }
        }
        out
    }

    /// About how long it is encoded, its note included.
    fn length(&self) -> usize {
        const REST: usize = 1024;
        REST + match self {
            Self::Replace { source: Source::Inline(header, data), .. } | Self::Patch { header, data, .. } => {
                header.len() + data.len()
            }
            Self::Note(note) | Self::NotePart(_, note) => note.len(),
            _ => 0,
        }
    }

    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut from = Decoder::new(bytes);
        let kind = from.u8()?;
        let part = match kind {
            7 => Some(Part::First),
            8 => Some(Part::Next),
            9 => Some(Part::Last),
            _ => None,
        };
        if kind == 6 || part.is_some() {
            let note = from.bytes()?.to_vec();
            from.end()?;
            return Ok(match part {
                Some(part) => Self::NotePart(part, note),
                None => Self::Note(note),
            });
        }
        let name: ChunkName = from.text()?.parse().map_err(|_| DecodeError("has a bad name"))?;
        let record = match kind {
            1 => Self::Replace {
                name,
                info: ChunkInfo::decode(&mut from)?,
                source: Source::File(from.u64()?),
                note: from.bytes()?.to_vec(),
            },
            2 => Self::Replace {
                name,
                info: ChunkInfo::decode(&mut from)?,
                source: Source::Inline(from.bytes()?.to_vec(), Cow::Borrowed(from.bytes()?)),
                note: from.bytes()?.to_vec(),
            },
            3 => Self::Patch {
                name,
                info: ChunkInfo::decode(&mut from)?,
                header: from.bytes()?.to_vec(),
                offset: from.u64()?,
                data: Cow::Borrowed(from.bytes()?),
                note: from.bytes()?.to_vec(),
            },
            4 => Self::Delete { name, generation: from.u64()?, note: from.bytes()?.to_vec() },
            5 => {
                let info = if from.u8()? == 1 { Some(ChunkInfo::decode(&mut from)?) } else { None };
                Self::Correct { name, info, note: from.bytes()?.to_vec() }
            }
            _ => return Err(DecodeError("is of an unknown kind")),
        };
        from.end()?;
        Ok(record)
    }
}

/// Decodes a journal record; see [`crate::fuzz_decode`].
pub(crate) fn fuzz_record(bytes: &[u8]) {
    if let Ok(record) = Record::decode(bytes) {
        let again = record.encode();
        assert_eq!(Record::decode(&again).map(|record| record.encode()), Ok(again), "a record survives its encoding");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = Record::decode(&bytes);
        }
    }
}
