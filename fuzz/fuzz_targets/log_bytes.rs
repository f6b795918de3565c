//! The catalog's log, its snapshot and its mirror's pieces: `cargo fuzz run log_bytes`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    ullage_kv::fuzz_decode(bytes);
});
