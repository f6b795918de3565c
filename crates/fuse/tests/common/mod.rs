//! Mounting the test file system over a transport, with a time-out and cleaning up.
#![allow(dead_code, missing_docs, clippy::unwrap_used)]

pub mod mirrorfs;

use mirrorfs::{Knobs, MirrorFs};
use rustix::mount::UnmountFlags;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use ullage_fuse::{Choice, MountOptions, Mounted, Readers, Transport, mount};

/// Longest any test may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A way to mount that the suite runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Device,
    OneReader,
    Spinning,
    IoUring,
}

impl Kind {
    pub fn options(self) -> MountOptions {
        let readers = match self {
            Self::OneReader => Readers { threads: 1, pinned: false, spin: Duration::ZERO, follow: false },
            Self::Spinning => Readers { threads: 2, pinned: false, spin: Duration::from_micros(30), follow: false },
            _ => Readers::default(),
        };
        let transport = if self == Self::IoUring { Choice::IoUring } else { Choice::Device };
        MountOptions {
            transport,
            readers,
            enable_uring: self == Self::IoUring,
            subtype: "ullage-test".into(),
            ..MountOptions::default()
        }
    }
}

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// Puts the module's parameter back when the last test that needed it on is over.
struct ParameterOn;

static USERS: Mutex<(usize, String)> = Mutex::new((0, String::new()));

impl ParameterOn {
    fn new() -> Self {
        let mut users = USERS.lock().unwrap();
        if users.0 == 0 {
            users.1 = std::fs::read_to_string(PARAMETER).unwrap_or_default();
        }
        users.0 += 1;
        Self
    }
}

impl Drop for ParameterOn {
    fn drop(&mut self) {
        let mut users = USERS.lock().unwrap();
        users.0 -= 1;
        if users.0 == 0 && users.1.trim() == "N" {
            let _ = std::fs::write(PARAMETER, "N");
        }
    }
}

/// A mounted test file system.
pub struct Mount {
    pub mounted: Mounted,
    pub knobs: Arc<Knobs>,
    pub at: PathBuf,
    pub backing: PathBuf,
    _directory: tempfile::TempDir,
    _parameter: Option<ParameterOn>,
}

impl Mount {
    pub fn new(kind: Kind) -> Self {
        Self::with(kind, kind.options(), Knobs::default())
    }

    pub fn with(kind: Kind, options: MountOptions, knobs: Knobs) -> Self {
        let parameter = (kind == Kind::IoUring).then(ParameterOn::new);
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let (at, backing) = (directory.path().join("mnt"), directory.path().join("backing"));
        std::fs::create_dir(&at).unwrap();
        std::fs::create_dir(&backing).unwrap();
        let knobs = Arc::new(knobs);
        let fs = MirrorFs::new(&backing, Arc::clone(&knobs));
        let mounted = mount(fs, &at, &options).unwrap();
        let wanted = if kind == Kind::IoUring { Transport::IoUring } else { Transport::Device };
        assert_eq!(mounted.transport(), wanted, "{}", mounted.why());
        Self { mounted, knobs, at, backing, _directory: directory, _parameter: parameter }
    }

    /// Unmounts, patiently: a test that forks beside this one holds copies of our files until its child's exec.
    pub fn unmount(&self) {
        for _ in 0..500 {
            match self.mounted.unmount() {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                done => return done.unwrap(),
            }
        }
        panic!("the mount stays busy");
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.at.join(name)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.knobs.stuck.store(false, Ordering::SeqCst);
        let _ = rustix::mount::unmount(&self.at, UnmountFlags::DETACH);
        if !self.mounted.wait_for(Duration::from_secs(5)) {
            self.mounted.abort();
            self.mounted.wait_for(Duration::from_secs(5));
        }
        if !std::thread::panicking() {
            assert_eq!(self.knobs.attached.load(Ordering::SeqCst), 1);
            assert_eq!(self.knobs.detached.load(Ordering::SeqCst), 1);
        }
    }
}

/// Runs a test body with a time-out; mounts left over by a hung one are broken off.
pub fn timed(body: impl FnOnce() + Send + 'static) {
    let _ = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .with_test_writer()
        .try_init();
    let (send, done) = channel();
    let thread = std::thread::spawn(move || {
        body();
        let _ = send.send(());
    });
    match done.recv_timeout(PATIENCE) {
        Ok(()) => thread.join().unwrap(),
        Err(RecvTimeoutError::Disconnected) => std::panic::resume_unwind(thread.join().unwrap_err()),
        Err(RecvTimeoutError::Timeout) => {
            break_off_all();
            panic!("the test did not end within {PATIENCE:?}");
        }
    }
}

/// Breaks off every mount of this test binary's type that this process made.
fn break_off_all() {
    for line in std::fs::read_to_string("/proc/self/mounts").unwrap().lines() {
        let mut fields = line.split(' ');
        if let (Some(_), Some(at), Some("fuse.ullage-test")) = (fields.next(), fields.next(), fields.next()) {
            let _ = rustix::mount::unmount(Path::new(at), UnmountFlags::FORCE | UnmountFlags::DETACH);
        }
    }
}
