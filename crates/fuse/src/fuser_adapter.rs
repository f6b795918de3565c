//! The fallback transport, on crate `fuser`: a queue of requests on `/dev/fuse`, served by a few threads, and by workers where it takes waiting.
//!
//! Works everywhere, without privileges too (then through `fusermount3`, for the owner only, all data through the
//! server). Limits that come from the crate: no O_TMPFILE (the kernel reports EOPNOTSUPP), no birth time in statx.

mod carry_out;
mod dispatch;
mod kernel;
mod line;
mod sys;
mod threads;
mod wire;

use crate::counters::Counters;
use crate::device::SPARES;
use crate::fuser_adapter::carry_out::Parts;
use crate::fuser_adapter::dispatch::Adapter;
use crate::fuser_adapter::kernel::Connection;
use crate::point::Point;
use crate::workers::Workers;
use fuser::{Config, MountOption, Session, SessionACL};
use parking_lot::Mutex;
use rustix::mount::MountFlags;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use ullage_fs::Filesystem;

/// Fewer threads could all be waiting for disks at once, with nobody left to answer a look-up.
const THREADS_MIN: usize = 4;
/// Threads for calls that wait for disks, as long as those return.
const WORKERS: usize = 64;
/// The crate's threads have a buffer of 16 MiB each, of which requests need one.
const LARGE: i32 = 8 << 20;

/// How to mount.
#[derive(Clone, Debug)]
pub struct FuserOptions {
    /// What `mount` and `df` show as the source.
    pub name: String,
    /// Threads that serve requests; at least four are used, where so many can be started.
    pub threads: usize,
    /// Whether other users may use the mount (needs root, or `user_allow_other` in `/etc/fuse.conf`).
    pub allow_other: bool,
    /// What mount(2) is told; of an ordinary user's mount the helper decides more.
    pub flags: MountFlags,
}

/// A served mount. Dropping it leaves the mount in place; it ends with umount(8) or fusermount3(1).
#[derive(Debug)]
pub struct FuserMount {
    point: Point,
    counters: Arc<Counters>,
    server: Mutex<Option<JoinHandle<io::Result<()>>>>,
}

/// Mounts `fs` on `mountpoint` and serves it until it is unmounted. [`Filesystem::attach`] has been called, and the
/// mount answers, when this returns; [`Filesystem::detach`] is called once, at the end.
///
/// # Errors
/// When `/dev/fuse` or `fusermount3` is missing or refuses, or the mount point is not a directory one may mount on.
pub fn mount_with_fuser(fs: Arc<dyn Filesystem>, mountpoint: &Path, options: &FuserOptions) -> io::Result<FuserMount> {
    let mountpoint = mountpoint.canonicalize()?;
    let usual = options.threads.max(THREADS_MIN);
    let count = threads::startable(usual + SPARES)?;
    sys::map_from(LARGE);
    let connection = Arc::new(Connection::new(&mountpoint));
    let workers = Workers::new(WORKERS, 0, None);
    let parts = Parts { fs: fs.clone(), connection: connection.clone() };
    let adapter = Adapter::new(parts, workers.clone(), usual.min(count));
    let session = Session::new(adapter, &mountpoint, &config(options, count))?;
    connection.open(&session)?;
    // The kernel's requests wait in the queue until `run` reads them, so this comes before the first.
    let point = Point::of(&mountpoint);
    let counters = Arc::clone(&connection.counters);
    fs.attach(connection);
    let served = fs.clone();
    let server = std::thread::Builder::new().name("fuse".to_owned()).spawn(move || {
        let ended = session.run();
        workers.close();
        served.detach();
        ended
    });
    let server = threads::await_last(server.inspect_err(|_| fs.detach())?, count)?;
    Ok(FuserMount { point, counters, server: Mutex::new(Some(server)) })
}

impl FuserMount {
    /// Waits until the mount has ended and the file system is detached. A second call returns at once.
    ///
    /// # Errors
    /// What ended the service, unless it was an unmount.
    pub fn join(&self) -> io::Result<()> {
        let Some(server) = self.server.lock().take() else { return Ok(()) };
        threads::join(server)
    }

    /// How many messages of each kind came. Of FORGETs that came in one message each counts.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Unmounts, wherever the mount is now, with `lazy` also while it is in use; service ends when the last user is gone (see
    /// [`FuserMount::join`]).
    ///
    /// # Errors
    /// EBUSY while files of the mount are in use; what else there is at its place is not unmounted.
    pub fn take_away(&self, lazy: bool) -> io::Result<()> {
        self.point.unmount(lazy)
    }

    /// Major and minor number of its device.
    pub fn device(&self) -> Option<(u32, u32)> {
        self.point.device()
    }

    /// Whether it was taken away from its mount point, and goes on for its last users.
    pub fn is_away(&self) -> bool {
        self.point.is_away()
    }
}

fn config(options: &FuserOptions, threads: usize) -> Config {
    let mut mount_options = vec![
        MountOption::FSName(unambiguous(&options.name)),
        MountOption::Subtype("ullage".to_owned()),
        MountOption::DefaultPermissions,
    ];
    let privileged = rustix::process::geteuid().is_root();
    let given = [
        (MountFlags::RDONLY, MountOption::RO, Some(MountOption::RW)),
        (MountFlags::NODEV, MountOption::NoDev, privileged.then_some(MountOption::Dev)),
        (MountFlags::NOSUID, MountOption::NoSuid, privileged.then_some(MountOption::Suid)),
        (MountFlags::NOEXEC, MountOption::NoExec, None),
        (MountFlags::NOATIME, MountOption::NoAtime, None),
        (MountFlags::DIRSYNC, MountOption::DirSync, None),
        (MountFlags::SYNCHRONOUS, MountOption::Sync, None),
    ];
    for (flag, set, otherwise) in given {
        mount_options.extend(if options.flags.contains(flag) { Some(set) } else { otherwise });
    }
    let mut config = Config::default();
    config.mount_options = mount_options;
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(threads);
    config
}

/// The helper splits its option string at commas.
fn unambiguous(name: &str) -> String {
    name.replace([',', '\\'], "_")
}
