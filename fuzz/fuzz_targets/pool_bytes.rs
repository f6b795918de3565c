//! Attributes, names and markers of backing files; ACLs: `cargo fuzz run pool_bytes`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    ullage_pool::fuzz_decode(bytes);
    ullage_fs::fuzz_decode(bytes);
});
