//! Spaces in the kernel's list of mounts.

use super::mountpoint::is_dead_at;
use crate::error::io_error;
use crate::settings::config::{anew, read_small};
use crate::{Result, State};
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use ullage_fuse::{Listed, list_mounts};

/// All mounts as a process sees them, this one when none is named.
pub(crate) fn list(process: Option<u32>) -> Result<Vec<Listed>> {
    list_mounts(process).map_err(io_error("read", "the kernel's list of mounts"))
}

/// Writes down which device a space is mounted as: its source is a path, and where that leads may change.
pub(crate) fn note_device(state: &State, device: Option<(u32, u32)>) {
    let path = state.device_path();
    let Some((major, minor)) = device else { return forget_device(state) };
    // Others ask the daemon, too, and find it so.
    let write = || -> std::io::Result<()> {
        let mut file = anew(&path)?;
        file.write_all(format!("{major}:{minor}\n").as_bytes())?;
        file.set_permissions(Permissions::from_mode(0o644))
    };
    if let Err(error) = write() {
        tracing::info!("{} cannot be written: {error}", path.display());
        forget_device(state);
    }
}

fn forget_device(state: &State) {
    let _ = std::fs::remove_file(state.device_path());
}

/// None where nobody wrote it down.
fn noted_device(state: &State) -> Option<(u32, u32)> {
    let text = read_small(&state.device_path()).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Whether a mount may be of this state: anybody may mount something and say that it comes from there, and a state at the same path may be
/// another one by now.
pub(crate) fn is_of(mount: &Listed, state: &State) -> bool {
    if noted_device(state).is_some_and(|device| device != mount.device) {
        return false;
    }
    let owner = std::fs::symlink_metadata(state.settings_path()).ok().map(|settings| settings.uid());
    mount.owner.is_none_or(|by| by == 0 || owner.is_none_or(|owner| by == owner))
}

/// Where the space of this state is mounted, as this process sees it: a bind mount is one more place. Its mounts say that they come from `source`,
/// where the state was when they were made. What a daemon left that was killed, while the space is up elsewhere, is none.
pub fn mounts_of(state: &State, source: &Path) -> Result<Vec<PathBuf>> {
    Ok(points_of(state, source)?.into_iter().filter(|point| !is_dead_at(point)).collect())
}

/// The same without asking who serves them, which may be this process.
pub(crate) fn points_of(state: &State, source: &Path) -> Result<Vec<PathBuf>> {
    let of = |mount: &Listed| mount.may_be_a_space() && mount.source == source && is_of(mount, state);
    Ok(list(None)?.into_iter().filter(of).map(|mount| mount.point).collect())
}

/// The state of the space that is seen there, as its mount names it.
pub(crate) fn state_at(point: &Path) -> Result<Option<PathBuf>> {
    let device = ullage_fuse::mounted_at(point);
    let is = |mount: &Listed| mount.may_be_a_space() && mount.point == point && Some(mount.device) == device;
    Ok(list(None)?.into_iter().find(is).map(|mount| mount.source))
}

/// Whether the space of this state is mounted there, as its daemon sees it: that may be in a container.
pub(crate) fn is_space(state: &State, point: &Path, daemon: Option<u32>) -> Result<bool> {
    let mounts = list(daemon).or_else(|_| list(None))?;
    Ok(mounts.iter().any(|mount| mount.may_be_a_space() && mount.point == point && is_of(mount, state)))
}
