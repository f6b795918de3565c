//! The decoders of the catalog's records on whatever the fuzzer invents: `cargo fuzz run catalog_records`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    ullage_catalog::fuzz_decode(bytes);
});
