//! Durable state as rows: kept in memory beside the core, changed by journal records, written whole as a snapshot.

use std::collections::BTreeMap;
use ullage_journal::codec::{DecodeError, Decoder, Encoder};
use ullage_voucher::{RowBytes, Write};

/// All rows.
pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Writes as one record.
pub fn encode_writes(writes: &[Write]) -> Vec<u8> {
    let mut out = Encoder::new();
    for write in writes {
        encode_write(&mut out, &[], write);
    }
    out.finish()
}

/// Adds a write to a record, `prefix` before its key.
pub fn encode_write(out: &mut Encoder, prefix: &[u8], write: &Write) {
    out.u8(u8::from(write.value.is_some())).bytes_of(&[prefix, &write.key]);
    if let Some(value) = &write.value {
        out.bytes(value);
    }
}

/// Back from [`encode_writes`].
///
/// # Errors
/// When the bytes are something else.
pub fn decode_writes(bytes: &[u8]) -> Result<Vec<Write>, DecodeError> {
    let mut from = Decoder::new(bytes);
    let mut writes = Vec::new();
    while !from.is_empty() {
        let has_value = from.u8()? == 1;
        let key = RowBytes::from_slice(from.bytes()?);
        let value = if has_value { Some(RowBytes::from_slice(from.bytes()?)) } else { None };
        writes.push(Write { key, value });
    }
    Ok(writes)
}

/// Changes the rows.
pub fn apply(rows: &mut Rows, writes: &[Write]) {
    for write in writes {
        write.apply(rows);
    }
}

/// All rows as one snapshot.
pub fn encode_rows(rows: &Rows) -> Vec<u8> {
    let mut out = Encoder::new();
    for (key, value) in rows {
        out.u8(1).bytes(key).bytes(value);
    }
    out.finish()
}

/// Back from [`encode_rows`].
///
/// # Errors
/// When the bytes are something else.
pub fn decode_rows(bytes: &[u8]) -> Result<Rows, DecodeError> {
    let mut rows = Rows::new();
    apply(&mut rows, &decode_writes(bytes)?);
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn writes_come_back(pairs in prop::collection::vec((any::<Vec<u8>>(), any::<Option<Vec<u8>>>()), 0..20)) {
            let write = |(key, value): (Vec<u8>, Option<Vec<u8>>)| Write { key: key.into(), value: value.map(Into::into) };
            let writes: Vec<Write> = pairs.into_iter().map(write).collect();
            prop_assert_eq!(decode_writes(&encode_writes(&writes)).unwrap(), writes);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in any::<Vec<u8>>()) {
            let _ = decode_rows(&bytes);
        }
    }
}
