//! Spaces in the kernel's list of mounts.

use crate::Result;
use crate::error::io_error;
use std::path::Path;
use ullage_fuse::{Listed, list_mounts};

/// All mounts as a process sees them, this one when none is named.
pub(crate) fn list(process: Option<u32>) -> Result<Vec<Listed>> {
    list_mounts(process).map_err(io_error("read", "the kernel's list of mounts"))
}

/// Whether a space is mounted there, as its daemon sees it: that may be in a container.
pub(crate) fn is_space(point: &Path, daemon: Option<u32>) -> Result<bool> {
    let mounts = list(daemon).or_else(|_| list(None))?;
    Ok(mounts.iter().any(|mount| mount.may_be_a_space() && mount.point == point))
}
