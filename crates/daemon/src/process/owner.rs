//! Root looks at a space of an ordinary user's as that user: what is opened there is written too (a log is replayed, a lock taken), which
//! its user could not read any more if it were root's; and where names in it lead is for that user to say.

use crate::error::io_error;
use crate::{Result, State};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};
use std::os::unix::fs::MetadataExt;
use std::process::Command;

/// Has this thread, and all that it starts, go on as the owner of a space, for good, where that is an ordinary user and this is root.
pub(crate) fn go_on_as_owner_of(state: &State) -> Result<()> {
    let Ok(settings) = std::fs::symlink_metadata(state.settings_path()) else { return Ok(()) };
    if settings.uid() == 0 || !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let group = Gid::from_raw(settings.gid());
    let go_on = || -> std::io::Result<()> {
        set_thread_groups(&groups_of(settings.uid()).unwrap_or_else(|| vec![group]))?;
        set_thread_gid(group)?;
        Ok(set_thread_uid(Uid::from_raw(settings.uid()))?)
    };
    go_on().map_err(io_error("go on as the owner of", state.dir()))
}

/// The groups of a user, by one of which a pool may be reached. None where the system does not know the user.
fn groups_of(uid: u32) -> Option<Vec<Gid>> {
    let told = Command::new("id").args(["-G", &uid.to_string()]).output().ok().filter(|told| told.status.success())?;
    let text = String::from_utf8(told.stdout).ok()?;
    text.split_whitespace().map(|group| group.parse().ok().map(Gid::from_raw)).collect()
}
