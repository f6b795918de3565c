//! The command's side of the control socket.

use super::messages::{Answer, Request};
use super::peer;
use crate::control::{self, Timed};
use crate::error::io_error;
use crate::mounting::mountpoint::is_dead_at;
use crate::mounting::mounts;
use crate::{Error, Result, State, quoted};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use ullage_fuse::Listed;
use ullage_types::ROOT;

/// The longest answer, in bytes: some hundred thousand limits. Who asks may be root, and who answers any user.
const ANSWER_MAX: u64 = 64 << 20;
/// How long an answer may take to come in once it has begun to.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);
/// How long who listens may leave connections waiting, when no more can.
const CONNECTING: Duration = Duration::from_secs(10);
/// As long as it takes: some lifetimes.
const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);

/// Where a daemon tells of itself: one in the background, and one of a service.
pub(crate) const LOG: &str = "its log (ullage.log in its state directory, or the journal of its service)";

/// A connection to a running daemon.
pub struct Client {
    stream: UnixStream,
    patience: Duration,
}

impl Client {
    /// Connects to the daemon of this state; none when none is running.
    pub fn connect(state: &State) -> Result<Option<Self>> {
        // Who may not look whether there is one is told so: it is not the same as that there is none.
        if !state.dir().try_exists().map_err(io_error("look at", state.dir()))? {
            return Ok(None);
        }
        let (_dir, path) = control::short_path(state)?;
        match connect(&path, CONNECTING) {
            Ok(stream) => Ok(Some(Self { stream, patience: FOR_EVER })),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => Ok(None),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(Error::Crowded(state.socket_path())),
            Err(error) => Err(io_error("connect to", state.socket_path())(error)),
        }
    }

    /// The process that listens, as the kernel knows it; also when it does not answer any more. None where it is a container's that is not seen
    /// from here.
    pub fn process(&self) -> Option<u32> {
        peer::of(&self.stream).ok()?.pid
    }

    /// How long an answer may take; at first, and with none, as long as it takes until it begins.
    pub fn patience(&mut self, patience: Option<Duration>) {
        self.patience = patience.unwrap_or(FOR_EVER);
    }

    /// Asks, and gives back the answer; a refusal is an error.
    pub fn ask(&mut self, request: &Request) -> Result<Answer> {
        let broken = || Error::Refused(format!("the daemon ended before it answered; {LOG} may say why"));
        let mut text = serde_json::to_string(request).map_err(|error| Error::Refused(error.to_string()))?;
        text.push('\n');
        let line = match self.exchange(&text) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err(Error::Silent(self.process()));
            }
            Ok(line) if line.len() as u64 == ANSWER_MAX => {
                return Err(Error::Refused("the daemon's answer cannot be read: it has no end".into()));
            }
            Err(_) => return Err(broken()),
            Ok(line) if line.is_empty() => return Err(broken()),
            Ok(line) => line,
        };
        match serde_json::from_slice(&line)
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

    /// Sends a request, and waits for the line that answers it.
    fn exchange(&self, request: &str) -> std::io::Result<Vec<u8>> {
        let mut timed = Timed { stream: &self.stream, until: Instant::now() + self.patience };
        // Who is turned away unheard is still told why.
        let _ = timed.write_all(request.as_bytes());
        let mut reader = BufReader::new(timed);
        reader.fill_buf()?;
        let timed = reader.get_mut();
        timed.until = timed.until.min(Instant::now() + ANSWER_PATIENCE);
        let mut line = Vec::new();
        reader.take(ANSWER_MAX).read_until(b'\n', &mut line)?;
        Ok(line)
    }
}

/// Connects. Where nobody takes connections, and as many wait as may, that is waited for.
///
/// # Errors
/// [`ErrorKind::WouldBlock`] when the time is over.
fn connect(path: &Path, patience: Duration) -> std::io::Result<UnixStream> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    set_socket_timeout(&socket, Timeout::Send, None)?;
    Ok(socket.into())
}

/// Fails when a path leads through a space whose daemon does not answer within this time: whoever looked at the path would wait for it,
/// and no signal would end that. So the path is taken as it is written.
pub fn refuse_silent(path: &Path, patience: std::time::Duration) -> Result<()> {
    let path = std::path::absolute(path).map_err(io_error("look for", path))?;
    for mount in mounts::list(None)?.into_iter().filter(|m| m.may_be_a_space() && path.starts_with(&m.point)) {
        let mut client = match state_of(&mount).map(|state| Client::connect(&state)) {
            Some(Ok(Some(client))) => client,
            Some(Err(crowded @ Error::Crowded(_))) => return Err(crowded),
            _ => continue,
        };
        client.patience(Some(patience));
        // Whatever it answers.
        if let Err(silent @ Error::Silent(_)) = client.ask(&Request::Stat { ino: ROOT.0, proof: None }) {
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

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_millis(500);

    /// Asks one that answers so; the error, and how long that took.
    fn against(daemon: impl FnOnce(UnixStream) + Send, patience: Option<Duration>) -> (Error, Duration) {
        let (stream, other) = UnixStream::pair().unwrap();
        let mut client = Client { stream, patience: FOR_EVER };
        client.patience(patience);
        let began = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(move || daemon(other));
            let error = client.ask(&Request::Df).unwrap_err();
            drop(client);
            (error, began.elapsed())
        })
    }

    fn repeat(mut stream: UnixStream, bytes: &[u8], pause: Duration) {
        while stream.write_all(bytes).is_ok() {
            std::thread::sleep(pause);
        }
    }

    /// Regression: each byte began the time anew, so that a user's daemon could keep root's command for ever.
    #[test]
    fn who_answers_byte_by_byte_is_not_waited_for_longer_than_others() {
        let (error, took) = against(|stream| repeat(stream, b" ", PATIENCE / 20), Some(PATIENCE));
        assert!(matches!(error, Error::Silent(_)), "{error}");
        assert!(took >= PATIENCE && took < 10 * PATIENCE, "{took:?}");
    }

    /// Regression: it was read until no memory was left.
    #[test]
    fn an_answer_without_an_end_is_not_read_to_the_end() {
        for patience in [None, Some(ANSWER_PATIENCE)] {
            let (error, _) = against(|stream| repeat(stream, &[b' '; 4096], Duration::ZERO), patience);
            assert!(error.to_string().contains("has no end"), "{error}");
        }
    }

    /// Who asks for what takes long waits for that.
    #[test]
    fn an_answer_that_begins_late_is_waited_for() {
        let late = |mut stream: UnixStream| {
            std::thread::sleep(PATIENCE);
            let _ = stream.write_all(b"{\"answer\":\"refused\",\"why\":\"late\"}\n");
        };
        let (error, took) = against(late, None);
        assert!(error.to_string() == "late" && took >= PATIENCE, "{error}");
    }
}
