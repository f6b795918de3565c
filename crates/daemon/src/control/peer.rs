//! Who is at the other end of a socket, as the kernel knows him.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// Who connected, or listens.
pub(crate) struct Peer {
    /// His process; none where it cannot be seen from here, as that of another container.
    pub(crate) pid: Option<u32>,
    /// His user.
    pub(crate) uid: u32,
}

/// rustix has no word for a process that is not seen: its number is zero then.
pub(crate) fn of(stream: &UnixStream) -> io::Result<Peer> {
    let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    let into = (&raw mut found).cast();
    // SAFETY: the kernel writes at most `length` bytes, which is what `found` has; any bytes are a `ucred`.
    let done =
        unsafe { libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, into, &raw mut length) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Peer { pid: u32::try_from(found.pid).ok().filter(|pid| *pid > 0), uid: found.uid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_at_the_other_end_is_known() {
        let (own, _other) = UnixStream::pair().unwrap();
        let peer = of(&own).unwrap();
        assert_eq!((peer.pid, peer.uid), (Some(std::process::id()), rustix::process::getuid().as_raw()));
    }
}
