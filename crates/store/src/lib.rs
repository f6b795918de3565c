//! The storage server and its client: chunks over HTTP, paid for with vouchers.

#![deny(missing_docs)]

pub mod chunk;
pub mod client;
mod fuzz;
pub mod headers;
pub mod server;
pub mod wire;

pub use fuzz::fuzz_decode;
