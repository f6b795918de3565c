//! What a supervisor is told that waits for it: sd_notify(3).

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

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
