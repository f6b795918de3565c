//! When setuid, setgid and file capabilities go.

use crate::headroom::waiting;
use crate::node::Node;
use crate::space::Space;
use crate::{Caller, Outcome};
use std::path::PathBuf;
use std::sync::Arc;
use ullage_catalog::{Error, Inode, Record};
use ullage_types::Kind;

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;

/// The capability to leave setuid and setgid as they are, and that to see trusted attributes.
const FSETID: u64 = 1 << 4;
const SYS_ADMIN: u64 = 1 << 21;
/// The user name space in which both count for every file.
const FIRST_USERS: &str = "user:[4026531837]";

/// The extended attribute that holds file capabilities.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";

/// Clears what a change by this caller voids: setuid, and setgid, which stays without group execution (where it once marked
/// mandatory locking) as long as the caller is a member of the group.
pub(crate) fn clear(record: &mut Record, caller: Caller) {
    if record.kind == Kind::Directory {
        return;
    }
    record.mode &= !SETUID;
    if record.mode & SETGID != 0 && (record.mode & GROUP_EXECUTE != 0 || !is_member(caller, record.gid)) {
        record.mode &= !SETGID;
    }
}

/// Whether a caller is a member of a group, or as good as that. Only its first group comes with a request; the others, and capabilities, are
/// asked for, which takes long and is needed rarely.
pub(crate) fn is_member(caller: Caller, gid: u32) -> bool {
    caller.gid == gid || {
        let process = Process::of(caller.pid);
        process.as_ref().is_some_and(|process| process.groups.contains(&gid))
            // Those of the name space that we are in count here too.
            || is_capable(caller, process, FSETID, |users| users == users_of("self"))
    }
}

/// Whether a caller may leave setuid and setgid as they are when it writes.
pub fn keeps_set_id(caller: Caller) -> bool {
    is_capable(caller, Process::of(caller.pid), FSETID, |_| false)
}

/// Whether a caller sees that there are trusted attributes. An overlay copies them in the name of who mounted it.
pub(crate) fn sees_trusted(caller: Caller) -> bool {
    is_capable(caller, Process::of(caller.pid), SYS_ADMIN, |_| false)
        || caller.uid == 0 && waiting::copies_up(caller.pid)
}

/// Whether a caller has a capability, in the first name space of users or one that counts as well. Who goes by other rights than its process, as an
/// overlay or a thread of the kernel's own does for others, has it as root.
fn is_capable(
    caller: Caller,
    process: Option<Process>,
    capability: u64,
    counts: impl FnOnce(Option<PathBuf>) -> bool,
) -> bool {
    match process {
        Some(process) if process.has_memory && process.uid == caller.uid => {
            process.effective & capability != 0 && {
                let users = users_of(&caller.pid.to_string());
                users.as_ref().is_some_and(|users| users.as_os_str() == FIRST_USERS) || counts(users)
            }
        }
        _ => caller.uid == 0,
    }
}

/// The name space of users that a process is in.
fn users_of(process: &str) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{process}/ns/user")).ok()
}

/// What the kernel says of a process, or one thread.
struct Process {
    /// By whose rights it goes in file systems.
    uid: u32,
    groups: Vec<u32>,
    /// Capabilities that it uses.
    effective: u64,
    /// Not so of a thread of the kernel's own.
    has_memory: bool,
}

impl Process {
    fn of(pid: u32) -> Option<Self> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let said = |title| status.lines().find_map(|line| line.strip_prefix(title)).map(str::split_ascii_whitespace);
        Some(Self {
            uid: said("Uid:")?.nth(3)?.parse().ok()?,
            groups: said("Groups:")?.filter_map(|group| group.parse().ok()).collect(),
            effective: u64::from_str_radix(said("CapEff:")?.next()?, 16).ok()?,
            has_memory: said("VmSize:").is_some(),
        })
    }
}

