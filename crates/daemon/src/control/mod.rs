//! The control socket: one thread accepts, one a connection answers.

pub(crate) mod client;
pub(crate) mod guests;
pub(crate) mod limit;
pub(crate) mod messages;
mod peer;
pub(crate) mod report;

use self::guests::Guests;
use self::messages::{Answer, Request};
use crate::error::io_error;
use crate::{Result, State};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use ullage_pool::{by_descriptor, chmod};

/// The longest request, in bytes.
const REQUEST_MAX: u64 = 64 * 1024;
/// How long a request may take to come in, and its answer to go out.
const PATIENCE: Duration = Duration::from_secs(10);
/// Until the next try, when no connection could be accepted: descriptors may have run out.
const PAUSE: Duration = Duration::from_millis(100);

/// The socket's name in the state.
pub(crate) const SOCKET: &str = "control.sock";

/// A path to the socket that fits the kernel's 108 bytes however long the state's path is.
pub(crate) fn short_path(state: &State) -> Result<(std::fs::File, PathBuf)> {
    // As a place only: others may pass through the state directory, not read it.
    let dir = rustix::fs::open(state.place(), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| io_error("open", state.dir())(errno.into()))?;
    let dir = std::fs::File::from(dir);
    let path = by_descriptor(&dir).join(SOCKET);
    Ok((dir, path))
}

/// Requests that are being answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Busy(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    ends: AtomicUsize,
    others: AtomicUsize,
}

impl Busy {
    /// Waits until every answer is on its way, or for so long. Who asked for the end is told of it however long that takes: when the mount
    /// has ended for us, the kernel still puts away all files that it knew, some seconds for a million.
    pub(crate) fn wait(&self, patience: Duration) {
        let until = Instant::now() + patience;
        while self.0.ends.load(Relaxed) > 0 || self.0.others.load(Relaxed) > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Only who may end the space asks for its end: others could keep it from ending.
    fn count(&self, request: Option<&Request>, peer: u32) -> &AtomicUsize {
        let ends = matches!(request, Some(Request::Down { .. })) && may_end(peer);
        if ends { &self.0.ends } else { &self.0.others }
    }
}

/// Whether a user may take the space down.
pub(crate) fn may_end(peer: u32) -> bool {
    peer == 0 || peer == rustix::process::geteuid().as_raw()
}

/// A socket that is listened on.
pub(crate) struct Listening {
    /// Its directory, wherever that is by now.
    dir: std::fs::File,
    busy: Busy,
}

impl Listening {
    /// Takes the socket away: whoever waits for the end of this space looks for it. Then waits as [`Busy::wait`] does.
    pub(crate) fn end(&self, patience: Duration) {
        let _ = rustix::fs::unlinkat(&self.dir, SOCKET, AtFlags::empty());
        self.busy.wait(patience);
    }
}

/// Listens until the process ends; `answer` is told who asks.
pub(crate) fn listen(state: &State, answer: Arc<dyn Fn(Request, u32) -> Answer + Send + Sync>) -> Result<Listening> {
    let (dir, path) = short_path(state)?;
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).map_err(io_error("listen on", state.socket_path()))?;
    open_up(&path).map_err(io_error("open up", state.socket_path()))?;
    let busy = Busy::default();
    let counted = busy.clone();
    std::thread::Builder::new()
        .name("control".into())
        .spawn(move || {
            let guests = Guests::default();
            for stream in listener.incoming() {
                let Ok(stream) = stream else {
                    std::thread::sleep(PAUSE);
                    continue;
                };
                let Ok(peer) = peer::of(&stream) else { continue };
                let peer = peer.uid;
                let Some(guest) = guests.admit(peer) else {
                    turn_away(&stream, TOO_MANY);
                    continue;
                };
                let (answer, busy, stream) = (answer.clone(), counted.clone(), Arc::new(stream));
                let own = stream.clone();
                let spawned = std::thread::Builder::new().name("control-answer".into()).spawn(move || {
                    converse(&own, peer, PATIENCE, &*answer, &busy);
                    drop(own);
                    drop(guest);
                });
                if let Err(error) = spawned {
                    tracing::warn!("a control request is not answered: {error}");
                    turn_away(&stream, &no_thread(&error));
                }
            }
        })
        .map_err(io_error("serve", state.socket_path()))?;
    Ok(Listening { dir, busy })
}

