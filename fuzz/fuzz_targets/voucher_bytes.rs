//! Vouchers and messages on whatever the fuzzer invents: `cargo fuzz run voucher_bytes`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ullage_voucher::message::{BankToClient, BankToStore, ClientToBank, StoreToBank, StoreToClient};
use ullage_voucher::{Piece, decode_header, encode_header};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(piece) = Piece::decode(bytes) {
        assert_eq!(piece.encode().as_slice(), bytes, "a piece has one form");
    }
    if let Ok(pieces) = decode_header(bytes) {
        assert_eq!(decode_header(encode_header(&pieces).as_bytes()), Ok(pieces), "a header survives");
    }
    fn json<T: serde::de::DeserializeOwned + serde::Serialize + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
        if let Ok(message) = serde_json::from_slice::<T>(bytes) {
            let again = serde_json::to_vec(&message).expect("what was read can be written");
            assert_eq!(serde_json::from_slice::<T>(&again).expect("and read again"), message);
        }
    }
    json::<StoreToBank>(bytes);
    json::<ClientToBank>(bytes);
    json::<BankToClient>(bytes);
    json::<BankToStore>(bytes);
    json::<StoreToClient>(bytes);
});
