//! mknod(2), mkfifo(3), sockets.

use crate::check::*;
use crate::sys;
use std::io::{Read, Write};

checks!("mknod": kinds_and_numbers, users_make_fifos_only, existing, fifo_carries_data, device_works, socket_listens,
    regular_by_mknod);

fn kinds_and_numbers(p: &Place) -> Outcome {
    for (kind, major, minor) in [(libc::S_IFCHR, 1, 3), (libc::S_IFBLK, 7, 200), (libc::S_IFCHR, 300, 70_000)] {
        let path = p.at(format!("{kind}-{major}"));
        sys::mknod(&path, kind | 0o640, libc::makedev(major, minor))?;
        let stat = sys::lstat(&path)?;
        equal_mode(stat.st_mode, kind | 0o640)?;
        equal((libc::major(stat.st_rdev), libc::minor(stat.st_rdev)), (major, minor))?;
    }
    for kind in [libc::S_IFIFO, libc::S_IFSOCK] {
        let path = p.at(format!("{kind}"));
        sys::mknod(&path, kind | 0o600, 0)?;
        let stat = sys::lstat(&path)?;
        equal_mode(stat.st_mode, kind | 0o600)?;
        equal((stat.st_nlink, stat.st_size), (1, 0))?;
    }
    Ok(())
}

fn users_make_fifos_only(p: &Place) -> Outcome {
    let d = p.dir("d", 0o777)?;
    as_user(ALICE, || {
        sys::mknod(d.join("fifo"), libc::S_IFIFO | 0o600, 0)?;
        sys::mknod(d.join("socket"), libc::S_IFSOCK | 0o600, 0)?;
        refused(sys::mknod(d.join("c"), libc::S_IFCHR | 0o600, libc::makedev(1, 3)), libc::EPERM)?;
        refused(sys::mknod(d.join("b"), libc::S_IFBLK | 0o600, libc::makedev(7, 0)), libc::EPERM)
    })?;
    equal(sys::lstat(d.join("fifo"))?.st_uid, ALICE.uid)
}

fn existing(p: &Place) -> Outcome {
    for kind in Kind::FILES.into_iter().chain([Kind::Directory]) {
        let path = p.make(&format!("{kind:?}"), kind)?;
        refused(sys::mknod(&path, libc::S_IFIFO | 0o600, 0), libc::EEXIST)?;
    }
    refused(sys::mknod(p.at("x/y"), libc::S_IFIFO | 0o600, 0), libc::ENOENT)
}

fn fifo_carries_data(p: &Place) -> Outcome {
    let path = p.make("fifo", Kind::Fifo)?;
    std::thread::scope(|scope| -> Outcome {
        let writer = scope.spawn(|| std::fs::OpenOptions::new().write(true).open(&path)?.write_all(b"through"));
        let mut got = String::new();
        std::fs::File::open(&path)?.read_to_string(&mut got)?;
        writer.join().map_err(|_| Failure::Failed("the writer panicked".to_owned()))??;
        equal(got.as_str(), "through")
    })
}

fn device_works(p: &Place) -> Outcome {
    let path = p.make("null", Kind::Char)?;
    match sys::open(&path, libc::O_RDWR, 0) {
        Ok(fd) => {
            equal(sys::write(&fd, b"gone")?, 4)?;
            equal(sys::read(&fd, &mut [0; 4])?, 0)
        }
        Err(sys::Errno(libc::EACCES | libc::ENXIO)) => {
            Err(Failure::Skipped("mounted without device files, or no such driver".to_owned()))
        }
        Err(errno) => Err(errno.into()),
    }
}

fn socket_listens(p: &Place) -> Outcome {
    // Socket addresses are short: bind by a relative name.
    sys::chdir(&p.0)?;
    let listener = std::os::unix::net::UnixListener::bind("socket")?;
    equal_mode(sys::lstat("socket")?.st_mode & libc::S_IFMT, libc::S_IFSOCK)?;
    std::thread::scope(|scope| -> Outcome {
        let client = scope.spawn(|| std::os::unix::net::UnixStream::connect("socket")?.write_all(b"hi"));
        let mut got = String::new();
        listener.accept()?.0.read_to_string(&mut got)?;
        client.join().map_err(|_| Failure::Failed("the client panicked".to_owned()))??;
        equal(got.as_str(), "hi")
    })?;
    refused(sys::open("socket", libc::O_RDONLY, 0), libc::ENXIO)
}

fn regular_by_mknod(p: &Place) -> Outcome {
    sys::mknod(p.at("a"), libc::S_IFREG | 0o640, 0)?;
    sys::mknod(p.at("b"), 0o640, 0)?;
    for name in ["a", "b"] {
        equal_mode(sys::lstat(p.at(name))?.st_mode, libc::S_IFREG | 0o640)?;
        let fd = sys::open(p.at(name), libc::O_RDWR, 0)?;
        write_all(&fd, b"data")?;
        equal(content(p.at(name))?, b"data".to_vec())?;
    }
    Ok(())
}
