//! SETXATTR, GETXATTR, LISTXATTR, REMOVEXATTR, with ACLs kept in step with the mode.

use crate::acl::{ACCESS, Acl, DEFAULT};
use crate::headroom::SMALL;
use crate::headroom::waiting;
use crate::privileges::{CAPABILITY, is_member, sees_trusted};
use crate::{Caller, Errno, Outcome, Space, Xattr, hurry};
use std::cell::LazyCell;
use ullage_catalog::{Record, XattrMode};
use ullage_types::{Kind, NodeId};

/// What the VFS allows a value to be.
const VALUE_MAX: usize = 65536;
const SETGID: u32 = 0o2000;
/// To be made and to be there: no attribute is both.
const NEITHER: i32 = libc::XATTR_CREATE | libc::XATTR_REPLACE;
/// The name space that answers questions about the space itself; read-only and not stored.
const OWN: &[u8] = b"user.ullage.";

impl Space {
    pub(crate) fn do_setxattr(
        &self,
        caller: Caller,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        flags: u32,
        kill_setgid: Option<bool>,
    ) -> Outcome<()> {
        check_name(name)?;
        let node = self.node(node)?;
        let inode = node.inode.clone();
        if value.len() > VALUE_MAX {
            return Err(Errno::E2BIG);
        }
        if name.starts_with(OWN) {
            return Err(Errno::EPERM);
        }
        let mode = match flags as i32 {
            NEITHER => return Err(self.catalog.xattr(&inode, name).map_or_else(Errno::from, |_| Errno::EEXIST)),
            0 => XattrMode::Any,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Errno::EINVAL),
        };
        let now = crate::now();
        if name == ACCESS {
            let acl = Acl::decode(value)?;
            let bits = acl.mode();
            // The setgid bit stays only with members of the group, and with who has CAP_FSETID, as root of a user namespace has it: the kernel knows.
            let kill_setgid = kill_setgid.unwrap_or_else(|| !is_member(caller, inode.lock().record.gid));
            let change = |record: &mut Record| {
                record.mode = (record.mode & 0o7000) | bits;
                if kill_setgid {
                    record.mode &= !SETGID;
                }
            };
            if acl.is_mode() {
                match self.catalog.remove_xattr(&inode, name, now, change) {
                    Err(ullage_catalog::Error::NoAttribute) => self.catalog.update(&inode, |record| {
                        let before = record.mode;
                        change(record);
                        if record.mode != before {
                            record.ctime = now;
                        }
                        Ok(())
                    })?,
                    done => done?,
                }
            } else {
                self.asked(SMALL, || self.catalog.set_xattr(&inode, name, value, mode, now, change))?;
            }
            self.trees.attributes(inode.id);
            self.attribute_changed(&node);
            self.mark_again(&node);
            return Ok(());
        }
        if name == DEFAULT {
            if inode.kind != Kind::Directory {
                return Err(Errno::EACCES);
            }
            Acl::decode(value)?;
        }
        self.asked(SMALL, || self.catalog.set_xattr(&inode, name, value, mode, now, |_| {}))?;
        self.attribute_changed(&node);
        Ok(())
    }

    pub(crate) fn do_getxattr(&self, node: NodeId, name: &[u8], size: u32) -> Outcome<Xattr> {
        check_name(name)?;
        let node = self.node(node)?;
        let inode = &node.inode;
        if self.asks_first(&node, name, size) {
            // Any length makes it ask. Where there are some, others want to know how long they are.
            let length = self.catalog.xattr(inode, name).map_or(0, |value| value.len());
            return Ok(Xattr::Length(length.max(1) as u32));
        }
        if let Some(question) = name.strip_prefix(OWN) {
            return sized(self.own_xattr(inode, question)?, size);
        }
        sized(self.catalog.xattr(inode, name)?, size)
    }

    pub(crate) fn do_listxattr(&self, caller: Caller, node: NodeId, size: u32) -> Outcome<Xattr> {
        let inode = self.inode(node)?;
        let mut names = Vec::new();
        let trusted = LazyCell::new(|| sees_trusted(caller));
        for (name, _) in self.catalog.xattrs(&inode)? {
            if name.starts_with(b"trusted.") && !*trusted {
                continue;
            }
            names.extend_from_slice(&name);
            names.push(0);
        }
        sized(names, size)
    }

    pub(crate) fn do_removexattr(&self, caller: Caller, node: NodeId, name: &[u8]) -> Outcome<()> {
        check_name(name)?;
        let node = self.node(node)?;
        let inode = &node.inode;
        if name.starts_with(OWN) {
            return Err(Errno::EPERM);
        }
        if name == CAPABILITY {
            self.passes_brake(caller, &node)?;
        }
        match self.catalog.remove_xattr(inode, name, crate::now(), |_| {}) {
            // The kernel has it removed, and not somebody who wants to see it gone. A write was told that there is one, and maybe need
            // not have asked by now; in an overlay that is an ordinary user's it went with the owner when the file was copied up.
            Err(ullage_catalog::Error::NoAttribute)
                if name == CAPABILITY && !waiting::removes_attribute(caller.pid) =>
            {
                Ok(())
            }
            // The kernel asks for this also when an empty ACL is set.
            Err(ullage_catalog::Error::NoAttribute) if name == ACCESS || name == DEFAULT => Ok(()),
            done => {
                done?;
                self.attribute_changed(&node);
                Ok(())
            }
        }
    }

    /// `user.ullage.*`: what the space knows of a file, for whoever has no tool but getfattr.
    fn own_xattr(&self, inode: &std::sync::Arc<ullage_catalog::Inode>, question: &[u8]) -> Outcome<Vec<u8>> {
        if matches!(question, b"charge" | b"used") {
            if self.has_unmeasured() {
                hurry::may_wait()?;
            }
            self.measure_closed();
        }
        let record = inode.record();
        let answer = match question {
            b"class" => record.class.to_string(),
            b"charge" => record.charge().bytes.0.to_string(),
            b"used" if inode.is_directory() => {
                let now = inode.totals().now();
                now.actual.0.iter().map(|charge| charge.bytes.0).sum::<u64>().to_string()
            }
            b"proof" => self.proof(inode.id).to_string(),
            b"pool" => {
                let place = record.backing.ok_or(Errno::ENODATA)?;
                self.pools.member(place.pool).ok_or(Errno::EIO)?.name.clone()
            }
            _ => return Err(Errno::ENODATA),
        };
        Ok(answer.into_bytes())
    }
}

/// Refuses names of name spaces that no file has, and names with nothing behind the name space, as ext4 does.
fn check_name(name: &[u8]) -> Outcome<()> {
    const SPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    if SPACES.contains(&name) {
        return Err(Errno::EINVAL);
    }
    let known = name == ACCESS || name == DEFAULT || SPACES.iter().any(|space| name.starts_with(space));
    if known { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
}

fn sized(bytes: Vec<u8>, size: u32) -> Outcome<Xattr> {
    if size == 0 {
        Ok(Xattr::Length(bytes.len() as u32))
    } else if bytes.len() > size as usize {
        Err(Errno::ERANGE)
    } else {
        Ok(Xattr::Bytes(bytes))
    }
}
