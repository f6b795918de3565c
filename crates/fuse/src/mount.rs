//! Mounting, and what a mounted file system is to its owner.

use crate::choose::{Chosen, Transport};
use crate::connection::Connection;
use crate::core::Core;
use crate::counters::Counters;
use crate::courtesy::Machine;
use crate::device::{Line, Place, Reader, SPARES, Turns, Waiting};
use crate::dispatch::Dispatcher;
use crate::negotiate::negotiate;
use crate::options::{Choice, MountOptions};
use crate::point::Point;
use crate::workers::Workers;
use crate::{affinity, uring};
use parking_lot::{Condvar, Mutex};
use rustix::mount::UnmountFlags;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use ullage_fs::{Filesystem, Kernel};

/// Readers of the shared queue by default, at most: more only fetch each other's requests.
const MOST_READERS: usize = 8;

/// A mounted file system. Dropping it unmounts it, open files or not.
pub struct Mounted {
    point: Point,
    counters: Arc<Counters>,
    connection: Arc<Connection>,
    ended: Arc<(Mutex<bool>, Condvar)>,
    chosen: Chosen,
}

/// Mounts `fs` at `mountpoint` and serves it on threads of its own. The caller's affinity mask is theirs too.
///
/// Needs `CAP_SYS_ADMIN`.
pub fn mount(fs: Arc<dyn Filesystem>, mountpoint: &Path, options: &MountOptions) -> io::Result<Mounted> {
    mount_with(fs, mountpoint, options, None)
}

/// As [`mount`]; ring entries get payloads of `ring_payload` bytes instead of what the kernel demands.
pub(crate) fn mount_with(
    fs: Arc<dyn Filesystem>,
    mountpoint: &Path,
    options: &MountOptions,
    ring_payload: Option<usize>,
) -> io::Result<Mounted> {
    let mountpoint = mountpoint.canonicalize()?;
    let chosen = Transport::best(options)?;
    let device = OwnedFd::from(File::options().read(true).write(true).open("/dev/fuse")?);
    mount_device(&device, &mountpoint, options)?;
    let point = Point::of(&mountpoint);
    let counters = Arc::new(Counters::default());
    let connection = Arc::new(Connection::new(device, &mountpoint, Arc::clone(&counters)));
    let unmount_if_failed = UnmountOnDrop(Some(&connection));
    let settled = negotiate(&connection, options.passthrough, chosen.transport == Transport::IoUring)?;
    let kernel: Arc<dyn Kernel> = Arc::clone(&connection) as Arc<dyn Kernel>;
    fs.attach(Arc::clone(&kernel));
    let workers = Workers::new(options.max_workers, settled.max_transfer, Some(Arc::clone(&connection)));
    let core = Arc::new(Core {
        connection: Arc::clone(&connection),
        dispatcher: Dispatcher::new(Arc::clone(&fs), kernel),
        dialect: settled.dialect,
        workers,
        counters: Arc::clone(&counters),
        blocking_io: options.blocking_io,
        max_transfer: settled.max_transfer,
        ring_payload: ring_payload.unwrap_or(settled.max_transfer),
    });
    let served = serve(&core, options, chosen, settled.over_io_uring);
    let (threads, chosen) = match served {
        Ok(served) => served,
        Err(error) => {
            connection.abort();
            core.workers.close();
            fs.detach();
            return Err(error);
        }
    };
    tracing::info!(mountpoint = %mountpoint.display(), transport = %chosen.transport, why = chosen.why, "mounted");
    let ended = Arc::new((Mutex::new(false), Condvar::new()));
    let supervisor = Supervisor { threads, core, fs, ended: Arc::clone(&ended) };
    std::thread::Builder::new().name("fuse-supervisor".into()).spawn(move || supervisor.run())?;
    unmount_if_failed.disarm();
    Ok(Mounted { point, counters, connection, ended, chosen })
}

