//! The control socket: one thread accepts, one a connection answers.

use crate::error::io_error;
use crate::messages::{Answer, Request};
use crate::{Result, State};
use rustix::net::sockopt::socket_peercred;
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The longest request, in bytes.
const REQUEST_MAX: u64 = 64 * 1024;
/// How long a silent connection is kept.
const PATIENCE: Duration = Duration::from_secs(10);

/// A path to the socket that fits the kernel's 108 bytes however long the state's path is.
pub(crate) fn short_path(state: &State) -> Result<(std::fs::File, PathBuf)> {
    use rustix::fs::{Mode, OFlags, open};
    // As a place only: others may pass through the state directory, not read it.
    let dir = open(state.dir(), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| io_error("open", state.dir())(errno.into()))?;
    let dir = std::fs::File::from(dir);
    let path = format!("/proc/self/fd/{}/control.sock", std::os::fd::AsRawFd::as_raw_fd(&dir)).into();
    Ok((dir, path))
}

/// Requests that are being answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Busy(Arc<AtomicUsize>);

impl Busy {
    /// Waits until every answer is on its way, or for so long: who asked for the end is told before it comes.
    pub(crate) fn wait(&self, patience: Duration) {
        let until = Instant::now() + patience;
        while self.0.load(Relaxed) > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Listens until the process ends; `answer` is told who asks.
pub(crate) fn listen(state: &State, answer: Arc<dyn Fn(Request, u32) -> Answer + Send + Sync>) -> Result<Busy> {
    let (_dir, path) = short_path(state)?;
    let _ = std::fs::remove_file(state.socket_path());
    let listener = UnixListener::bind(&path).map_err(io_error("listen on", state.socket_path()))?;
    std::fs::set_permissions(state.socket_path(), Permissions::from_mode(0o666))
        .map_err(io_error("open up", state.socket_path()))?;
    let busy = Busy::default();
    let counted = busy.clone();
    std::thread::Builder::new()
        .name("control".into())
        .spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, busy) = (answer.clone(), counted.clone());
                let spawned = std::thread::Builder::new()
                    .name("control-answer".into())
                    .spawn(move || converse(&stream, &*answer, &busy));
                if let Err(error) = spawned {
                    tracing::warn!("a control request is not answered: {error}");
                }
            }
        })
        .map_err(io_error("serve", state.socket_path()))?;
    Ok(busy)
}

fn converse(stream: &UnixStream, answer: &dyn Fn(Request, u32) -> Answer, busy: &Busy) {
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let Ok(peer) = socket_peercred(stream) else { return };
    let peer = peer.uid.as_raw();
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        match reader.by_ref().take(REQUEST_MAX).read_line(&mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        busy.0.fetch_add(1, Relaxed);
        let reply = match serde_json::from_str(&line) {
            Ok(request) => answer(request, peer),
            Err(error) => Answer::Refused { why: format!("the request cannot be read: {error}") },
        };
        let sent = serde_json::to_string(&reply)
            .is_ok_and(|text| (&*stream).write_all(format!("{text}\n").as_bytes()).is_ok());
        busy.0.fetch_sub(1, Relaxed);
        if !sent {
            return;
        }
    }
}
