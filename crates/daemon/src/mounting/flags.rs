//! The options that mount(8) and fstab(5) have for every file system, by their names.

use crate::Result;
use crate::error::io_error;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use ullage_fuse::MountFlags;

/// What a mount allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(pub MountFlags);

/// What a mount shows and does not do: the kernel hands neither on.
const UNDONE: MountFlags = MountFlags::SYNCHRONOUS.union(MountFlags::DIRSYNC);

/// Each flag with the name that sets it and the one that takes it back.
const NAMES: [(MountFlags, &str, &str); 12] = [
    (MountFlags::RDONLY, "ro", "rw"),
    (MountFlags::NOSUID, "nosuid", "suid"),
    (MountFlags::NODEV, "nodev", "dev"),
    (MountFlags::NOEXEC, "noexec", "exec"),
    (MountFlags::SYNCHRONOUS, "sync", "async"),
    (MountFlags::DIRSYNC, "dirsync", ""),
    (MountFlags::NOATIME, "noatime", "atime"),
    (MountFlags::NODIRATIME, "nodiratime", "diratime"),
    (MountFlags::RELATIME, "relatime", "norelatime"),
    (MountFlags::STRICTATIME, "strictatime", "nostrictatime"),
    (MountFlags::LAZYTIME, "lazytime", "nolazytime"),
    (MountFlags::NOSYMFOLLOW, "nosymfollow", "symfollow"),
];

impl Default for Flags {
    fn default() -> Self {
        Self(MountFlags::empty())
    }
}

impl Flags {
    /// Sets or takes back what this option means; false when it is none of these.
    pub fn apply(&mut self, option: &str) -> bool {
        let known = NAMES.iter().find(|(_, set, clear)| option == *set || (option == *clear && !clear.is_empty()));
        if let Some((flag, set, _)) = known {
            self.0.set(*flag, option == *set);
        }
        known.is_some()
    }

    /// These, unless who mounts would rely on what is not done.
    ///
    /// # Errors
    /// What to do instead.
    pub fn if_done(self) -> std::result::Result<Self, String> {
        if !self.0.intersects(UNDONE) {
            return Ok(self);
        }
        Err("a space cannot be mounted with 'sync' or 'dirsync': the kernel keeps FUSE file systems to neither. Leave them out, and have the \
             programs ask: open(2) with O_SYNC or O_DSYNC, and fsync(2), are obeyed"
            .to_owned())
    }
}

/// Changes what a mount allows.
///
/// # Errors
/// When nothing is mounted there, or this user may not.
pub fn remount(mountpoint: &Path, flags: Flags) -> Result<()> {
    let remounted = rustix::mount::mount_remount(mountpoint, flags.0, "");
    remounted.map_err(|errno| io_error("remount", mountpoint)(errno.into()))
}

impl FromStr for Flags {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let mut flags = Self::default();
        for option in text.split(',').filter(|option| !option.is_empty() && *option != "defaults") {
            if !flags.apply(option) {
                let done = NAMES.iter().filter(|(flag, ..)| !UNDONE.contains(*flag));
                let names: Vec<_> = done.map(|(_, set, _)| *set).collect();
                return Err(format!("'{option}' is no option that is known here: use {}", names.join(", ")));
            }
        }
        flags.if_done()
    }
}

/// As [`FromStr`] reads it.
impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set: Vec<_> = NAMES.iter().filter(|(flag, ..)| self.0.contains(*flag)).map(|(_, set, _)| *set).collect();
        f.write_str(if set.is_empty() { "rw".to_owned() } else { set.join(",") }.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_as_they_are_printed_and_the_last_one_counts() {
        let flags: Flags = "defaults,ro,nosuid,suid,,noexec".parse().unwrap();
        assert_eq!(flags.0, MountFlags::RDONLY | MountFlags::NOEXEC);
        assert_eq!(flags.to_string(), "ro,noexec");
        assert_eq!(flags.to_string().parse(), Ok(flags));
        assert_eq!(Flags::default().to_string().parse(), Ok(Flags::default()));
        assert!("ro,quota".parse::<Flags>().unwrap_err().contains("'quota'"));
    }

    /// Regression: `sync` and `dirsync` were accepted and shown by mount(8), and nothing was written sooner.
    #[test]
    fn options_that_would_do_nothing_are_refused() {
        for options in ["sync", "ro,dirsync", "async,sync"] {
            assert!(options.parse::<Flags>().unwrap_err().contains("O_SYNC"), "{options}");
        }
        assert_eq!("sync,async".parse(), Ok(Flags::default()), "the last one counts");
        let names = "quota".parse::<Flags>().unwrap_err();
        assert!(names.contains("noexec") && !names.contains("sync"), "{names}");
    }
}
