//! Which transport this machine can have, and why not a better one.

use crate::options::{Choice, MountOptions};
use std::fmt;
use std::io;

/// The kernel module's parameter.
const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// A way requests travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// FUSE over io_uring: a request is handled on the CPU that sent it.
    IoUring,
    /// Readers of `/dev/fuse`.
    Device,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::IoUring => "io_uring",
            Self::Device => "/dev/fuse",
        })
    }
}

/// The outcome of a choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// What to use.
    pub transport: Transport,
    /// Why it and not a better one, for people.
    pub why: String,
}

impl Transport {
    /// Picks the best transport there is. Switches `enable_uring` on if the options say so; fails only if the options
    /// demand one that is not there.
    pub fn best(options: &MountOptions) -> io::Result<Chosen> {
        if options.transport == Choice::Device {
            return Ok(Chosen { transport: Self::Device, why: "/dev/fuse was asked for".into() });
        }
        match io_uring_available(options.enable_uring) {
            Ok(()) => Ok(Chosen { transport: Self::IoUring, why: "the best there is".into() }),
            Err(why) if options.transport == Choice::IoUring => Err(unusable(why)),
            Err(why) => Ok(Chosen { transport: Self::Device, why: format!("io_uring is better, but {why}") }),
        }
    }
}

/// Whether this kernel has FUSE over io_uring, switched off.
pub fn uring_is_off() -> bool {
    std::fs::read_to_string(PARAMETER).is_ok_and(|value| value.trim() != "Y")
}

/// Why FUSE over io_uring cannot work here, even if it is to be switched on where it is off; that is not done.
///
/// # Errors
/// For people.
pub fn refuse_uring(enable: bool) -> io::Result<()> {
    is_uring_off(enable).map(drop).map_err(unusable)
}

fn unusable(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("FUSE over io_uring cannot be used: {why}"))
}

/// Whether FUSE over io_uring is switched off, and can work; otherwise why not. Where it may not be enabled that is a reason.
fn is_uring_off(enable: bool) -> Result<bool, String> {
    let value = std::fs::read_to_string(PARAMETER).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "this kernel has no FUSE over io_uring (Linux 6.14 and later do)".into(),
        _ => format!("{PARAMETER} cannot be read: {error}"),
    })?;
    crate::uring::probe().map_err(|error| format!("io_uring cannot be set up here: {error}"))?;
    match value.trim() {
        "Y" => Ok(false),
        _ if enable => Ok(true),
        _ => Err("the module parameter enable_uring of fuse is off (--enable-uring switches it on)".into()),
    }
}

/// Has FUSE over io_uring work; otherwise says why it cannot.
fn io_uring_available(enable: bool) -> Result<(), String> {
    if is_uring_off(enable)? {
        std::fs::write(PARAMETER, "Y").map_err(|error| format!("{PARAMETER} cannot be written: {error}"))?;
        tracing::info!("switched the fuse module's parameter enable_uring on, as told");
    }
    Ok(())
}
