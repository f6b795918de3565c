//! The command's side of the control socket.

use crate::error::io_error;
use crate::messages::{Answer, Request};
use crate::{Error, Result, State, control};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// A connection to a running daemon.
pub struct Client {
    reader: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the daemon of this state; none when none is running.
    pub fn connect(state: &State) -> Result<Option<Self>> {
        if !state.dir().exists() {
            return Ok(None);
        }
        let (_dir, path) = control::short_path(state)?;
        match UnixStream::connect(path) {
            Ok(stream) => Ok(Some(Self { reader: BufReader::new(stream) })),
            Err(error)
                if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused) =>
            {
                Ok(None)
            }
            Err(error) => Err(io_error("connect to", state.socket_path())(error)),
        }
    }

    /// The process that listens, as the kernel knows it; also when it does not answer any more.
    pub(crate) fn process(&self) -> Option<u32> {
        let peer = rustix::net::sockopt::socket_peercred(self.reader.get_ref()).ok()?;
        u32::try_from(peer.pid.as_raw_nonzero().get()).ok()
    }

    /// How long an answer may take.
    pub(crate) fn patience(&self, patience: std::time::Duration) {
        let _ = self.reader.get_ref().set_read_timeout(Some(patience));
    }

    /// Asks, and gives back the answer; a refusal is an error.
    pub fn ask(&mut self, request: &Request) -> Result<Answer> {
        let broken =
            || Error::Refused("the daemon ended before it answered; see ullage.log in its state directory".into());
        let mut text = serde_json::to_string(request).map_err(|error| Error::Refused(error.to_string()))?;
        text.push('\n');
        self.reader.get_mut().write_all(text.as_bytes()).map_err(|_| broken())?;
        let mut line = String::new();
        if self.reader.read_line(&mut line).map_err(|_| broken())? == 0 {
            return Err(broken());
        }
        match serde_json::from_str(&line)
            .map_err(|error| Error::Refused(format!("the daemon's answer cannot be read: {error}")))?
        {
            Answer::Refused { why } => Err(Error::Refused(why)),
            answer => Ok(answer),
        }
    }
}

/// The mount that a path lies in, and its state: from the kernel's list of mounts.
pub fn find_mount(path: &Path) -> Result<(PathBuf, State)> {
    let path = path.canonicalize().map_err(io_error("look at", path))?;
    let table = std::fs::read_to_string("/proc/self/mountinfo").map_err(io_error("read", "/proc/self/mountinfo"))?;
    let mut best: Option<(PathBuf, Option<PathBuf>)> = None;
    for line in table.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let Some(point) = left.split(' ').nth(4).map(unescape) else { continue };
        let mut right = right.split(' ');
        let (kind, source) = (right.next().unwrap_or_default(), right.next().unwrap_or_default());
        // The last of several mounts on one point is the one that is seen.
        if path.starts_with(&point)
            && best.as_ref().is_none_or(|(b, _)| point.components().count() >= b.components().count())
        {
            let ours = kind == "fuse" || kind == "fuse.ullage";
            best = Some((point, ours.then(|| unescape(source))));
        }
    }
    match best {
        Some((point, Some(source))) if source.join("space.toml").exists() => Ok((point, State::at(source))),
        _ => Err(Error::Refused(format!("{} is not in a mounted space; see `ullage up --help`", path.display()))),
    }
}

/// Mount tables write blanks and backslashes in octal.
fn unescape(text: &str) -> PathBuf {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal = bytes
            .get(at + 1..at + 4)
            .and_then(|d| std::str::from_utf8(d).ok())
            .and_then(|d| u8::from_str_radix(d, 8).ok());
        match (bytes[at], octal) {
            (b'\\', Some(byte)) => {
                out.push(byte);
                at += 4;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(out))
}

#[cfg(test)]
mod tests {
    #[test]
    fn mount_points_with_blanks_are_read() {
        assert_eq!(super::unescape("/a\\040b\\134c"), std::path::PathBuf::from("/a b\\c"));
    }
}
