//! Chunk headers, journal records, manifests and answers: `cargo fuzz run store_bytes`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    ullage_store::fuzz_decode(bytes);
});