/// Whether what a caller asks for without any change is to take away file capabilities only. The kernel asks so before anybody writes who
/// leaves setuid and setgid, and as root for whoever writes in an overlay: it is the process that counts. A thread of the
/// kernel's own acts for others; it has no memory.
pub(crate) fn leaves_set_id(caller: Caller) -> bool {
    let pid = caller.pid;
    let capable = |process: Process| {
        process.effective & FSETID != 0 && process.has_memory && (caller.uid == 0 || caller.uid == process.uid)
    };
    !waiting::changes_owner(pid)
        && Process::of(pid).is_some_and(capable)
        && users_of(&pid.to_string()).is_some_and(|users| users.as_os_str() == FIRST_USERS)
}

/// Whether a change of a file's owner voids what its record has. An overlay that copies a file up gives it its owner last.
pub(crate) fn are_voided_by_owner(record: &Record, caller: Caller) -> bool {
    let any = record.mode & (SETUID | SETGID) != 0 || record.xattrs > 0;
    record.kind != Kind::Directory && any && !waiting::copies_up(caller.pid)
}

impl Space {
    /// Removes file capabilities, which any change of data or owner voids. A directory has none, whatever its attribute says.
    pub(crate) fn drop_capability(&self, inode: &Arc<Inode>) -> Outcome<()> {
        if inode.kind == Kind::Directory || inode.lock().record.xattrs == 0 {
            return Ok(());
        }
        match self.catalog.remove_xattr(inode, CAPABILITY, crate::now(), |_| {}) {
            Ok(()) | Err(Error::NoAttribute) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a caller may void what a request without any change asks to be voided. The kernel sends it before a write, by whoever
    /// holds the file open, and for a chown(2) to nobody, which only the owner may do where there is something to void.
    pub(crate) fn may_void(caller: Caller, node: &Node) -> bool {
        let record = node.inode.record();
        let mut voided = record.clone();
        clear(&mut voided, caller);
        caller.uid == 0
            || caller.uid == record.uid
            || voided.mode == record.mode
            || node.open.lock().writers > 0 && !waiting::changes_owner(caller.pid)
    }

    /// Clears everything that a write by a stranger voids. Gives back whether the mode is another now.
    pub(crate) fn kill_privileges(&self, inode: &Arc<Inode>, stranger: Caller) -> Outcome<bool> {
        self.drop_capability(inode)?;
        let changed = self.catalog.update(inode, |record| {
            let before = record.mode;
            clear(record, stranger);
            if record.mode != before {
                record.ctime = crate::now();
            }
            Ok(record.mode != before)
        })?;
        self.trees.attributes(inode.id);
        Ok(changed)
    }

    /// The same before a WRITE, whose answer carries no mode: by the one that it knows, the kernel would run what is written now with
    /// the rights of the file's owner.
    pub(crate) fn kill_by_write(&self, node: &Node, stranger: Caller) -> Outcome<()> {
        if self.kill_privileges(&node.inode, stranger)?
            && let Some(kernel) = self.kernel()
        {
            kernel.invalidate_node(node.id, -1, 0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SetAttributes;
    use crate::headroom::lend::tests::lending;
    use ullage_catalog::XattrMode;
    use ullage_types::NodeId;

    /// Regression: a stranger's chown(2) to nobody took the attribute from a directory, which has no capabilities to void.
    #[test]
    fn a_directory_keeps_what_would_be_the_capabilities_of_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending(dir.path());
        let stranger = Caller { uid: 1, gid: 1, pid: 1 };
        let top = space.catalog.root().clone();
        for (inode, node, stays) in [(&top, NodeId(1), true), (&node.inode, node.id, false)] {
            space.catalog.set_xattr(inode, CAPABILITY, b"value", XattrMode::Any, crate::now(), |_| {}).unwrap();
            let asked = SetAttributes { kill_privileges: true, ..SetAttributes::default() };
            space.do_setattr(stranger, node, asked).unwrap();
            assert_eq!(space.catalog.xattr(inode, CAPABILITY).is_ok(), stays);
        }
        space.brake.stop();
    }
}