/// Lets all users come to the socket. Who can write beside it may have put something else in its place.
fn open_up(path: &Path) -> std::io::Result<()> {
    let what = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    if FileType::from_raw_mode(rustix::fs::fstat(&what)?.st_mode) != FileType::Socket {
        return Err(rustix::io::Errno::NOTSOCK.into());
    }
    Ok(chmod(&what, 0o666)?)
}

/// How the answer to what is no request begins, in all versions.
const UNREADABLE: &str = "the request cannot be read";

/// Whether a refusal says that the daemon does not know such a request.
pub(crate) fn is_unknown(why: &str) -> bool {
    why.starts_with(UNREADABLE) && why.contains("unknown variant")
}

/// Why somebody is turned away.
const TOO_MANY: &str = "you have too many connections to this space, or all users together have; try again in a moment";

/// The same, where there is nobody to answer him.
fn no_thread(error: &std::io::Error) -> String {
    format!(
        "the daemon, process {}, goes on, but can start no thread to answer this ({error}): its user, container or service may have no more \
         processes; try again when some have ended",
        std::process::id()
    )
}

/// Never waits: what is sent first always has room.
fn turn_away(stream: &UnixStream, why: &str) {
    let _ = stream.set_nonblocking(true);
    let _ = say(stream, &Answer::Refused { why: why.to_owned() });
}

fn say(mut to: impl Write, answer: &Answer) -> std::io::Result<()> {
    let text = serde_json::to_string(answer)?;
    to.write_all(format!("{text}\n").as_bytes())
}

fn converse(stream: &UnixStream, peer: u32, patience: Duration, answer: &dyn Fn(Request, u32) -> Answer, busy: &Busy) {
    let mut reader = BufReader::new(Timed { stream, until: Instant::now() });
    loop {
        reader.get_mut().until = Instant::now() + patience;
        let mut line = String::new();
        match reader.by_ref().take(REQUEST_MAX).read_line(&mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let request = serde_json::from_str(&line);
        let count = busy.count(request.as_ref().ok(), peer);
        count.fetch_add(1, Relaxed);
        let reply = match request {
            Ok(request) => answer(request, peer),
            Err(error) => Answer::Refused { why: format!("{UNREADABLE}: {error}") },
        };
        let sent = say(Timed { stream, until: Instant::now() + patience }, &reply);
        count.fetch_sub(1, Relaxed);
        if sent.is_err() {
            return;
        }
    }
}

/// A connection with a deadline for all that is moved, not for each piece of it.
struct Timed<'a> {
    stream: &'a UnixStream,
    until: Instant,
}

