//! What is at a mount point before we mount on it.

use super::mounts;
use crate::error::io_error;
use crate::settings::places::missing;
use crate::{Answer, Client, Error, Request, Result, State, quoted};
use rustix::fs::{Access, AtFlags, CWD, FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a daemon is given to end that does not answer or has lost its mount.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long another start that is about to mount there is waited for.
const TURN_PATIENCE: Duration = Duration::from_secs(5);

/// Makes a mount point ready: creates it, clears what a killed daemon left, refuses what is in use. The directories that it made, the innermost
/// first.
pub(crate) fn prepare(mountpoint: &Path, state: &State) -> Result<Vec<PathBuf>> {
    refuse_served(mountpoint, state)?;
    if clear_dead(mountpoint)? {
        return prepare(mountpoint, state);
    }
    match std::fs::metadata(mountpoint) {
        Ok(meta) if meta.is_dir() => {}
        Ok(_) => return Err(Error::Refused(format!("{} is not a directory", mountpoint.display()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let missing = missing(mountpoint);
            std::fs::create_dir_all(mountpoint).map_err(io_error("create", mountpoint))?;
            return Ok(missing);
        }
        Err(error) => return Err(io_error("look at", mountpoint)(error)),
    }
    match mounts::state_at(mountpoint)? {
        // Another start has mounted it just now, and has it locked. Else it is of a state that lay there before.
        Some(own) if own == state.dir() && state.is_in_use() => return Ok(Vec::new()),
        Some(_) => return Err(taken(mountpoint)),
        None => {}
    }
    // The helper that mounts for ordinary users refuses such, when all is made.
    if !rustix::process::geteuid().is_root()
        && rustix::fs::accessat(CWD, mountpoint, Access::WRITE_OK, AtFlags::EACCESS).is_err()
    {
        return Err(Error::Refused(format!(
            "{} is not yours to write in, and so not to mount on; mount on a directory of your own",
            mountpoint.display()
        )));
    }
    let mut entries = std::fs::read_dir(mountpoint).map_err(io_error("list", mountpoint))?;
    if entries.next().transpose().map_err(io_error("list", mountpoint))?.is_some() {
        return Err(Error::Refused(format!(
            "{} is not empty, and what is in it would be hidden; mount elsewhere, or empty it",
            mountpoint.display()
        )));
    }
    Ok(Vec::new())
}

fn taken(mountpoint: &Path) -> Error {
    Error::Refused(format!(
        "another space is mounted at {0}; `ullage down {1}` ends it, or mount elsewhere",
        mountpoint.display(),
        quoted(mountpoint)
    ))
}

/// Mounts where no space has been mounted since the place was made ready. What is opened here lies below what is mounted: so of several starts of
/// spaces one comes first.
pub(crate) fn alone<T>(mountpoint: &Path, mount: impl FnOnce() -> Result<T>) -> Result<T> {
    let below = File::open(mountpoint).map_err(io_error("open", mountpoint))?;
    let until = Instant::now() + TURN_PATIENCE;
    // Anybody who may read the directory can lock it, and some file systems lock nothing.
    while flock(&below, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    let mounted = if mounts::state_at(mountpoint)?.is_some() { Err(taken(mountpoint)) } else { mount() };
    // By name: the helper that mounts for ordinary users may have a copy.
    let _ = flock(&below, FlockOperation::Unlock);
    mounted
}

/// Refuses while a daemon serves this state. One that is just ending, since its mount was taken away or since it was killed, still
/// has its socket: it is waited for, and so is the end of its process, since until then it has the catalog and the pools locked.
fn refuse_served(mountpoint: &Path, state: &State) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    while let Some(mut client) = Client::connect(state)? {
        let process = client.process();
        client.patience(Some(PATIENCE));
        match client.ask(&Request::Status) {
            Ok(Answer::Status(status)) if mounts::is_space(state, &status.mountpoint, process)? => {
                return Err(Error::Refused(format!(
                    "the space of {} is up already, at {}; see `ullage status {}`",
                    state.dir().display(),
                    status.mountpoint.display(),
                    quoted(&status.mountpoint)
                )));
            }
            Ok(Answer::Status(status)) => refuse_bound(state, &status.state)?,
            Err(silent @ Error::Silent(_)) if mounts::is_space(state, mountpoint, process)? => return Err(silent),
            _ => {}
        }
        loop {
            if Instant::now() >= until {
                return Err(Error::Refused(format!(
                    "the space of {} was taken away, but its daemon{} has not ended: it still writes, or files are open; try \
                     again when it has",
                    state.dir().display(),
                    process.map_or_else(String::new, |pid| format!(", process {pid},"))
                )));
            }
            std::thread::sleep(Duration::from_millis(5));
            if process.is_none_or(has_ended) {
                break;
            }
        }
    }
    Ok(())
}

/// Refuses while a space that was taken away from its own mount point is still mounted elsewhere.
fn refuse_bound(state: &State, source: &Path) -> Result<()> {
    match mounts::mounts_of(state, source)?.first() {
        None => Ok(()),
        Some(point) => Err(Error::Refused(format!(
            "the space of {} was taken away from its mount point, but is still mounted at {}, and its daemon ends with that: \
             `umount {}`, then try again",
            state.dir().display(),
            point.display(),
            quoted(point)
        ))),
    }
}

/// Whether no thread of a process runs any more, though nobody may have waited for it yet.
pub fn has_ended(pid: u32) -> bool {
    let ended = |stat: String| stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']));
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.map(|thread| std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default()).all(ended)
}

/// What a mount says whose server is gone: not connected, or over io_uring that the request was aborted, or cancelled
/// while it was being handed over.
fn is_dead(errno: Errno) -> bool {
    matches!(errno, Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED)
}

/// Whether the server of what is mounted there is gone. Attributes and listings of a dead mount may still be in the kernel's memory;
/// this is asked of its server each time.
pub(crate) fn is_dead_at(mountpoint: &Path) -> bool {
    rustix::fs::statfs(mountpoint).is_err_and(is_dead)
}

/// Takes the mount away whose server is gone; whether there was one.
///
/// # Errors
/// When it cannot be unmounted, by this user for example.
pub fn clear_dead(mountpoint: &Path) -> Result<bool> {
    if !is_dead_at(mountpoint) {
        return Ok(false);
    }
    tracing::info!("clearing the dead mount at {}", mountpoint.display());
    detach(mountpoint)?;
    Ok(true)
}

/// Takes a mount out of the tree without its daemon.
///
/// # Errors
/// When it cannot be unmounted, by this user for example.
pub fn detach(mountpoint: &Path) -> Result<()> {
    ullage_fuse::unmount_at(mountpoint, true).map_err(io_error("unmount", mountpoint))
}
