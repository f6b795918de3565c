//! From a mount point to a mount that is served.

pub(crate) mod flags;
pub(crate) mod mount;
pub(crate) mod mountable;
pub(crate) mod mountpoint;
pub(crate) mod mounts;
pub(crate) mod within;
