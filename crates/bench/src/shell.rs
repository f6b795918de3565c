//! Other programs, run so that a failure says what was run and what it said.

use crate::cleanup::Undo;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Whether a program of this name is in `PATH`.
pub fn installed(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

/// Runs to the end and gives the standard output; a non-zero exit is an error with what the program said.
pub fn run(command: &mut Command) -> Result<String> {
    let shown = show(command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().with_context(|| format!("start {shown}"))?;
    let _undo = killing(child.id());
    let output = child.wait_with_output().with_context(|| format!("run {shown}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{shown} failed ({}): {}", output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs to the end with all output thrown away, as a timed program should be.
pub fn run_quietly(command: &mut Command) -> Result<()> {
    let shown = show(command);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().with_context(|| format!("start {shown}"))?;
    let _undo = killing(child.id());
    let status = child.wait()?;
    if !status.success() {
        bail!("{shown} failed ({status})");
    }
    Ok(())
}

/// Ends the process when dropped before it ended by itself.
pub fn killing(pid: u32) -> Undo {
    Undo::new(move || {
        // Already waited for when all went well: then there is nothing of that number to end.
        if let Some(pid) = Pid::from_raw(pid as i32).filter(|_| still_ours(pid)) {
            let _ = kill_process(pid, Signal::KILL);
        }
    })
}

/// Whether `pid` is a child of this process: a number may be given out again after a wait.
fn still_ours(pid: u32) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    parent.is_some_and(|p| p.trim() == std::process::id().to_string())
}

/// A command line as a person would type it.
fn show(command: &Command) -> String {
    let mut shown = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        shown.push(' ');
        shown.push_str(&argument.to_string_lossy());
    }
    shown
}

/// Unmounts, waiting a little for whoever is still leaving, then lazily.
pub fn unmount(path: &Path) {
    for _ in 0..50 {
        if !is_mounted(path) || run(Command::new("umount").arg(path)).is_ok() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let _ = run(Command::new("umount").arg("-l").arg(path));
}

/// Whether something is mounted exactly there.
pub fn is_mounted(path: &Path) -> bool {
    mount_points().iter().any(|point| point == path)
}

/// Where something is mounted, the outermost first.
pub fn mount_points() -> Vec<PathBuf> {
    points_in(&std::fs::read("/proc/self/mounts").unwrap_or_default())
}

/// The same by the text of `/proc/mounts`.
pub fn points_in(mounts: &[u8]) -> Vec<PathBuf> {
    let points = mounts.split(|byte| *byte == b'\n').filter_map(|line| line.split(|byte| *byte == b' ').nth(1));
    points.map(|point| PathBuf::from(OsString::from_vec(unescaped(point)))).collect()
}

/// There blanks, line ends and backslashes are written as three octal digits after a backslash.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        let code = after.get(..3).filter(|_| *first == b'\\').and_then(|code| std::str::from_utf8(code).ok());
        if let Some(byte) = code.and_then(|code| u8::from_str_radix(code, 8).ok()) {
            bytes.push(byte);
            rest = &after[3..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_was_run_and_what_it_said() {
        let error = run(Command::new("ls").arg("/no/such/place")).unwrap_err().to_string();
        assert!(error.contains("ls /no/such/place") && error.contains("No such file"), "{error}");
        assert_eq!(run(Command::new("echo").arg("x")).unwrap(), "x\n");
        assert!(run_quietly(&mut Command::new("false")).is_err());
    }

    #[test]
    fn mounts_and_programs_are_found() {
        assert!(is_mounted(Path::new("/proc")) && !is_mounted(Path::new("/proc/self")));
        assert!(installed("ls") && !installed("no-such-program"));
    }

    #[test]
    fn a_process_still_running_is_ended() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        drop(killing(child.id()));
        assert!(!child.wait().unwrap().success());
    }
}
