//! The command's side of the control socket.

use super::messages::{Answer, Request};
use crate::error::io_error;
use crate::mounting::mountpoint::is_dead_at;
use crate::mounting::mounts;
use crate::{Error, Result, State, control, quoted};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use ullage_fuse::Listed;
use ullage_types::ROOT;

/// A connection to a running daemon.
pub struct Client {
    reader: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the daemon of this state; none when none is running.
    pub fn connect(state: &State) -> Result<Option<Self>> {
        // Who may not look whether there is one is told so: it is not the same as that there is none.
        if !state.dir().try_exists().map_err(io_error("look at", state.dir()))? {
            return Ok(None);
        }
        let (_dir, path) = control::short_path(state)?;
        match UnixStream::connect(path) {
            Ok(stream) => Ok(Some(Self { reader: BufReader::new(stream) })),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => Ok(None),
            Err(error) => Err(io_error("connect to", state.socket_path())(error)),
        }
    }

    /// The process that listens, as the kernel knows it; also when it does not answer any more.
    pub fn process(&self) -> Option<u32> {
        let peer = rustix::net::sockopt::socket_peercred(self.reader.get_ref()).ok()?;
        u32::try_from(peer.pid.as_raw_nonzero().get()).ok()
    }

    /// How long an answer may take; at first, and with none, as long as it takes.
    pub fn patience(&self, patience: Option<std::time::Duration>) {
        let _ = self.reader.get_ref().set_read_timeout(patience);
    }

    /// Asks, and gives back the answer; a refusal is an error.
    pub fn ask(&mut self, request: &Request) -> Result<Answer> {
        let broken =
            || Error::Refused("the daemon ended before it answered; see ullage.log in its state directory".into());
        let mut text = serde_json::to_string(request).map_err(|error| Error::Refused(error.to_string()))?;
        text.push('\n');
        // Who is turned away unheard is still told why.
        let _ = self.reader.get_mut().write_all(text.as_bytes());
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Err(Error::Silent(self.process().unwrap_or_default()));
            }
            Err(_) | Ok(0) => return Err(broken()),
            Ok(_) => {}
        }
        match serde_json::from_str(&line)
            .map_err(|error| Error::Refused(format!("the daemon's answer cannot be read: {error}")))?
        {
            Answer::Refused { why } if control::is_unknown(&why) => Err(Error::Refused(
                "the daemon that runs is of an earlier version and does not know of this: `ullage down` and `ullage up` start this one"
                    .into(),
            )),
            Answer::Refused { why } => Err(Error::Refused(why)),
            answer => Ok(answer),
        }
    }
}

/// Fails when a path leads through a space whose daemon does not answer within this time: whoever looked at the path would wait for it,
/// and no signal would end that. So the path is taken as it is written.
pub fn refuse_silent(path: &Path, patience: std::time::Duration) -> Result<()> {
    let path = std::path::absolute(path).map_err(io_error("look for", path))?;
    for mount in mounts::list(None)?.into_iter().filter(|m| m.may_be_a_space() && path.starts_with(&m.point)) {
        let Ok(Some(mut client)) = Client::connect(&State::at(mount.source)) else { continue };
        client.patience(Some(patience));
        // Whatever it answers.
        if let Err(silent @ Error::Silent(_)) = client.ask(&Request::Stat { ino: ROOT.0 }) {
            return Err(silent);
        }
    }
    Ok(())
}

/// The mount that a path lies in, and its state: from the kernel's list of mounts. Nobody may serve it any more.
pub fn find_mount(path: &Path) -> Result<(PathBuf, State)> {
    let (path, around) = mount_around(path)?;
    let inner = around.as_ref().filter(|mount| mount.may_be_a_space());
    let found = inner.and_then(|mount| Some((mount.point.clone(), state_of(mount)?)));
    found.ok_or_else(|| {
        let shown = path.display();
        Error::Refused(if let Some(covered) = around.as_ref().and_then(covers_a_space) {
            covered
        } else if let state = State::of_mountpoint(&path)
            && state.settings_path().exists()
        {
            if matches!(Client::connect(&state), Ok(Some(_))) {
                format!(
                    "the space of {shown} is up, but not to be seen there: it was taken away and has users yet, or is mounted in another mount \
                     namespace (a container's); see `ullage status {}`",
                    quoted(&path)
                )
            } else {
                format!("{shown} is not up; start it with `ullage up {}`", quoted(&path))
            }
        } else {
            let lacks = inner.and_then(without_state);
            lacks.unwrap_or_else(|| format!("{shown} is not in a mounted space; see `ullage up --help`"))
        })
    })
}

/// Of a path in a space that is mounted, and whose state is not there, what to do about it.
pub fn lacks_state(path: &Path) -> Option<String> {
    without_state(&mount_around(path).ok()?.1.filter(Listed::may_be_a_space)?)
}

/// Of a mount that hides a space, what to do about it.
fn covers_a_space(mount: &Listed) -> Option<String> {
    let here: Vec<_> = mounts::list(None).ok()?.into_iter().filter(|other| other.point == mount.point).collect();
    let at = here.iter().rposition(|other| other == mount)?;
    here[..at].iter().any(|below| below.may_be_a_space() && state_of(below).is_some()).then(|| {
        let point = mount.point.display();
        format!(
            "a file system ({}) is mounted over the space at {point}; `umount {}` takes that away first",
            mount.kind,
            quoted(&mount.point)
        )
    })
}

fn without_state(mount: &Listed) -> Option<String> {
    let is_there = state_of(mount).is_some() || State::at(mount.source.clone()).settings_path().exists();
    let why = || {
        format!(
            "the space at {} is mounted, and its state {} is not there: mount the disk that this lies on where it was, or take the \
             space away with `umount {}`",
            mount.point.display(),
            mount.source.display(),
            quoted(&mount.point)
        )
    };
    (!is_there).then(why)
}

/// The state of a mounted space, if it is there.
fn state_of(mount: &Listed) -> Option<State> {
    // Ordinary users' helper cannot say a source with a comma in it: then the state is found as before the mount.
    let states = [State::at(mount.source.clone()), State::of_mountpoint(&mount.point)];
    // It is also there where the caller may not look: who asks it hears so.
    let is_there = |state: &State| {
        state.settings_path().try_exists().unwrap_or_else(|error| error.kind() == ErrorKind::PermissionDenied)
    };
    states.into_iter().find(|state| is_there(state) && mounts::is_of(mount, state))
}

/// A path by its one name, and the mount that it lies in.
fn mount_around(path: &Path) -> Result<(PathBuf, Option<Listed>)> {
    // The list has mounts too that are hidden by what was mounted over a directory above them: the path is not in these.
    let (path, device) = match path.canonicalize() {
        Ok(path) => (path.clone(), ullage_fuse::mounted_at(&path)),
        // What is below its mount point cannot be looked at then.
        Err(error) => {
            let written = std::path::absolute(path).map_err(io_error("look for", path))?;
            let mut dead = written.ancestors().filter(|above| is_dead_at(above));
            let device = dead.find_map(ullage_fuse::mounted_at).ok_or_else(|| io_error("look at", path)(error))?;
            (written.clone(), Some(device))
        }
    };
    let around = mounts::list(None)?.into_iter().filter(|m| Some(m.device) == device && path.starts_with(&m.point));
    let inner = around.max_by_key(|mount| mount.point.components().count());
    Ok((path, inner))
}
