//! Which transport serves a mount: our own where it can, crate fuser otherwise.

use super::mounts;
use crate::error::io_error;
use crate::{Error, Flags, Result, State, command, quoted};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use ullage_fs::Filesystem;
use ullage_fuse::{
    Choice, FuserMount, FuserOptions, MountFlags, MountOptions, Mounted, mount_with_fuser, refuse_uring,
};

/// Which transport to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// The best there is.
    #[default]
    Auto,
    /// FUSE over io_uring or nothing.
    IoUring,
    /// Our own readers of `/dev/fuse`.
    Device,
    /// Crate fuser.
    Fuser,
}

impl FromStr for TransportChoice {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "io-uring" => Ok(Self::IoUring),
            "device" => Ok(Self::Device),
            "fuser" => Ok(Self::Fuser),
            _ => Err(format!("'{text}' is no transport: use auto, io-uring, device or fuser")),
        }
    }
}

impl std::fmt::Display for TransportChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::IoUring => "io-uring",
            Self::Device => "device",
            Self::Fuser => "fuser",
        })
    }
}

/// How to mount.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServeOptions {
    /// Which transport.
    pub transport: TransportChoice,
    /// Switch the kernel's `enable_uring` on if it is off.
    pub enable_uring: bool,
    /// What mount(8) calls options.
    pub flags: Flags,
}

impl ServeOptions {
    /// Which of our own transports; none is crate fuser.
    fn own(self) -> Option<Choice> {
        match self.transport {
            TransportChoice::Auto if !is_root() => None,
            TransportChoice::Fuser => None,
            TransportChoice::Auto => Some(Choice::Best),
            TransportChoice::IoUring => Some(Choice::IoUring),
            TransportChoice::Device => Some(Choice::Device),
        }
    }

    /// Refuses what this process cannot mount with, before anything is made.
    pub(crate) fn refuse_unmountable(self) -> Result<()> {
        let refused = |text: String| Err(Error::Refused(text));
        match self.own() {
            Some(_) if !is_root() => refused(format!(
                "the transport {} is for root: others mount through fusermount3, with crate fuser; leave --transport out",
                self.transport
            )),
            Some(Choice::IoUring) => refuse_uring(self.enable_uring).or_else(|error| refused(error.to_string())),
            // Its helper has no such option, and passing over it would let through what was to be kept out.
            None if self.flags.0.contains(MountFlags::NOSYMFOLLOW) => {
                refused("nosymfollow is for mounts of root's without crate fuser: leave it out".to_owned())
            }
            _ => Ok(()),
        }
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

enum Server {
    Own(Mounted),
    Fuser(FuserMount),
}

/// A served mount, whatever serves it.
pub(crate) struct Mount {
    server: Server,
    point: PathBuf,
    state: State,
    why: String,
    /// Nobody used it, and it was unmounted. Held while that is done.
    ends: Mutex<bool>,
}

impl Mount {
    /// Mounts `fs`, shown as coming from its state.
    pub(crate) fn new(fs: Arc<dyn Filesystem>, point: &Path, state: &State, options: ServeOptions) -> Result<Self> {
        let privileged = is_root();
        let source = state.dir().display().to_string();
        let (server, why) = match options.own() {
            Some(transport) => {
                let wanted = MountOptions {
                    source,
                    transport,
                    enable_uring: options.enable_uring,
                    allow_other: privileged,
                    flags: options.flags.0,
                    ..MountOptions::default()
                };
                let mounted = ullage_fuse::mount(fs, point, &wanted).map_err(io_error("mount on", point))?;
                let why = mounted.why().to_owned();
                (Server::Own(mounted), why)
            }
            None => {
                let threads = std::thread::available_parallelism().map_or(4, usize::from).max(4);
                let wanted = FuserOptions { name: source, threads, allow_other: privileged, flags: options.flags.0 };
                let mounted = mount_with_fuser(fs, point, &wanted).map_err(io_error("mount on", point))?;
                let why =
                    if privileged { "fuser was asked for" } else { "without root, mounts go through fusermount3" };
                (Server::Fuser(mounted), why.to_owned())
            }
        };
        Ok(Self { server, point: point.to_owned(), state: state.clone(), why, ends: Mutex::new(false) })
    }

    /// Waits until the mount has ended and everything is on disk.
    pub(crate) fn wait(&self) -> Result<()> {
        match &self.server {
            Server::Own(mounted) => {
                mounted.wait();
                Ok(())
            }
            Server::Fuser(mounted) => mounted.join().map_err(io_error("serve", &self.point)),
        }
    }

    /// Unmounts; [`Error::Refused`] says what to do while it is in use. Who comes when somebody else has done so has what he wants.
    pub(crate) fn unmount(&self, lazy: bool) -> Result<()> {
        if lazy {
            // Not behind one that takes long; and if that has done it, not in vain.
            return self.take_away(true).or_else(|error| if *self.ends.lock() { Ok(()) } else { Err(error) });
        }
        let mut ends = self.ends.lock();
        if !*ends {
            self.take_away(false)?;
            *ends = true;
        }
        Ok(())
    }

    fn take_away(&self, lazy: bool) -> Result<()> {
        let outcome = match &self.server {
            Server::Own(mounted) => mounted.take_away(lazy),
            Server::Fuser(mounted) => mounted.take_away(lazy),
        };
        outcome.map_err(|error| match error.kind() {
            io::ErrorKind::ResourceBusy => {
                let point = self.place();
                Error::Refused(format!(
                    "{} is in use; `fuser -vm {}` shows by whom, `{}` does not wait for them",
                    point.display(),
                    quoted(&point),
                    command("down --lazy", &self.state, &point)
                ))
            }
            _ => io_error("unmount", &self.point)(error),
        })
    }

    /// Where it is now: a directory above it may have been renamed, and another space be mounted where it was.
    fn place(&self) -> PathBuf {
        let seen = mounts::points_of(&self.state, self.state.dir()).unwrap_or_default();
        let other = || seen.first().filter(|_| !seen.contains(&self.point)).cloned();
        other().unwrap_or_else(|| self.point.clone())
    }

    /// Major and minor number of its device.
    pub(crate) fn device(&self) -> Option<(u32, u32)> {
        match &self.server {
            Server::Own(mounted) => mounted.device(),
            Server::Fuser(mounted) => mounted.device(),
        }
    }

    /// Whether it was taken away from its mount point, and goes on for its last users.
    pub(crate) fn is_away(&self) -> bool {
        match &self.server {
            Server::Own(mounted) => mounted.is_away(),
            Server::Fuser(mounted) => mounted.is_away(),
        }
    }

    /// The transport's name.
    pub(crate) fn transport(&self) -> String {
        match &self.server {
            Server::Own(mounted) => mounted.transport().to_string(),
            Server::Fuser(_) => "fuser".into(),
        }
    }

    /// Why this transport.
    pub(crate) fn why(&self) -> &str {
        &self.why
    }

    /// Requests by name.
    pub(crate) fn messages(&self) -> BTreeMap<String, u64> {
        let counters = match &self.server {
            Server::Own(mounted) => mounted.counters(),
            Server::Fuser(mounted) => mounted.counters(),
        };
        counters.snapshot().into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
    }
}
