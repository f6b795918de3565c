//! The file system proper: one operation per file, handles, views, the errno table. Knows no FUSE type.

#![deny(missing_docs)]

mod above;
mod acl;
mod answering;
mod api;
mod aside;
mod attributes;
mod away;
mod brake;
mod clock;
mod cursor;
mod departing;
mod errno;
mod fence;
mod filesystem;
mod fuzz;
mod given;
mod grant;
mod headroom;
mod holes;
mod hurry;
mod late;
mod leaving;
mod lend;
mod limit;
mod loads;
mod mark;
mod moves;
mod node;
mod one_block;
mod open_file;
mod ops;
mod patience;
mod placing;
mod pools;
mod prepared;
mod privileges;
mod reaper;
mod recover;
mod refresh;
mod replaced;
mod reserve;
mod room;
mod settle;
mod solid;
mod space;
mod splits;
mod sys;
#[cfg(test)]
mod test_kernel;
mod threads;
mod trees;
mod turns;
mod vacancy;
mod waiting;

pub use api::*;
pub use clock::now;
pub use fuzz::fuzz_decode;
pub use hurry::{hurried, irreplaceable};
pub use limit::LimitError;
pub use pools::{PoolMember, Pools};
pub use recover::Recovered;
pub use reserve::without_reserve;
pub use space::{Space, SpaceOptions};
pub use threads::be_ordinary;