impl Timed<'_> {
    fn left(&self) -> std::io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(std::io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(bytes)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_millis(300);

    /// Runs one conversation against a client; how long it took.
    fn against(client: impl FnOnce(UnixStream) + Send, reply: &Answer) -> Duration {
        let (own, other) = UnixStream::pair().unwrap();
        let began = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(move || client(other));
            converse(&own, 0, PATIENCE, &|_, _| reply.clone(), &Busy::default());
            let took = began.elapsed();
            drop(own);
            took
        })
    }

    /// Regression: each byte began the time anew, so a connection and its thread could be held for days.
    #[test]
    fn who_sends_a_request_byte_by_byte_is_not_waited_for_longer_than_others() {
        let slow = |mut stream: UnixStream| {
            while stream.write_all(b" ").is_ok() {
                std::thread::sleep(PATIENCE / 10);
            }
        };
        let took = against(slow, &Answer::Done);
        assert!(took >= PATIENCE && took < 20 * PATIENCE, "{took:?}");
    }

    /// Regression: who did not read held the thread for ever.
    #[test]
    fn who_does_not_read_the_answer_is_not_waited_for() {
        let deaf = |mut stream: UnixStream| {
            stream.write_all(b"{\"ask\":\"df\"}\n").unwrap();
            std::thread::sleep(10 * PATIENCE);
        };
        let took = against(deaf, &Answer::Refused { why: "x".repeat(8 << 20) });
        assert!(took >= PATIENCE && took < 8 * PATIENCE, "{took:?}");
    }

    #[test]
    fn what_only_a_later_version_asks_is_told_from_what_is_no_request() {
        for (asked, unknown) in [(r#"{"ask":"what-comes-later"}"#, true), (r#"{"ask":"stat"}"#, false), ("?", false)] {
            let ask = move |stream: UnixStream| {
                (&stream).write_all(format!("{asked}\n").as_bytes()).unwrap();
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).unwrap();
                let Ok(Answer::Refused { why }) = serde_json::from_str(&line) else { panic!("{line}") };
                assert_eq!(is_unknown(&why), unknown, "{why}");
            };
            against(ask, &Answer::Done);
        }
    }

    /// Regression: where the kernel knew a million files, `ullage down` said that the daemon had ended before it answered.
    #[test]
    fn who_asked_for_the_end_is_told_of_it_however_long_it_takes() {
        const DOWN: &[u8] = b"{\"ask\":\"down\",\"lazy\":false}\n";
        // Regression: a stranger who asked for the end again and again, and did not read the answers, kept the daemon from ending.
        let stranger = rustix::process::geteuid().as_raw() + 1;
        for (asked, peer, waits) in [(DOWN, 0, true), (DOWN, stranger, false), (b"{\"ask\":\"df\"}\n", 0, false)] {
            let (own, other) = UnixStream::pair().unwrap();
            let busy = Busy::default();
            let slow = |_, _| {
                std::thread::sleep(PATIENCE);
                Answer::Done
            };
            (&other).write_all(asked).unwrap();
            std::thread::scope(|scope| {
                let answering = scope.spawn(|| converse(&own, peer, PATIENCE, &slow, &busy));
                while busy.0.ends.load(Relaxed) + busy.0.others.load(Relaxed) == 0 {
                    std::thread::yield_now();
                }
                busy.wait(PATIENCE / 10);
                other.set_nonblocking(true).unwrap();
                assert_eq!((&other).read(&mut [0; 64]).is_ok(), waits);
                other.shutdown(std::net::Shutdown::Both).unwrap();
                answering.join().unwrap();
            });
        }
    }

    /// Where a link had come to stand in the place of the socket, everybody could write what it led to.
    #[test]
    fn nothing_but_the_socket_is_opened_up_to_all() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let dir = tempfile::tempdir().unwrap();
        let [kept, link, socket] = ["kept", "link", "socket"].map(|name| dir.path().join(name));
        std::fs::write(&kept, "").unwrap();
        std::fs::set_permissions(&kept, std::fs::Permissions::from_mode(0o600)).unwrap();
        symlink(&kept, &link).unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        assert!(open_up(&link).is_err() && open_up(&kept).is_err());
        open_up(&socket).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(&kept), mode(&socket)), (0o600, 0o666));
    }

    #[test]
    fn who_is_turned_away_is_told_why() {
        let (own, other) = UnixStream::pair().unwrap();
        (&other).write_all(b"{\"ask\":\"df\"}\n").unwrap();
        turn_away(&own, TOO_MANY);
        drop(own);
        let mut line = String::new();
        BufReader::new(&other).read_line(&mut line).unwrap();
        assert!(line.contains("too many connections"), "{line}");
    }
}
