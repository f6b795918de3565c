//! A space that is not mounted, looked through and put right: checked, repaired, rebuilt from its pools.

pub(crate) mod check;
pub(crate) mod facts;
pub(crate) mod rebuild;
pub(crate) mod saved;
