//! System calls of the daemon that fail: strace(1) puts an error in the place of the call, so that nothing of it is done.

use crate::run::eventually;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Calls that fail, and with what. Left out are those that move messages, over which the kernel would be told nothing.
pub const CALLS: &[(&str, &[&str])] = &[
    ("openat", &["EIO", "EMFILE", "ENOSPC"]),
    ("pwrite64", &["EIO", "ENOSPC"]),
    ("pread64", &["EIO"]),
    ("ftruncate", &["EIO", "ENOSPC"]),
    ("fallocate", &["EIO", "ENOSPC", "EOPNOTSUPP"]),
    ("fsync", &["EIO", "ENOSPC"]),
    ("fdatasync", &["EIO", "ENOSPC"]),
    ("syncfs", &["EIO"]),
    ("sync_file_range", &["EIO"]),
    ("fgetxattr", &["EIO"]),
    ("fsetxattr", &["EIO", "ENOSPC"]),
    ("fremovexattr", &["EIO"]),
    ("fstat", &["EIO"]),
    ("newfstatat", &["EIO"]),
    ("statx", &["EIO"]),
    ("fstatfs", &["EIO"]),
    ("unlinkat", &["EIO", "EBUSY"]),
    ("linkat", &["EIO", "ENOSPC"]),
    ("renameat2", &["EIO", "ENOSPC"]),
    ("rename", &["EIO", "ENOSPC"]),
    ("mkdirat", &["EIO", "ENOSPC"]),
    ("mkdir", &["EIO", "ENOSPC"]),
    ("getdents64", &["EIO"]),
    ("fcntl", &["EAGAIN"]),
    ("ioctl", &["EIO"]),
    ("copy_file_range", &["EIO", "ENOSPC"]),
    ("utimensat", &["EIO"]),
    ("fchmod", &["EIO"]),
    ("fchown", &["EIO"]),
    ("clone3", &["EAGAIN"]),
];

/// The `nth` call of a kind fails, of every thread.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The system call.
    pub call: String,
    /// The error's name.
    pub errno: String,
    /// Which call, from 1 on.
    pub nth: u32,
}

/// Whether there is strace(1).
pub fn possible() -> bool {
    Command::new("strace").arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// A strace(1) at work.
pub(super) struct Failing {
    strace: Child,
    log: PathBuf,
}

impl Fault {
    /// Lets calls of a process that runs fail from now on.
    pub(super) fn befall(&self, pid: u32, log: PathBuf) -> io::Result<Failing> {
        let strace = self.strace(&log).args(["-p", &pid.to_string()]).spawn()?;
        eventually("every thread is traced", Duration::from_secs(20), || is_traced(pid));
        Ok(Failing { strace, log })
    }

    /// Starts a program whose calls fail from the first on.
    pub(super) fn start(&self, program: &Command, log: PathBuf) -> io::Result<Failing> {
        let strace = self.strace(&log).arg("--").arg(program.get_program()).args(program.get_args()).spawn()?;
        Ok(Failing { strace, log })
    }

    fn strace(&self, log: &Path) -> Command {
        let Self { call, errno, nth } = self;
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-e", "signal=none", "-e", &format!("trace={call}")]);
        strace.args(["-e", &format!("inject={call}:error={errno}:when={nth}"), "-o"]).arg(log);
        strace.stdin(Stdio::null()).stderr(Stdio::null());
        strace
    }
}

impl Failing {
    /// Whether what it started has ended.
    pub fn has_ended(&mut self) -> bool {
        self.strace.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Nothing fails any more, and who was traced goes on. Gives how many calls failed.
    pub fn end(mut self) -> usize {
        // By a kill: it would hand any other signal on to what it started.
        let _ = self.strace.kill();
        let _ = self.strace.wait();
        fs::read_to_string(&self.log).unwrap_or_default().matches("(INJECTED)").count()
    }
}

fn is_traced(pid: u32) -> bool {
    let traced = |thread: fs::DirEntry| {
        let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        status.lines().any(|line| line.strip_prefix("TracerPid:").is_some_and(|tracer| tracer.trim() != "0"))
    };
    fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|threads| threads.flatten().all(traced))
}
