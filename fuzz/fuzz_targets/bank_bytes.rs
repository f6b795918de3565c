//! What a bank reads from its journal and from its peers: `cargo fuzz run bank_bytes`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ullage_bank::capability::Capability;
use ullage_bank::engine::EtcdSettings;
use ullage_bank::rows::{decode_rows, decode_writes, encode_rows, encode_writes};
use ullage_bank::wire::{AccountChange, ClientAnswers, ClientBatch, StoreAnswers, StoreBatch};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(writes) = decode_writes(bytes) {
        assert_eq!(decode_writes(&encode_writes(&writes)).as_ref(), Ok(&writes), "writes survive");
    }
    if let Ok(rows) = decode_rows(bytes) {
        assert_eq!(decode_rows(&encode_rows(&rows)).as_ref(), Ok(&rows), "rows survive");
    }
    let _ = serde_json::from_slice::<ClientBatch>(bytes);
    let _ = serde_json::from_slice::<ClientAnswers>(bytes);
    let _ = serde_json::from_slice::<StoreBatch>(bytes);
    let _ = serde_json::from_slice::<StoreAnswers>(bytes);
    let _ = serde_json::from_slice::<AccountChange>(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        assert!(Capability::verify(&[7; 32], text, 0).is_err(), "nobody has the key");
        let _ = EtcdSettings::parse(text, "127.0.0.1:1");
    }
});
