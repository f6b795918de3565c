//! Ordered key-value storage for the catalog: one trait, engines below it, and a write-behind store with a
//! log between the two, so that an operation costs no I/O and an fsync one flush.

#![deny(missing_docs)]

mod batch;
mod engine;
mod error;
mod fuzz;
mod held;
mod key;
mod key_range;
mod kv;
mod layer;
mod log;
mod merge;
mod store;

pub use batch::{Batch, Change};
pub use engine::{FjallEngine, FjallOptions, MemoryEngine};
pub use error::{Error, is_damage};
pub use fuzz::fuzz_decode;
pub use held::shown;
pub use kv::{Ahead, Cut, Engine, Kv, Room, Seq, Visit};
pub use log::{BLOCK, FileMedium, Medium};
pub use store::{Canary, Durable, EngineKind, Follow, Options, POISONED, Stats, Store, Tail};
