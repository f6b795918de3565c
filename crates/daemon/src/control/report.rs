//! Answers to questions about an open space.

use super::messages::{Answer, ClassUse, DuReport, PoolReport, SpaceUse, StatReport};

use crate::pools::drain;
use crate::pools::ways;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use ullage_catalog::{Inode, TotalsNow};
use ullage_fs::{Filesystem, PoolMember, Space};
use ullage_pool::Locator;
use ullage_types::{Bytes, Class, FileId, NodeId, ROOT};

pub(crate) fn refuse(why: impl std::fmt::Display) -> Answer {
    Answer::Refused { why: why.to_string() }
}

pub(crate) fn space_use(totals: &TotalsNow) -> SpaceUse {
    let classes: Vec<ClassUse> = Class::ALL
        .into_iter()
        .map(|class| ClassUse { class, bytes: totals.actual[class].bytes, inodes: totals.actual[class].inodes })
        .filter(|use_| use_.inodes > 0 || use_.bytes > Bytes(0))
        .collect();
    SpaceUse {
        bytes: classes.iter().map(|use_| use_.bytes).sum(),
        inodes: classes.iter().map(|use_| use_.inodes).sum(),
        classes,
    }
}

pub(crate) fn pool(space: &Space, member: &PoolMember, peer: u32) -> PoolReport {
    let description = member.pool.describe();
    let usage = space.pools().usage(member.id);
    let abilities = description.abilities;
    let (limits, ways) = ways::limits(space, &*member.pool, &description);
    let mut notes = description.notes;
    let others = space.pools().members().filter(|other| other.id != member.id && other.shares_disk(member));
    let others: Vec<&str> = others.map(|other| other.name.as_str()).collect();
    if !others.is_empty() {
        notes
            .push(format!("what is total and free is so together with {}, on the same file system", others.join(", ")));
    }
    PoolReport {
        name: member.name.clone(),
        kind: description.kind.to_owned(),
        layout: description.layout.map(str::to_owned),
        path: member.tree.as_ref().map(|tree| tree.path().to_owned()).or(description.path),
        fs_type: description.fs_type.clone(),
        total: usage.total,
        free: usage.free,
        reserve: member.reserve,
        abilities: abilities.named().into_iter().map(|(name, able)| (name.to_owned(), able)).collect(),
        limits,
        ways,
        notes,
        counters: member.pool.counters().into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        absent: !member.pool.is_there(),
        draining: drain::report(space, member.id, peer),
    }
}

/// Root, the space's owner and a file's own may know all of it; of others who can read it, what it takes.
pub(crate) fn visible(space: &Space, ino: u64, proof: Option<u64>, peer: u32) -> Result<(Arc<Inode>, bool), Answer> {
    let inode = space.catalog().get(FileId(ino)).map_err(refuse)?;
    let owns = peer == 0 || peer == inode.record().uid || peer == rustix::process::geteuid().as_raw();
    if owns || proof == Some(space.proof(inode.id)) {
        Ok((inode, owns))
    } else {
        Err(refuse("it belongs to somebody else; only its owner, root, and who may read it may ask"))
    }
}

pub(crate) fn stat(space: &Space, ino: u64, proof: Option<u64>, peer: u32) -> Answer {
    let (inode, owns) = match visible(space, ino, proof, peer) {
        Ok(found) => found,
        Err(answer) => return answer,
    };
    let record = inode.record();
    let member = record.backing.as_ref().and_then(|backing| space.pools().member(backing.pool));
    let locator = record.backing.as_ref().map(|backing| Locator(backing.locator.clone()));
    // A file that is open may be ahead of its record.
    let (size, charge) = match space.getattr(NodeId(ino), None) {
        Ok(now) => (now.attributes.size, now.attributes.blocks * 512),
        Err(_) => (record.size, record.charge().bytes.0),
    };
    Answer::Stat(StatReport {
        ino,
        kind: record.kind,
        class: record.class,
        uid: record.uid,
        size: Bytes(size),
        charge: Bytes(charge),
        charged_to: record.parent.0,
        pool: member.map(|member| member.name.clone()),
        // In a plain tree that is a name, and may be one in a directory that is closed to others.
        backing: member
            .zip(locator)
            .filter(|_| owns)
            .and_then(|(member, locator)| backing(space, member, &inode, &locator)),
        generation: record.backing.map(|backing| backing.generation.0),
    })
}

/// Where a backing file is: in a plain tree under the name that the file is charged by, once it is there.
fn backing(space: &Space, member: &PoolMember, inode: &Inode, locator: &Locator) -> Option<PathBuf> {
    let stored = member.pool.backing_path(locator)?;
    let Some(tree) = &member.tree else { return Some(stored) };
    let mut record = inode.record();
    let mut names = vec![record.name];
    // While it is held those above it are in memory: each would be loaded with all above it.
    let _above = space.catalog().get(record.parent).ok()?;
    while record.parent != ROOT {
        record = space.catalog().get(record.parent).ok()?.record();
        names.push(record.name);
    }
    let mut plain = tree.path().to_owned();
    plain.extend(names.iter().rev().map(|name| OsStr::from_bytes(name)));
    Some(if plain.symlink_metadata().is_ok() { plain } else { stored })
}

pub(crate) fn du(space: &Space, ino: u64, proof: Option<u64>, peer: u32) -> Answer {
    let inode = match visible(space, ino, proof, peer) {
        Ok((inode, _)) => inode,
        Err(answer) => return answer,
    };
    if !inode.is_directory() {
        return refuse("not a directory");
    }
    space.measure_closed();
    let totals = inode.totals().now();
    let committed = Bytes(totals.actual[Class::Persistent].bytes.0.saturating_add(inode.totals().held()));
    Answer::Du(DuReport { ino, used: space_use(&totals), committed, linked_names: totals.linked })
}
