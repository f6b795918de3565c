//! `up` without `--foreground`: a process of its own that says when the mount is usable.

use super::signals::PassedOn;
use crate::error::io_error;
use crate::settings::config::private;
use crate::{Error, Result, State};
use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What the background process prints when it is ready; anything else is why it is not.
pub(crate) const READY: &str = "ready";
/// What begins a line that says how far it has come.
pub const PROGRESS: &str = "progress: ";

/// Has it be in a session of its own, and have nothing of what the caller has open: it may outlive him by months, and what it has open is
/// not given back, nor unlocked, nor unmounted.
fn set_apart(command: &mut Command) {
    let apart = || {
        rustix::process::setsid()?;
        // SAFETY: no memory is touched, and no descriptor closed that somebody counts on before the program begins. Kernels without
        // this call (before Linux 5.11) leave all as it is.
        unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
        Ok(())
    };
    // SAFETY: between fork and exec nothing is done but two system calls.
    unsafe { command.pre_exec(apart) };
}

/// Starts `command` (this program, told to serve in the foreground and to report) in a session of its own and
/// waits until it is ready. Gives back its process id. A signal that is to end this process before that ends the other one first. `progress` is given
/// each line that begins with [`PROGRESS`], without it.
pub fn start_in_background(mut command: Command, state: &State, progress: &mut dyn FnMut(&str)) -> Result<u32> {
    state.refuse_users()?;
    let had_log = state.log_path().exists();
    let made = state.make()?;
    let log = private().append(true).open(state.log_path()).map_err(io_error("open", state.log_path()))?;
    // It tells names of files, and versions before this one let everybody read it.
    let _ = log.set_permissions(Permissions::from_mode(0o600));
    set_apart(&mut command);
    let signals = PassedOn::take().map_err(io_error("wait for signals of", "this process"))?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .current_dir("/")
        // Whoever waits there waits for the caller.
        .env_remove(super::notify::SOCKET)
        .spawn()
        .map_err(io_error("start", "the daemon"))?;
    let passed_on = PassedOn::to(signals, &child).inspect_err(|_| {
        // It would go on unseen.
        let _ = child.kill();
        let _ = child.wait();
    });
    let passed_on = passed_on.map_err(io_error("wait for signals of", "this process"))?;
    let stdout = child.stdout.take().ok_or_else(|| Error::Refused("the daemon has no output".into()))?;
    let (mut line, mut stdout) = (String::new(), BufReader::new(stdout));
    let mut read = stdout.read_line(&mut line);
    while let (Ok(_), Some(how_far)) = (&read, line.strip_prefix(PROGRESS)) {
        progress(how_far.trim());
        line.clear();
        read = stdout.read_line(&mut line);
    }
    if let Some(signal) = passed_on.end() {
        let _ = child.wait();
        forget(state, &made);
        return Err(Error::Interrupted(signal));
    }
    match (read, line.trim_end()) {
        (Ok(_), READY) => Ok(child.id()),
        (_, "") => {
            let _ = child.wait();
            Err(Error::Refused(format!("the daemon ended before it was ready; see {}", state.log_path().display())))
        }
        (_, why) => {
            // Names in it may have lines of their own; it is the last that is said.
            let mut why = why.to_owned();
            for line in stdout.lines().map_while(std::io::Result::ok) {
                why.push('\n');
                why.push_str(line.trim_start());
            }
            let _ = child.wait();
            if made.is_empty() && !had_log && !state.settings_path().exists() {
                // What was named by mistake stays as it was.
                let _ = std::fs::remove_file(state.log_path());
            }
            forget(state, &made);
            Err(Error::Refused(why))
        }
    }
}

/// Takes away the directories that were made for a start that was refused, where they hold nothing but its log.
fn forget(state: &State, made: &[PathBuf]) {
    if made.is_empty() {
        return;
    }
    let others = std::fs::read_dir(state.dir()).map_or(1, |entries| {
        entries.filter(|entry| entry.as_ref().map_or(true, |e| e.path() != state.log_path())).count()
    });
    if others == 0 {
        let _ = std::fs::remove_file(state.log_path());
        for dir in made {
            let _ = std::fs::remove_dir(dir);
        }
    }
}
