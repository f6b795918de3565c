//! The bank server: a thin shell around the voucher core.
//!
//! The core ([`ullage_voucher::bank`]) is plain state and decides everything; this crate authenticates, makes its writes
//! durable before anything leaves ([`engine`]), and answers over HTTP ([`server`]). Users are spread over shards; each
//! shard has a core, an engine and, on etcd, a leader of its own.

#![deny(missing_docs)]

mod answers;
mod awaited;
#[cfg(feature = "etcd")]
mod balance;
pub mod capability;
pub mod client;
pub mod config;
pub mod engine;
mod history;
pub mod identity;
mod lead;
mod live;
mod mail;
mod member;
mod owed;
pub mod rebuild;
mod routes;
pub mod rows;
pub mod server;
mod shards;
pub mod wire;

pub use config::BankSettings;
pub use server::{Bank, BankError};
