//! The saved states of bank and store, damaged in every way: `cargo fuzz run voucher_rows`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use ullage_bank::rows::decode_rows;
use ullage_voucher::bank::{BankConfig, BankCore, BankOutput};
use ullage_voucher::store::{StoreConfig, StoreCore};
use ullage_voucher::{Incarnation, KeyId, Keyring, Node, Params};

fuzz_target!(|bytes: &[u8]| {
    let Ok(rows) = decode_rows(bytes) else { return };
    let rows = || rows.iter().map(|(key, value)| (key.as_slice(), value.as_slice()));
    let keys = Arc::new(Keyring::with_root(KeyId(3), [9; 32]));
    let config = BankConfig::new(Node(1), Params::default());
    let _ = BankCore::load(config, keys.clone(), Incarnation(1), rows(), &mut BankOutput::default());
    let _ = StoreCore::load(StoreConfig::new(Node(5), Params::default()), keys, 1, rows());
});
