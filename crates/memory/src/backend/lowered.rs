//! The limit of a group while it is lowered, and how all is set back: by who lowered it, or by who cleans up after a kill.

use crate::error::Result;
use crate::sys;
use crate::system::{keyed, read, write};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const LIMIT: &str = "memory.limit_in_bytes";
const OUT_OF_MEMORY: &str = "memory.oom_control";

/// A group without a limit of its own. While it has one the kernel ends nobody for it: who lowered it may be held up before it
/// is set back. What a process touches meanwhile is only late; a system call for which nothing can be evicted is refused memory.
pub struct Lowered {
    group: PathBuf,
    /// Whether the kernel ends processes of this group when it is out of memory, as it does where nobody has told it otherwise.
    kills: bool,
}

impl Lowered {
    /// Whether this user may do it, and undo it.
    pub fn may_be(group: &Path) -> bool {
        sys::may_write(&group.join(LIMIT)) && sys::may_write(&group.join(OUT_OF_MEMORY))
    }

    /// What will have to be set back.
    pub fn about_to(group: &Path) -> Result<Self> {
        let control = read(group.join(OUT_OF_MEMORY))?;
        Ok(Self { group: group.to_owned(), kills: keyed(&control, "oom_kill_disable") == 0 })
    }

    /// As it is written down before.
    pub fn note(&self) -> Vec<u8> {
        let limit = self.group.join(LIMIT);
        [if self.kills { b"kills " } else { b"waits " }, limit.as_os_str().as_bytes()].concat()
    }

    /// From a note; those of earlier versions, which left alone whom the kernel ends, are the file of the limit.
    pub fn noted(note: &[u8]) -> Option<Self> {
        let (kills, limit) = match (note.strip_prefix(b"kills "), note.strip_prefix(b"waits ")) {
            (Some(limit), _) => (true, limit),
            (_, Some(limit)) => (false, limit),
            _ => (false, note),
        };
        let limit = Path::new(OsStr::from_bytes(limit));
        let known = limit.file_name() == Some(OsStr::new(LIMIT)) && sys::is_cgroup(limit);
        Some(Self { group: limit.parent().filter(|_| known)?.to_owned(), kills })
    }

    /// Lowers the limit.
    pub fn lower(&self, bytes: u64) -> Result<()> {
        if self.kills {
            write(self.group.join(OUT_OF_MEMORY), "1")?;
        }
        write(self.group.join(LIMIT), &bytes.to_string()).inspect_err(|_| {
            if self.kills {
                let _as_it_was = write(self.group.join(OUT_OF_MEMORY), "0");
            }
        })
    }

    /// Sets all back.
    pub fn set_back(&self) -> Result<()> {
        write(self.group.join(LIMIT), "-1")?;
        if self.kills { write(self.group.join(OUT_OF_MEMORY), "0") } else { Ok(()) }
    }
}
