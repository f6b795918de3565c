//! What stat(2) shows: the record, and for files that may have been written since, the backing file.

use crate::node::Node;
use crate::open_file::{Measure, OpenBacking};
use crate::space::FOREVER;
use crate::{Attributes, AttributesFor, Outcome, Space};
use std::sync::Arc;
use std::time::Duration;
use ullage_catalog::{Record, after};
use ullage_types::{FileId, Kind};

/// What `st_size` of a directory is.
const DIRECTORY_SIZE: u64 = ullage_catalog::DIRECTORY_CHARGE;

/// How long the kernel may believe the attributes of a file that may be mapped for writing: of such stores it does not
/// know, so that their times and blocks are seen this late. Not zero, since then every open would ask for the permission
/// bits again.
const WHILE_MAPPED: Duration = Duration::from_millis(10);

/// The same for a file that is only written to. The kernel knows what it writes; the number of blocks may still change when
/// the file system below has found their places.
const WHILE_WRITTEN: Duration = Duration::from_secs(1);

/// The same for one whose writes are to ask us: what is shown is not kept (`mark.rs`).
pub(crate) const WHILE_ASKED: Duration = Duration::ZERO;

impl Space {
    /// A node's attributes now, for whoever asks.
    pub(crate) fn attributes(&self, node: &Arc<Node>) -> Outcome<AttributesFor> {
        let now = attributes_now(node)?;
        if now.lifetime == WHILE_ASKED {
            self.show_only(node);
        }
        Ok(now)
    }
}

/// A node's attributes now.
pub(crate) fn attributes_now(node: &Arc<Node>) -> Outcome<AttributesFor> {
    if node.inode.kind != Kind::Regular {
        return Ok(forever(node.inode.id, &node.inode.lock().record));
    }
    let open = node.open.lock();
    let record = node.inode.record();
    let Some(backing) = &open.backing else { return Ok(forever(node.inode.id, &record)) };
    let record = measured(record, backing)?;
    let attributes = shown(node.inode.id, &record);
    let lifetime = match (backing.mappable, backing.written) {
        _ if open.braked.is_some() => WHILE_ASKED,
        (true, _) => WHILE_MAPPED,
        (false, true) => WHILE_WRITTEN,
        (false, false) => FOREVER,
    };
    Ok(AttributesFor { attributes, lifetime })
}

/// The record as it would be if the backing file were measured now.
pub(crate) fn measured(mut record: Record, backing: &OpenBacking) -> Outcome<Record> {
    if !backing.discards {
        bring_up(&mut record, backing, &Measure::of(&backing.file)?);
    }
    Ok(record)
}

/// Brings a record up to what its backing file says now.
pub(crate) fn bring_up(record: &mut Record, backing: &OpenBacking, now: &Measure) {
    let before = &backing.baseline;
    if now.atime != before.atime && now.atime > record.atime {
        record.atime = now.atime;
    }
    if backing.written {
        if now.mtime != before.mtime {
            record.mtime = now.mtime;
        }
        // What else changes its time there, or its blocks, is not what users do.
        let changed = (now.mtime, now.size, now.blocks) != (before.mtime, before.size, before.blocks);
        if changed && now.ctime != before.ctime {
            // The kernel may give one time to a change of ours and to a write right after it.
            let is_same = now.ctime == record.ctime;
            record.ctime = if is_same { after(record.ctime, now.ctime) } else { record.ctime.max(now.ctime) };
        }
        record.size = now.size;
        record.blocks = now.blocks;
    }
}

pub(crate) fn forever(file: FileId, record: &Record) -> AttributesFor {
    AttributesFor { attributes: shown(file, record), lifetime: FOREVER }
}

/// A record as stat(2) shows it.
pub(crate) fn shown(file: FileId, record: &Record) -> Attributes {
    let charge = record.charge();
    Attributes {
        ino: file.0,
        size: if record.kind == Kind::Directory { DIRECTORY_SIZE } else { record.size },
        blocks: charge.bytes.0 / 512,
        atime: record.atime,
        mtime: record.mtime,
        ctime: record.ctime,
        btime: record.btime,
        mode: record.kind.mode_bits() | record.mode,
        nlink: record.nlink,
        uid: record.uid,
        gid: record.gid,
        rdev: record.rdev,
        block_size: 4096,
    }
}
