//! The journal's records: one change of one chunk, or of the ledger alone.

use super::index::ChunkInfo;
use super::name::ChunkName;
use ullage_journal::codec::{DecodeError, Decoder, Encoder};

/// Where the bytes of a whole chunk are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// In the file `new/ID`, flushed.
    File(u64),
    /// In the record: header body, data.
    Inline(Vec<u8>, Vec<u8>),
}

/// One change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// The chunk becomes this.
    Replace { name: ChunkName, info: ChunkInfo, source: Source, note: Vec<u8> },
    /// Bytes at an offset change; the header becomes this.
    Patch { name: ChunkName, info: ChunkInfo, header: Vec<u8>, offset: u64, data: Vec<u8>, note: Vec<u8> },
    /// The chunk goes.
    Delete { name: ChunkName, generation: u64, note: Vec<u8> },
    /// A recount found other charges; a chunk without any is gone.
    Correct { name: ChunkName, info: Option<ChunkInfo>, note: Vec<u8> },
    /// The ledger alone.
    Note(Vec<u8>),
}

impl Record {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::new();
        match self {
            Self::Replace { name, info, source: Source::File(id), note } => {
                out.u8(1).text(name.as_str());
                info.encode(&mut out);
                out.u64(*id).bytes(note);
            }
            Self::Replace { name, info, source: Source::Inline(header, data), note } => {
                out.u8(2).text(name.as_str());
                info.encode(&mut out);
                out.bytes(header).bytes(data).bytes(note);
            }
            Self::Patch { name, info, header, offset, data, note } => {
                out.u8(3).text(name.as_str());
                info.encode(&mut out);
                out.bytes(header).u64(*offset).bytes(data).bytes(note);
            }
            Self::Delete { name, generation, note } => {
                out.u8(4).text(name.as_str()).u64(*generation).bytes(note);
            }
            Self::Correct { name, info, note } => {
                out.u8(5).text(name.as_str()).u8(u8::from(info.is_some()));
                if let Some(info) = info {
                    info.encode(&mut out);
                }
                out.bytes(note);
            }
            Self::Note(note) => {
                out.u8(6).bytes(note);
            }
        }
        out.finish()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Decoder::new(bytes);
        let kind = from.u8()?;
        if kind == 6 {
            let note = from.bytes()?.to_vec();
            from.end()?;
            return Ok(Self::Note(note));
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
                source: Source::Inline(from.bytes()?.to_vec(), from.bytes()?.to_vec()),
                note: from.bytes()?.to_vec(),
            },
            3 => Self::Patch {
                name,
                info: ChunkInfo::decode(&mut from)?,
                header: from.bytes()?.to_vec(),
                offset: from.u64()?,
                data: from.bytes()?.to_vec(),
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
