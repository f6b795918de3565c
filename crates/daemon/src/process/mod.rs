//! What the process of a daemon inherits, and owes to whoever started it.

pub(crate) mod background;
pub(crate) mod holder;
pub(crate) mod notify;
pub(crate) mod owner;
pub(crate) mod panics;
pub(crate) mod rlimits;
pub(crate) mod signals;
