//! The headers of the store's API.

use xxhash_rust::xxh3::xxh3_64;

/// The right to do this.
pub const CAPABILITY_HEADER: &str = "x-ullage-capability";
/// Vouchers, separated by commas.
pub const VOUCHER_HEADER: &str = "x-ullage-voucher";
/// Which wallet, 16 hexadecimal digits.
pub const CLIENT_HEADER: &str = "x-ullage-client";
/// The wallet's number of the request.
pub const OP_HEADER: &str = "x-ullage-op";
/// The wallet's first request that is not settled: of all before it, it knows the outcome, and repeats none.
pub const SETTLED_HEADER: &str = "x-ullage-settled";
/// `xxh3=` and 16 hexadecimal digits over the body.
pub const CHECKSUM_HEADER: &str = "x-ullage-checksum";

/// The checksum header of a body.
pub fn checksum(body: &[u8]) -> String {
    format!("xxh3={:016x}", xxh3_64(body))
}
