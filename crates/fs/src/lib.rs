//! The file system proper: one operation per file, handles, views, the errno table. Knows no FUSE type.

#![deny(missing_docs)]

mod acl;
mod api;
mod aside;
mod attributes;
mod clock;
mod cursor;
mod ending;
mod errno;
mod filesystem;
mod fuzz;
mod headroom;
mod hurry;
mod lazy;
mod listings;
mod lost;
mod node;
mod open_file;
mod ops;
mod pools;
mod privileges;
mod proof;
mod recover;
mod replaced;
mod shown;
mod space;
mod sys;
#[cfg(test)]
mod test_kernel;
#[cfg(test)]
mod test_listing;
mod threads;
mod top;
mod trees;
mod turns;
mod unlisted;

pub use api::*;
pub use clock::now;
pub use fuzz::fuzz_decode;
pub use headroom::limit::LimitError;
pub use hurry::{WaitsFor, hurried, irreplaceable, waits_for};
pub use pools::drain::Drained;
pub use pools::reserve::without_reserve;
pub use pools::{PoolMember, Pools};
pub use privileges::keeps_set_id;
pub use recover::Recovered;
pub use space::{Space, SpaceOptions};
pub use sys::page_size;
pub use threads::be_ordinary;
