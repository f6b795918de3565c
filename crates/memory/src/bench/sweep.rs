//! Boxes of benches that were killed: what still runs in them is ended, and they are removed.

use super::sandbox;
use crate::backend::{GROUP_NAME, signal_all};
use crate::error::{Error, Result};
use crate::system::mounts::Mounts;
use crate::system::processes;
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Starts the guard of this bench as the given command. It sweeps once this bench ended, however it did.
pub fn start_guard(program: &Path) -> Result<Child> {
    let words = ["memory", "sweep"].map(OsString::from);
    let mut command = Command::new(program);
    // Its own process group: Ctrl-C is for the bench, which then ends in order.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().map_err(Error::io("starting", program))
}

/// The guard's life: waits for the end of input, then sweeps. A bench that dies closes it some time before it is gone.
pub fn watch() -> Result<()> {
    let mut ignored = Vec::new();
    std::io::stdin().read_to_end(&mut ignored).map_err(Error::io("reading", "standard input"))?;
    for _ in 0..50 {
        sweep();
        std::thread::sleep(Duration::from_millis(100));
        if boxes().is_empty() {
            break;
        }
    }
    Ok(())
}

/// Removes the boxes of benches that are gone. What cannot be removed now can be the next time.
pub fn sweep() {
    for path in boxes().iter().filter(|path| !sandbox::owner(path).is_some_and(is_there)) {
        for group in [path.clone(), path.join("user"), path.join("hog"), path.join(GROUP_NAME)] {
            let _gone_already = signal_all(&group, libc::SIGKILL);
        }
        sandbox::remove(path);
    }
}

/// Boxes of any bench.
fn boxes() -> Vec<PathBuf> {
    let root = Mounts::read().ok().and_then(|mounts| mounts.v1_memory);
    let entries = root.into_iter().filter_map(|root| fs::read_dir(root).ok()).flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| sandbox::owner(path).is_some()).collect()
}

/// Whether there is such a process, and not just what is left of it until its parent looks.
fn is_there(pid: i32) -> bool {
    processes::state(pid).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}
