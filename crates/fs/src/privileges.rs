//! When setuid, setgid and file capabilities go.

use crate::headroom::waiting;
use crate::node::Node;
use crate::space::Space;
use crate::{Caller, Outcome};
use std::sync::Arc;
use ullage_catalog::{Error, Inode, Record};
use ullage_types::Kind;

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;

/// The capability to leave setuid and setgid as they are, and the user name space in which it counts.
const FSETID: u64 = 1 << 4;
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

/// Whether a caller is a member of a group, or as good as that. Only its first group comes with a request; the others are asked
/// for, which takes long and is needed rarely.
pub(crate) fn is_member(caller: Caller, gid: u32) -> bool {
    caller.uid == 0 || caller.gid == gid || groups(caller.pid).is_some_and(|groups| groups.contains(&gid))
}

fn groups(pid: u32) -> Option<Vec<u32>> {
    let line = said_of(pid, "Groups:")?;
    Some(line.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect())
}

/// What the kernel says of a process under this title.
fn said_of(pid: u32, title: &str) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix(title)).map(|said| said.trim().to_owned())
}

/// Whether what a caller asks for without any change is to take away file capabilities only. The kernel asks so before root writes,
/// who leaves setuid and setgid, and as root for whoever writes in an overlay: it is the process that counts. A thread of the
/// kernel's own acts for others; it has no memory.
pub(crate) fn leaves_set_id(caller: Caller) -> bool {
    let pid = caller.pid;
    let capable = || {
        let capabilities = said_of(pid, "CapEff:").and_then(|said| u64::from_str_radix(&said, 16).ok());
        capabilities.is_some_and(|it| it & FSETID != 0) && said_of(pid, "VmSize:").is_some()
    };
    let users = || std::fs::read_link(format!("/proc/{pid}/ns/user"));
    caller.uid == 0
        && !waiting::changes_owner(pid)
        && capable()
        && users().is_ok_and(|users| users.as_os_str() == FIRST_USERS)
}

/// Whether a change of a file's owner voids what its record has. An overlay that copies a file up gives it its owner last.
pub(crate) fn are_voided_by_owner(record: &Record, caller: Caller) -> bool {
    let any = record.mode & (SETUID | SETGID) != 0 || record.xattrs > 0;
    record.kind != Kind::Directory && any && !waiting::copies_up(caller.pid)
}

impl Space {
    /// Removes file capabilities, which any change of data or owner voids.
    pub(crate) fn drop_capability(&self, inode: &Arc<Inode>) -> Outcome<()> {
        if inode.lock().record.xattrs == 0 {
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
