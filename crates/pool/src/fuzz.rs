//! Every decoder of stored bytes, for fuzzing.

use crate::Locator;
use crate::dir::{Uuid, fuzz_marker, name, record::Record};

/// Decodes `bytes` as the attribute of a backing file, as a marker, as a name and as a locator. None may panic, and what is
/// read must be written again as the same bytes.
pub fn fuzz_decode(bytes: &[u8]) {
    let mut whole = bytes.to_vec();
    if let Some((body, sum)) = whole.split_last_chunk_mut::<4>() {
        // Nothing invented would have the right sum.
        *sum = crc32fast::hash(body).to_le_bytes();
    }
    for bytes in [bytes, &whole] {
        if let Some(record) = Record::decode(bytes) {
            assert_eq!(Record::decode(&record.encode()), Some(record), "a record survives");
        }
    }
    let locator = Locator(bytes.into());
    if let Some((leaf, name)) = name::split(&locator) {
        let outside =
            leaf.starts_with('/') || leaf.split('/').chain([name]).any(|part| part == ".." || part.is_empty());
        assert!(!outside, "a locator stays in its pool");
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some((file, generation)) = name::parse(text) {
        assert_eq!(name::of(file, generation), text, "a name has one form");
    }
    if let Some(uuid) = Uuid::parse(text) {
        assert_eq!(Uuid::parse(&uuid.to_string()), Some(uuid));
    }
    fuzz_marker(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn decoders_take_anything(bytes in prop::collection::vec(any::<u8>(), 0..64), path in "[a-f0-9./]{0,20}") {
            fuzz_decode(&bytes);
            fuzz_decode(path.as_bytes());
        }
    }
}
