//! Pure decisions: where to place, how much to grant, what to reclaim, when.

#![deny(missing_docs)]

pub mod choose;
pub mod headroom;
pub mod place;
pub mod ready;
