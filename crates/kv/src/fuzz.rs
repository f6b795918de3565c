//! Every decoder of stored bytes, for fuzzing.

use crate::log::{BLOCK, Medium, fuzz_changes, put_header_right, recover};
use crate::store::read_entries;
use crate::{Seq, Tail};
use std::io;
use std::path::Path;

/// Bytes of the input that make one block of a log.
const PIECE: usize = 256;

/// Decodes `bytes` as the log, as changes, as a snapshot and as a piece of the mirrored log. None may panic. Checksums
/// and compression are put right first: else nothing invented would get past them.
pub fn fuzz_decode(bytes: &[u8]) {
    fuzz_changes(bytes);
    let (left, right) = bytes.split_at(bytes.len() / 2);
    let logs = [log(left), log(right)];
    let _ = recover([&logs[0], &logs[1]], Path::new("fuzz"), 0, Seq(0), false, &mut |_, _| Ok(()));
    let Ok(packed) = zstd::bulk::compress(bytes, 1) else { return };
    for title in [b"ULLKVSN\x01", b"ULLKVTL\x01"] {
        let whole = [title.as_slice(), &packed].concat();
        let _ = read_entries(&mut whole.as_slice(), &mut |_, _| Ok(()));
        let _ = Tail::read_from(&mut whole.as_slice());
    }
    let _ = read_entries(&mut &*bytes, &mut |_, _| Ok(()));
    if let Ok(tail) = Tail::read_from(&mut &*bytes) {
        let mut again = Vec::new();
        assert!(tail.write_to(&mut again).is_ok(), "memory takes everything");
        let read = Tail::read_from(&mut again.as_slice());
        assert!(read.is_ok_and(|read| read.iter().eq(tail.iter())), "a tail survives");
    }
}

/// A log whose blocks begin with what was invented, as headers.
fn log(bytes: &[u8]) -> Bytes {
    let mut log = Vec::new();
    for piece in bytes.chunks(PIECE) {
        let at = log.len();
        log.extend_from_slice(piece);
        log.resize(at + BLOCK, 0);
        put_header_right(&mut log[at..]);
    }
    Bytes(log)
}

struct Bytes(Vec<u8>);

impl Medium for Bytes {
    fn write_at(&mut self, _bytes: &[u8], _offset: u64) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let from = self.0.get(offset as usize..).unwrap_or_default();
        let n = from.len().min(into.len());
        into[..n].copy_from_slice(&from[..n]);
        Ok(n)
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn decoders_take_anything(bytes in prop::collection::vec(any::<u8>(), 0..2048)) {
            fuzz_decode(&bytes);
        }
    }

    /// Numbers of a damaged header were counted on from.
    #[test]
    fn the_last_commit_of_a_header_may_be_the_greatest_number() {
        let mut bytes = vec![0; 2 * 2 * PIECE];
        bytes[48..56].fill(0xff);
        fuzz_decode(&bytes);
    }
}
