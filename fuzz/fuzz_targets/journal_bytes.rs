//! Journal segments: `cargo fuzz run journal_bytes`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ullage_journal::frame::{decode, durable_after, encode};

fuzz_target!(|bytes: &[u8]| {
    let mut at = 0;
    while let Some(frame) = decode(bytes, 1, at) {
        assert!(frame.next > at && frame.next <= bytes.len());
        at = frame.next;
    }
    let _ = durable_after(bytes, 1, at);
    // A record written after whatever this is can be read in its place, and in no other.
    let mut segment = bytes.to_vec();
    let offset = segment.len();
    encode(&mut segment, 1, offset as u64, 7, bytes);
    let frame = decode(&segment, 1, offset).expect("a whole record is read");
    assert_eq!((frame.payload, frame.durable, frame.next), (bytes, 7, segment.len()));
    assert!(decode(&segment, 2, offset).is_none());
});
