//! The FUSE decoder on whatever the fuzzer invents: `cargo fuzz run fuse_decode`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    ullage_fuse::fuzz_decode(bytes, true);
    ullage_fuse::fuzz_decode(bytes, false);
});
