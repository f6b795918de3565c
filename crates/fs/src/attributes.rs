//! What stat(2) shows: the record, and for files that may have been written since, the backing file.

use crate::node::Node;
use crate::open_file::{Measure, OpenBacking, OpenFile};
use crate::space::FOREVER;
use crate::{Attributes, AttributesFor, Outcome, Space, WaitsFor, hurry};
use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;
use ullage_catalog::{Record, after};
use ullage_types::{FileId, Kind, Timestamp};

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
    /// A node's attributes now, for whoever asks. LATER where the calling thread may not wait, and may have to.
    pub(crate) fn attributes(&self, node: &Arc<Node>) -> Outcome<AttributesFor> {
        Ok(self.show_asked(node, self.attributes_if(node, |open| self.shown_at_once(open))?))
    }

    /// The same at the end of what is not to be done once more: whether it may have to wait was asked before.
    pub(crate) fn attributes_then(&self, node: &Arc<Node>) -> Outcome<AttributesFor> {
        Ok(self.show_asked(node, self.attributes_now(node)?))
    }

    fn show_asked(&self, node: &Arc<Node>, now: AttributesFor) -> AttributesFor {
        if now.lifetime == WHILE_ASKED {
            self.show_only(node);
        }
        now
    }

    /// A node's attributes now.
    pub(crate) fn attributes_now(&self, node: &Arc<Node>) -> Outcome<AttributesFor> {
        self.attributes_if(node, |_| Ok(()))
    }

    fn attributes_if(&self, node: &Node, may: impl FnOnce(&OpenFile) -> Outcome<()>) -> Outcome<AttributesFor> {
        if node.inode.kind != Kind::Regular {
            return Ok(forever(node.inode.id, &node.inode.lock().record));
        }
        let open = node.open.lock();
        may(&open)?;
        let record = node.inode.record();
        let Some(backing) = &open.backing else { return Ok(forever(node.inode.id, &record)) };
        let record = self.as_measured(record, backing)?;
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
    fn as_measured(&self, mut record: Record, backing: &OpenBacking) -> Outcome<Record> {
        if !backing.discards {
            bring_up(&mut record, backing, &backing.shown(self.pools.measure(backing)?));
        }
        Ok(record)
    }

    /// Whether what an open file looks like is seen at once, for who can do without.
    pub(crate) fn is_shown_at_once(&self, open: &OpenFile) -> bool {
        open.backing.as_deref().is_none_or(|backing| self.pools.shows_at_once(backing.pool))
    }

    /// LATER where the calling thread may not wait, and may have to, to see what an open file looks like: its pool may ask others for that.
    pub(crate) fn shown_at_once(&self, open: &OpenFile) -> Outcome<()> {
        match &open.backing {
            Some(backing) if !self.pools.shows_at_once(backing.pool) => {
                hurry::may_wait_for(WaitsFor::Pool(backing.pool))
            }
            _ => Ok(()),
        }
    }

    /// The same for who looks only when all is done, and could not be told then.
    pub(crate) fn will_be_shown_at_once(&self, node: &Node) -> Outcome<()> {
        if !self.pools.are_any_remote() || hurry::may_wait().is_ok() {
            return Ok(());
        }
        self.shown_at_once(&node.open.lock())
    }
}

/// Brings a record up to what its backing file says now.
pub(crate) fn bring_up(record: &mut Record, backing: &OpenBacking, now: &Measure) {
    let before = &backing.baseline;
    bring_up_access(record, before, now);
    if backing.written {
        if now.mtime != before.mtime {
            record.mtime = now.mtime;
        }
        if let Some(changed) = changed(before, now) {
            record.ctime = match changed.cmp(&record.ctime) {
                Ordering::Greater => changed,
                // The kernel may give one time to a change of ours and to a write right after it.
                Ordering::Equal => after(record.ctime, changed),
                // Unless that lies ahead, since the clock was put back, it is of a change that came later.
                Ordering::Less if lies_ahead(record.ctime) => changed,
                Ordering::Less => record.ctime,
            };
        }
        record.size = now.size;
        record.blocks = now.blocks;
    }
}

