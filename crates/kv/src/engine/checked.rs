//! Values with a checksum of key and value before them, so that neither a flipped bit nor a value under a
//! wrong key is ever taken for what was written.

use crate::Error;

/// Bytes of the checksum.
const SUM_BYTES: usize = 4;

fn sum(key: &[u8], value: &[u8]) -> [u8; SUM_BYTES] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&(key.len() as u32).to_le_bytes());
    hasher.update(key);
    hasher.update(value);
    hasher.finalize().to_le_bytes()
}

/// What is stored for `value` under `key`.
pub(super) fn seal(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut sealed = Vec::with_capacity(SUM_BYTES + value.len());
    sealed.extend_from_slice(&sum(key, value));
    sealed.extend_from_slice(value);
    sealed
}

/// The value in what was stored under `key`.
pub(super) fn open<'a>(key: &[u8], sealed: &'a [u8]) -> Result<&'a [u8], Error> {
    match sealed.split_first_chunk::<SUM_BYTES>() {
        Some((found, value)) if *found == sum(key, value) => Ok(value),
        _ => Err(Error::Corrupt(format!("the record of key {} fails its checksum", Hex(key)))),
    }
}

/// Shows a key.
struct Hex<'a>(&'a [u8]);

impl std::fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_and_a_swapped_key_are_found() {
        let sealed = seal(b"key", b"value");
        assert_eq!(open(b"key", &sealed).unwrap(), b"value");
        for bit in 0..sealed.len() * 8 {
            let mut bad = sealed.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(open(b"key", &bad), Err(Error::Corrupt(_))), "bit {bit}");
        }
        assert!(matches!(open(b"other", &sealed), Err(Error::Corrupt(_))));
        assert!(matches!(open(b"key", b""), Err(Error::Corrupt(_))));
    }
}
