//! What a supervisor is told that waits for it: sd_notify(3).

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Where it listens.
pub(crate) const SOCKET: &str = "NOTIFY_SOCKET";

/// The mount is usable.
pub(crate) const READY: &str = "READY=1";
/// The end has begun.
pub(crate) const STOPPING: &str = "STOPPING=1";

/// Tells the supervisor, if there is one.
pub(crate) fn supervisor(what: &str) {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    if let Err(error) = tell(socket.as_bytes(), what) {
        tracing::warn!("the supervisor at {} is not told '{what}': {error}", socket.display());
    }
}

/// How often a supervisor hears that a start or an end goes on.
const PERIOD: Duration = Duration::from_secs(4);
/// In microseconds, how much longer he is to wait from then on: several times as long, since a busy machine may be late.
const EXTEND: &str = "EXTEND_TIMEOUT_USEC=60000000";

/// Has the supervisor wait for as long as this lives. A start that takes in a tree or looks through the leaves of millions of files, and an end that
/// writes much, take longer than a supervisor gives them; and who is ended for that begins anew each time.
pub(crate) struct GoesOn {
    _ends: Option<Sender<()>>,
}

impl GoesOn {
    /// Begins to say so, where there is a supervisor. What cannot be said is no reason not to go on.
    pub(crate) fn begin() -> Self {
        let Some(socket) = std::env::var_os(SOCKET) else { return Self { _ends: None } };
        let (ends, ended) = channel::<()>();
        let say = move || {
            while ended.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                if let Err(error) = tell(socket.as_bytes(), EXTEND) {
                    return tracing::warn!("the supervisor at {} is not told to wait: {error}", socket.display());
                }
            }
        };
        let spawned = std::thread::Builder::new().name("goes-on".into()).spawn(say);
        if let Err(error) = spawned {
            tracing::warn!("the supervisor is not told to wait: {error}");
        }
        Self { _ends: Some(ends) }
    }
}

fn tell(socket: &[u8], what: &str) -> io::Result<()> {
    let address = match socket.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(socket))?,
    };
    UnixDatagram::unbound()?.send_to_addr(what.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn supervisors_with_a_path_and_those_without_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let name = format!("ullage-notify-{}", std::process::id());
        let abstracted = SocketAddr::from_abstract_name(&name).unwrap();
        for (address, listener) in [
            (path.as_os_str().as_bytes(), UnixDatagram::bind(&path).unwrap()),
            (format!("@{name}").as_bytes(), UnixDatagram::bind_addr(&abstracted).unwrap()),
        ] {
            tell(address, READY).unwrap();
            let mut said = [0; 20];
            let length = listener.recv(&mut said).unwrap();
            assert_eq!(said.get(..length), Some(READY.as_bytes()));
        }
        assert!(tell(b"/nowhere/at/all", READY).is_err());
    }
}