/// When users changed a file that looked like this `before`. What a write does gives both its times; that of change is given later ones by
/// what we do to the file below, which is no change to users.
fn changed(before: &Measure, now: &Measure) -> Option<Timestamp> {
    if now.mtime != before.mtime {
        // Unless somebody has set the one ahead below.
        return Some(now.mtime.min(now.ctime));
    }
    (now.size != before.size && now.ctime != before.ctime).then_some(now.ctime)
}

/// The same for the time of the last read.
pub(crate) fn bring_up_access(record: &mut Record, before: &Measure, now: &Measure) {
    // What was given to the file since is kept, unless it lies ahead: a read brings that back to the clock.
    if now.atime != before.atime && (now.atime > record.atime || lies_ahead(record.atime)) {
        record.atime = now.atime;
    }
}

fn lies_ahead(time: Timestamp) -> bool {
    let now = crate::now();
    // Within a tick a time may be a little ahead of the clock.
    after(time, now) == now && time > now
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headroom::lend::tests::lending;

    /// What was written to a file while its time of change lay ahead left that as it was: who goes by it took the file for unchanged.
    #[test]
    fn what_is_written_after_the_clock_was_put_back_has_a_time_of_change_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let (_space, node) = lending(dir.path());
        let mut open = node.open.lock();
        let backing = open.backing.as_deref_mut().unwrap();
        backing.written = true;
        let clock = crate::now();
        let at = |seconds: i64| Timestamp { seconds: clock.seconds + seconds, ..clock };
        let found = |time| Measure { mtime: time, ctime: time, ..Measure::default() };
        let changed = |had: Timestamp, backing: &mut OpenBacking, before, now| {
            let mut record = Record { ctime: had, ..node.inode.record() };
            backing.baseline = found(before);
            bring_up(&mut record, backing, &found(now));
            record.ctime
        };
        // Written, and put back by a day.
        assert_eq!(changed(at(86_400), backing, at(86_400), at(-1)), at(-1));
        // Changed otherwise, and put back by a day.
        assert_eq!(changed(at(86_400), backing, at(-9), at(-1)), at(-1));
        // Written first, and changed otherwise then.
        assert_eq!(changed(at(-1), backing, at(-9), at(-2)), at(-1));
        assert_eq!(changed(at(-2), backing, at(-9), at(-1)), at(-1));
    }

    /// Regression: what the daemon itself did to a backing file (its owner noted, a name in a tree, blocks given) while a write was not recorded
    /// yet moved the time of change that users see, up to half a minute after the write.
    #[test]
    fn what_is_done_to_the_backing_file_after_a_write_does_not_move_its_time_of_change() {
        let dir = tempfile::tempdir().unwrap();
        let (_space, node) = lending(dir.path());
        let mut open = node.open.lock();
        let backing = open.backing.as_deref_mut().unwrap();
        backing.written = true;
        let at = |seconds| Timestamp { seconds, nanoseconds: 5 };
        backing.baseline = Measure { mtime: at(10), ctime: at(10), ..Measure::default() };
        let ctime = |now: Measure| {
            let mut record = Record { ctime: at(11), ..node.inode.record() };
            bring_up(&mut record, backing, &now);
            record.ctime
        };
        let before = backing.baseline;
        assert_eq!(ctime(Measure { mtime: at(20), ctime: at(20), ..before }), at(20), "written");
        assert_eq!(
            ctime(Measure { mtime: at(20), ctime: at(40), ..before }),
            at(20),
            "written, and noted on the file then"
        );
        assert_eq!(ctime(Measure { ctime: at(40), blocks: 8, ..before }), at(11), "given blocks");
        assert_eq!(ctime(Measure { ctime: at(40), size: 8, ..before }), at(40), "cut or made longer by others");
        assert_eq!(ctime(Measure { mtime: at(60), ctime: at(40), ..before }), at(40), "set ahead below");
    }
}
