//! An append log with checksums, group commit and snapshots.
//!
//! A caller keeps its state in memory, appends every change as one opaque record and answers only when the record is
//! durable. Many callers share one flush (group commit). From time to time the state itself is written as a snapshot
//! and the records before it are dropped.
//!
//! # On disk
//! `segment-N` holds records, `snapshot-N` the state before the first record of segment `N`. Recovery reads the
//! newest snapshot and replays every record of the segments from `N` on. See [`frame`] for the bytes. A segment that is
//! being written may end with zeros, which are no records.
//!
//! # Invariants
//! - A record whose completion was reported is returned by every later [`Journal::open`], in order, exactly once.
//! - A torn tail (never reported) is cut off silently; damage *before* a position known to be durable is an error. A segment is
//!   flushed whole before the next one is made, so only the last can be torn.
//! - After a failed write or flush the journal is poisoned: nothing is reported durable any more.

#![deny(missing_docs)]

pub mod codec;
mod error;
pub mod frame;
mod journal;
mod options;
pub mod parts;
mod private;
mod recover;
mod reserve;
mod snapshot;
mod writer;

pub use error::JournalError;
pub use journal::{Journal, Pending};
pub use options::{Durability, Options};
pub use private::private_directory;
pub use recover::Recovered;
pub use writer::Rotation;
