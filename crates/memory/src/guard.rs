//! The guard: a small process that outlives a killed controller just long enough to clean up.

use crate::error::{Error, Result};
use crate::runtime::{RuntimeDir, Undo};
use crate::sys;
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// Leaves who started this process: what it starts from now on belongs to no session of theirs, and has none of the files
/// that they had open, which would stay open, and locked, for as long as that lives. Nor is it as nice as they are, who want
/// to be last: others' memory waits for it.
pub fn leave_the_caller() {
    let _leads_a_group = sys::begin_session();
    let _not_before_linux_5_11 = sys::keep_files();
    sys::schedule_as_others();
}

/// Starts the guard as the given command, whose paths are absolute. It lives as long as the returned child's standard input is
/// open, that is, until the controller ends, however it ends.
pub fn start(command: &[OsString]) -> Result<Child> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(Error::Invalid("the guard's command is empty".into()));
    };
    let _not_before_linux_5_11 = sys::keep_files();
    Command::new(program)
        .args(arguments)
        // In nobody's file system, which could not be unmounted.
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        // Its own process group: Ctrl-C is for the controller, which then ends in order.
        .process_group(0)
        .spawn()
        .map_err(Error::io("starting", program))
}

/// The guard's life: waits for the end of input, then undoes what the controller left.
pub fn watch(runtime: &RuntimeDir) -> Result<()> {
    // Who removes the runtime directory takes that with it.
    let made = Undo::read(&runtime.undo());
    let mut ignored = Vec::new();
    std::io::stdin().read_to_end(&mut ignored).map_err(Error::io("reading", "standard input"))?;
    // Whoever holds the lock now is ending in order, or a new controller that has cleaned up already.
    // A dying process may close the pipe some time before the lock, so ask for a while.
    for _ in 0..100 {
        if !runtime.undo().exists() {
            let left = made.filter(|undo| undo.directories.iter().any(|directory| directory.exists()));
            return left.and_then(|undo| undo.unaided().lift(&[]).into_iter().next()).map_or(Ok(()), Err);
        }
        if let Ok((_lock, failed)) = runtime.inherit() {
            runtime.remove();
            return failed.into_iter().next().map_or(Ok(()), Err);
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    Ok(())
}
