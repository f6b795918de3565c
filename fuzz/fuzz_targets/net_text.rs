//! Tokens, keys in hexadecimal, configuration files: `cargo fuzz run net_text`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ullage_net::keyfile::{from_hex, to_hex};
use ullage_net::token::Bearer;
use ullage_sim::study::AdvicePlan;
use ullage_store::client::ClientConfig;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    assert!(Bearer::verify(&[7; 32], text, 0).is_err(), "nobody has the key");
    if let Some(key) = from_hex::<32>(text) {
        assert_eq!(to_hex(&key), text.to_ascii_lowercase());
    }
    let _ = toml::from_str::<ClientConfig>(text);
    let _ = AdvicePlan::parse(text);
});
