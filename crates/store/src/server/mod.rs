//! The storage server: chunks over HTTP/1.1, each allocating request paid for with vouchers in a header.
//!
//! The voucher core decides what is accepted; its writes and the change of the chunk are one journal record
//! ([`accounts`]). A background task carries its messages to the bank and the answers back (`link`).

pub mod accounts;
mod clock;
mod config;
mod explain;
mod housekeeping;
mod link;
mod note;
mod read;
mod request;
mod routes;
mod serve;

pub use config::StoreSettings;
pub use serve::{Meter, StoreError, StoreServer};
