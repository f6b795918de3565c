//! Ids, units and small value types shared by all of ullage. No I/O, no clock.

#![deny(missing_docs)]

mod bytes;
mod charge;
mod class;
mod ids;
mod kind;
mod timestamp;

pub use bytes::{Bytes, ParseBytesError};
pub use charge::{ByClass, Charge};
pub use class::Class;
pub use ids::{FileId, Generation, NodeId, PoolId, ROOT};
pub use kind::Kind;
pub use timestamp::Timestamp;
