//! The chunk store: named chunks in a directory, each written atomically, durably and under checksums, each charged
//! for what the file system really allocated.
//!
//! # In the directory
//! `chunks/XX/NAME` one file per chunk ([`header`]); `new/` files not yet in place; `journal/` the log of every change
//! (`record`); `lost/` files found that nobody accounts for (never deleted by the store).
//!
//! # Rules
//! - A change is committed by its journal record and by nothing else; it is applied to the chunk only afterwards, and
//!   redone from the record after a crash. So an operation happened wholly or not at all, together with its payment.
//! - A chunk larger than [`store::INLINE_MAX_BYTES`] is written and flushed as a new file and renamed; smaller changes travel
//!   in the journal, whose one flush makes them durable, and reach the disk before the next snapshot (`syncfs`).
//! - Every byte served was checked against its block's checksum; damaged bytes are never served.

mod directory;
mod error;
mod expected;
mod file;
pub mod header;
mod index;
mod ledger;
mod name;
mod patch;
mod probe;
mod record;
mod recover;
mod replace;
mod store;

pub use error::OpError;
pub use expected::Expected;
pub use header::CHUNK_MAX_BYTES;
pub use index::{Access, CHARGED_MAX, Charge, ChunkInfo};
pub use ledger::{Ledger, Posting};
pub use name::{ChunkName, NAME_MAX_BYTES, NameError};
pub(crate) use record::fuzz_record;
pub use recover::Recount;
pub use store::{ChunkStore, Done, INLINE_MAX_BYTES, Options};
