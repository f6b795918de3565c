//! Settings, pools of the command line, what commands and daemon say to each other: `cargo fuzz run space_text`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    ullage_daemon::fuzz_decode(bytes);
});
