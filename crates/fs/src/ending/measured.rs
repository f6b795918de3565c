//! A backing file is measured, its record brought up to what that says, and it is closed once nobody can write to it.

use crate::headroom::loads::nobody_fills;
use crate::node::Node;
use crate::open_file::{Measure, OpenBacking, OpenFile};
use crate::{Outcome, Space};
use rustix::fs::OFlags;
use std::fs::File;
use std::sync::Arc;
use ullage_kv::Seq;
use ullage_pool::reopen;

impl Space {
    /// Measures a file: one without handles as closely as that can be done, another with all that it owes if this is the `last` look. Gives
    /// back whether there is nothing to wait for.
    pub(crate) fn measure_closely(&self, node: &Node, open: &mut OpenFile, last: bool) -> (bool, Outcome<()>) {
        if open.handles > 0 { (true, self.record_measured(node, open, last)) } else { self.measure_unused(node, open) }
    }

    /// Measures a file without handles, and once more where nobody can write to it any more: nothing is held for mappings then, and all
    /// that was written has its blocks. Gives back whether that is so.
    pub(crate) fn measure_unused(&self, node: &Node, open: &mut OpenFile) -> (bool, Outcome<()>) {
        let measured = self.record_measured(node, open, true);
        let settled = self.is_settled(open);
        if settled {
            self.ends_unseen(open);
            self.place_late(open);
        }
        (settled, measured.and_then(|()| self.record_measure(node, open)))
    }

    /// Whether nobody can write to the backing file any more. Our own descriptor and the kernel's go first, since the
    /// lease would see them; one for reading takes their place.
    pub(crate) fn is_settled(&self, open: &mut OpenFile) -> bool {
        if open.grant.is_loose() {
            return false;
        }
        let Some(backing) = &mut open.backing else { return true };
        if backing.discards || !(backing.written || backing.claimed) {
            return true;
        }
        if backing.writable {
            let Ok(reader) = reopen(&backing.file, OFlags::RDONLY) else { return false };
            self.unregister(backing);
            backing.file = Arc::new(reader.into());
            backing.writable = false;
        }
        // The kernel's own descriptors of ended handles are put away with a delay: a refusal is asked again later.
        nobody_fills(&backing.file)
    }

    /// Nobody can write to a file any more, nor store into a mapping of it.
    pub(crate) fn ends_unseen(&self, open: &mut OpenFile) {
        open.is_mapped_by_nobody();
        if let Some(grant) = open.grant.changed() {
            grant.end_let_go();
        }
        if open.is_fenced() {
            self.end_lending(open, false);
        }
        if let Some(backing) = open.backing.as_deref_mut().filter(|backing| !backing.lends) {
            backing.unseen = false;
        }
    }

    /// Ends the backing file's registration in the kernel, if it has one.
    pub(crate) fn unregister(&self, backing: &mut OpenBacking) {
        if let (Some(id), Some(kernel)) = (backing.registered.take(), self.kernel()) {
            kernel.unregister(id);
        }
    }

    /// Unregisters and closes the backing file.
    ///
    /// Where it is not `settled`, somebody may go on writing: its leaf stays marked, and the next start measures it.
    pub(crate) fn close_backing(&self, open: &mut OpenFile, settled: bool) {
        if let Some(mut backing) = open.backing.take() {
            self.unregister(&mut backing);
            if settled {
                self.end_fence(&mut backing);
            }
            if backing.claimed
                && settled
                && let Ok(pool) = self.pools.get(backing.pool)
            {
                drop(backing.file);
                pool.closed(&backing.binding);
            }
        }
    }

    /// Brings the record up to what the backing file says, if it may have been written or read. What was held for writes that may take
    /// blocks later, and were not written out (`late.rs`), stays so.
    pub(crate) fn record_measure(&self, node: &Node, open: &mut OpenFile) -> Outcome<()> {
        self.record_measured(node, open, false)
    }

    pub(crate) fn record_measured(&self, node: &Node, open: &mut OpenFile, last: bool) -> Outcome<()> {
        let keeps = open.backing.as_deref().is_some_and(|backing| backing.late);
        if open.backing.as_deref().is_none_or(|backing| backing.discards) {
            return Ok(());
        }
        let (written, now) = self.measure(open, last)?;
        let now = self.narrow_to(open, now)?;
        if open.backing.as_deref().is_some_and(|backing| now.blocks < backing.baseline.blocks)
            && let Some(grant) = open.grant.changed()
        {
            // They were taken away unseen.
            grant.unplace();
        }
        let charged = self.charged(open, now);
        let written = Measure { blocks: (written.blocks + charged.blocks).saturating_sub(now.blocks), ..written };
        let now = charged;
        self.owe(open, &now, keeps);
        let excess = open.grant.excess().saturating_sub(if keeps { open.grant.spent() } else { 0 });
        let release = self.narrow_fence(open, &now, excess);
        let Some(backing) = &mut open.backing else { return Ok(()) };
        let is_recorded = node.inode.lock().record.blocks == now.blocks;
        if (written, now) == (backing.baseline, backing.baseline) && release == 0 && is_recorded {
            if backing.recorded == Seq(0) {
                backing.recorded = self.catalog.kv().newest();
            }
            return Ok(());
        }
        let outcome = self.catalog.record_measured(&node.inode, release, |record| {
            crate::attributes::bring_up(record, backing, &written);
            // Also what the file system below found, or let go of, when nobody looked.
            record.blocks = now.blocks;
            Ok(())
        });
        let grown = now.blocks.saturating_sub(backing.baseline.blocks) * 512;
        // Removed or not, what a file had may not show as free yet.
        self.pools.gave_back(backing.pool, backing.baseline.blocks.saturating_sub(now.blocks) * 512);
        backing.baseline = now;
        backing.recorded = self.catalog.kv().newest();
        if !is_recorded && grown == 0 {
            // The kernel has been told otherwise.
            self.show_only(node);
        }
        if outcome.is_ok() {
            self.measured(node.inode.id, open, grown, release, keeps);
        }
        self.move_fence(open);
        Ok(outcome?)
    }
}

/// Whether no descriptor and no mapping can write to a file: only then the kernel grants a read lease on it.
/// `file` must itself be open for reading only. Where the file system has no leases, we cannot know: true.
pub(crate) fn nobody_writes(file: &File) -> bool {
    ullage_pool::probe_lease(file, ullage_pool::Lease::Read) != Err(rustix::io::Errno::AGAIN)
}