/// Starts the threads of the chosen transport, or of the next best where the kernel refuses it after all.
fn serve(
    core: &Arc<Core>,
    options: &MountOptions,
    mut chosen: Chosen,
    over_io_uring: bool,
) -> io::Result<(Vec<JoinHandle<()>>, Chosen)> {
    let mut threads = Vec::new();
    let cpus = affinity::allowed();
    if chosen.transport == Transport::IoUring {
        let started = if over_io_uring {
            uring::start(core, options.ring_depth)
        } else {
            let live = Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel did not offer it at INIT"));
            uring::Started { threads: Vec::new(), live }
        };
        threads = started.threads;
        match started.live {
            Ok(()) => {}
            Err(error) if options.transport == Choice::IoUring => return Err(error),
            Err(error) => {
                chosen =
                    Chosen { transport: Transport::Device, why: format!("io_uring is better, but failed: {error}") };
            }
        }
    }
    // Beside io_uring, FORGET and INTERRUPT still come over the device: one reader, wherever there is room.
    let (count, pinned, waiting, follow) = match chosen.transport {
        Transport::IoUring => (1, false, Waiting::Napping, false),
        Transport::Device => {
            let readers = options.readers;
            let count = if readers.threads == 0 { cpus.len().min(MOST_READERS) } else { readers.threads };
            let waiting = if readers.spin.is_zero() { Waiting::Asleep } else { Waiting::Spinning(readers.spin) };
            (count, readers.pinned, waiting, readers.follow)
        }
    };
    let (turns, machine) = (Arc::new(Turns::new(count, follow)), if follow { Machine::new() } else { None });
    for index in 0..count + SPARES {
        let cpu = cpus.get(index % cpus.len().max(1)).copied();
        let follow = cpu.filter(|_| follow).map(|home| (home, machine.clone()));
        let pinned = cpu.filter(|_| pinned && follow.is_none());
        let line = Line { place: Place::new(Arc::clone(&turns), index), follow };
        let reader = Reader::new(core.connection.clone_device()?, Arc::clone(core), waiting)?;
        threads.push(std::thread::Builder::new().name(format!("fuse-reader-{index}")).spawn(move || {
            if let Some(cpu) = pinned {
                affinity::pin(cpu);
            }
            reader.run(line);
        })?);
    }
    Ok((threads, chosen))
}

fn mount_device(device: &OwnedFd, mountpoint: &Path, options: &MountOptions) -> io::Result<()> {
    let mode = std::fs::metadata(mountpoint)?;
    let root_mode = std::os::unix::fs::MetadataExt::mode(&mode) & libc::S_IFMT;
    let allow_other = if options.allow_other { ",allow_other" } else { "" };
    let data = format!(
        "fd={},rootmode={root_mode:o},user_id={},group_id={},default_permissions{allow_other}",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    let kind = format!("fuse.{}", options.subtype);
    let data = CString::new(data)?;
    rustix::mount::mount(options.source.as_str(), mountpoint, kind.as_str(), options.flags, Some(data.as_c_str()))?;
    Ok(())
}

/// Undoes a mount that did not come to life.
struct UnmountOnDrop<'a>(Option<&'a Connection>);

impl UnmountOnDrop<'_> {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for UnmountOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.0 {
            let _ = rustix::mount::unmount(connection.mountpoint(), UnmountFlags::FORCE | UnmountFlags::DETACH);
        }
    }
}

/// Waits for the transport's end, then for the workers', then lets the file system go.
struct Supervisor {
    threads: Vec<JoinHandle<()>>,
    core: Arc<Core>,
    fs: Arc<dyn Filesystem>,
    ended: Arc<(Mutex<bool>, Condvar)>,
}

impl Supervisor {
    fn run(self) {
        for thread in self.threads {
            // A panic was logged and the connection broken off by the thread's own watch.
            let _ = thread.join();
        }
        self.core.connection.set_gone();
        self.core.workers.close();
        self.fs.detach();
        let (ended, changed) = &*self.ended;
        *ended.lock() = true;
        changed.notify_all();
    }
}

impl Mounted {
    /// Waits until the connection has ended and everything is on disk.
    pub fn wait(&self) {
        let (ended, changed) = &*self.ended;
        let mut ended = ended.lock();
        while !*ended {
            changed.wait(&mut ended);
        }
    }

    /// As [`Mounted::wait`], but for so long at most; tells whether it ended.
    pub fn wait_for(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let (ended, changed) = &*self.ended;
        let mut ended = ended.lock();
        while !*ended {
            if changed.wait_until(&mut ended, until).timed_out() {
                break;
            }
        }
        *ended
    }

    /// Unmounts and waits for the end. EBUSY while files are open or a process is in it.
    pub fn unmount(&self) -> io::Result<()> {
        self.take_away(false)?;
        self.wait();
        Ok(())
    }

    /// Takes the mount out of the name space now; it is served until its last file is closed.
    pub fn detach(&self) -> io::Result<()> {
        self.take_away(true)
    }

    /// Unmounts, wherever the mount is now, and waits for nothing. See [`Mounted::unmount`], and with `lazy` [`Mounted::detach`].
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

    /// Breaks the connection off: callers that wait get an error. The mount stays, dead, until it is unmounted.
    pub fn abort(&self) {
        self.connection.abort();
    }

    /// The transport in use.
    pub fn transport(&self) -> Transport {
        self.chosen.transport
    }

    /// Why this transport and not a better one.
    pub fn why(&self) -> &str {
        &self.chosen.why
    }

    /// How many messages of each kind came.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !self.wait_for(Duration::ZERO) {
            let _ = self.detach();
            self.abort();
        }
    }
}
