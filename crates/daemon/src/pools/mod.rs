//! Pools that come to a space, leave it, and say how they serve it.

pub(crate) mod add;
pub(crate) mod bring_back;
pub(crate) mod changes;
pub(crate) mod drain;
pub(crate) mod remove;
pub(crate) mod ways;
