//! The headers of the store's API.

use hyper::header::HeaderName;
use xxhash_rust::xxh3::xxh3_64;

/// The right to do this.
pub static CAPABILITY_HEADER: HeaderName = HeaderName::from_static("x-ullage-capability");
/// Which store is meant, by number: another one refuses.
pub static STORE_HEADER: HeaderName = HeaderName::from_static("x-ullage-store");
/// Vouchers, separated by commas.
pub static VOUCHER_HEADER: HeaderName = HeaderName::from_static("x-ullage-voucher");
/// Which wallet, 16 hexadecimal digits.
pub static CLIENT_HEADER: HeaderName = HeaderName::from_static("x-ullage-client");
/// The wallet's number of the request.
pub static OP_HEADER: HeaderName = HeaderName::from_static("x-ullage-op");
/// The wallet's first request that is not settled: of all before it, it knows the outcome, and repeats none.
pub static SETTLED_HEADER: HeaderName = HeaderName::from_static("x-ullage-settled");
/// `xxh3=` and 16 hexadecimal digits over the body.
pub static CHECKSUM_HEADER: HeaderName = HeaderName::from_static("x-ullage-checksum");
/// Which change made the chunk what was read.
pub static GENERATION_HEADER: HeaderName = HeaderName::from_static("x-ullage-generation");

/// The checksum header of a body.
pub fn checksum(body: &[u8]) -> String {
    format!("xxh3={:016x}", xxh3_64(body))
}
