//! Limited files that can be mapped in the kernel, where its own quota stops what nobody sees (DESIGN, "Exact limits on a data path we
//! don't see", the first way).
//!
//! What is stored into a mapping asks nobody. Where the pool has fences ([`ullage_pool::Fences`]) a handle that reads and writes is lent
//! room all the same (`lend.rs`): a fence around the file is always as wide as what the ledger holds for it, and moves with that. It
//! is narrowed before anything is given back, and widened after more is held.
//!
//! Near the limit its calls ask one by one, as those of any file that is lent room. Stores cannot; so what its holes may still take
//! stays held, as far as there is room, and beyond that the kernel answers a store as it does where a quota is used up.

use super::holes::Holes;
use crate::node::Node;
use crate::open_file::{Measure, OpenBacking, OpenFile};
use crate::{Caller, Outcome, Space};
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use ullage_policy::headroom::{Counting, fence};
use ullage_pool::Fences;
use ullage_types::PoolId;

/// See [`beside`].
const BESIDE: u64 = 64 << 10;

impl Space {
    fn fences(&self, pool: PoolId) -> Option<&Fences> {
        self.pools.get(pool).ok()?.fences().ok()
    }

    /// Whether what a process stores into mappings of a file can be stopped.
    pub(crate) fn can_fence(&self, caller: Caller, open: &OpenFile) -> bool {
        let fences = open.backing.as_deref().and_then(|backing| self.fences(backing.pool));
        fences.is_some_and(|fences| fences.binds_root() || caller.uid != 0)
    }

    /// Puts a file that was just lent room into a fence. Gives back whether it is in one.
    pub(crate) fn enclose(&self, open: &mut OpenFile) -> bool {
        let enclosed = self.try_enclose(open);
        if let Err(error) = &enclosed {
            tracing::debug!(%error, "a file gets no fence");
        }
        enclosed.unwrap_or(false)
    }

    fn try_enclose(&self, open: &mut OpenFile) -> io::Result<bool> {
        let Some(width) = self.width(open) else { return Ok(false) };
        let Some(backing) = &mut open.backing else { return Ok(false) };
        let Some(fences) = self.fences(backing.pool) else { return Ok(false) };
        if let Some(fence) = &mut backing.fence {
            fences.set(fence, Some(width))?;
            return Ok(true);
        }
        let before = Measure::of(&backing.file)?;
        backing.fence = fences.enclose(&backing.file, width)?;
        // That it changes the file's times is no news of its data.
        if before == backing.baseline {
            backing.baseline = Measure::of(&backing.file)?;
        }
        Ok(backing.fence.is_some())
    }

    /// How wide the fence of a file is to be.
    fn width(&self, open: &OpenFile) -> Option<u64> {
        self.width_at(open, open.backing.as_deref()?.baseline.blocks, 0)
    }

    /// The same of one that has so many blocks, when so much of what is held is given back.
    fn width_at(&self, open: &OpenFile, blocks: u64, released: u64) -> Option<u64> {
        let (_, counting) = self.counting_of(open)?;
        Some(blocks * 512 + fence(counting, open.grant.grows().saturating_sub(released)))
    }

    /// Moves a file's fence to where the ledger has it, after more was held or it was measured.
    pub(crate) fn move_fence(&self, open: &mut OpenFile) {
        if is_enclosed(open) {
            let width = self.width(open);
            self.set_fence(open, width);
        }
    }

    /// Narrows a file's fence before so much of what is held is given back, now that this was measured. What the file grew by
    /// meanwhile is not given back; gives back what is.
    pub(crate) fn narrow_fence(&self, open: &mut OpenFile, now: &Measure, release: u64) -> u64 {
        if release == 0 || !is_enclosed(open) {
            return release;
        }
        let Some((_, counting)) = self.counting_of(open) else { return release };
        let narrow = self.width_at(open, now.blocks, release);
        if !self.set_fence(open, narrow) {
            return 0;
        }
        let Some(after) = open.backing.as_deref().and_then(|backing| Measure::of(&backing.file).ok()) else { return 0 };
        let grown = after.blocks.saturating_sub(now.blocks) * 512;
        if grown == 0 {
            return release;
        }
        let release = release.saturating_sub(counting.worst(0, grown));
        let wide = self.width_at(open, now.blocks, release);
        self.set_fence(open, wide);
        release
    }

    /// A file was measured that may have lost blocks: its fence is narrowed before anybody else is given those. What was stored until then is
    /// part of what this gives back.
    pub(crate) fn narrow_to(&self, open: &mut OpenFile, now: Measure) -> Outcome<Measure> {
        let had = open.backing.as_deref().map_or(0, |backing| backing.baseline.blocks);
        if now.blocks >= had || !is_enclosed(open) {
            return Ok(now);
        }
        let Some(width) = self.width_at(open, now.blocks, 0) else { return Ok(now) };
        if !self.set_fence(open, Some(width)) {
            return Ok(Measure { blocks: had, ..now });
        }
        Ok(open.backing.as_deref().map_or(Ok(now), |backing| Measure::of(&backing.file))?)
    }

    /// No limit bounds a file any more.
    pub(crate) fn lift_fence(&self, open: &mut OpenFile) {
        if is_enclosed(open) {
            self.set_fence(open, None);
        }
    }

    fn set_fence(&self, open: &mut OpenFile, width: Option<u64>) -> bool {
        let Some(backing) = &mut open.backing else { return false };
        let Some((fences, fence)) = self.fences(backing.pool).zip(backing.fence.as_mut()) else { return false };
        let moved = fences.set(fence, width);
        if let Err(error) = &moved {
            tracing::error!(%error, file = %backing.binding.file, "a fence could not be moved");
        }
        moved.is_ok()
    }

    /// Nobody can write to a file unseen any more, or it has no name and is nobody's.
    pub(crate) fn end_fence(&self, backing: &mut OpenBacking) {
        if let Some((fence, fences)) = backing.fence.take().zip(self.fences(backing.pool)) {
            fences.end(fence, &backing.file);
        }
    }

    /// What is lent to a file in a fence is asked back, but for what its holes take.
    pub(crate) fn lend_to_holes(&self, open: &mut OpenFile) {
        let holes = self.holes_of(open);
        open.grant.lend_to_holes(holes);
    }

    /// A limit was lowered: nothing is held for holes but what there is room for.
    pub(crate) fn hold_for_holes_anew(&self, node: &Arc<Node>) -> Outcome<()> {
        let mut open = node.open.lock();
        if !open.is_fenced() || open.grant.lent() > 0 {
            return Ok(());
        }
        open.grant.lend_to_holes(0);
        self.record_measure(node, &mut open)?;
        self.hold_for_holes(node, &mut open)
    }

    /// Brings what is held for the holes of a file whose calls ask to what they take: half of what is left at most.
    pub(crate) fn hold_for_holes(&self, node: &Arc<Node>, open: &mut OpenFile) -> Outcome<()> {
        let Some((pool, _)) = self.counting_of(open).filter(|_| open.grant.lent() == 0) else { return Ok(()) };
        let holes = self.holes_of(open);
        let held = open.grant.for_holes();
        let room = self.room_of(&node.inode, pool)?.unwrap_or(u64::MAX);
        let share = room.saturating_add(held) / 2;
        let missing = open.grant.lend_to_holes(holes.min(share.max(room)));
        if missing == 0 {
            // What fewer holes, or more of others, leave is given back.
            return self.record_measure(node, open);
        }
        let more = missing.min(share.saturating_sub(held));
        if more > 0 {
            self.hold_for(node, pool, more)?;
            open.grant.add_for_holes(more);
            self.move_fence(open);
        }
        Ok(())
    }

    /// What the holes of a file may take.
    fn holes_of(&self, open: &OpenFile) -> u64 {
        let counted = |counting: Counting| {
            let file = &open.backing.as_deref()?.file;
            let holes = Holes::of(file, 0..Measure::of(file).ok()?.size, counting.block).ok()?;
            Some(Holes { extents: u64::MAX, ..holes }.cost(counting))
        };
        self.counting_of(open).and_then(|(_, counting)| counted(counting)).unwrap_or(0)
    }
}

/// Gives the holes of a range their blocks, one by one: a quota counts all that is asked for at once, what is there already too.
pub(crate) fn fill_holes(file: &File, range: Range<u64>, block: u64, mode: FallocateFlags) -> Outcome<()> {
    for hole in Holes::of(file, range.clone(), block)?.ranges {
        let (start, end) = (hole.start.max(range.start), hole.end.min(range.end));
        rustix::fs::fallocate(file, mode | FallocateFlags::KEEP_SIZE, start, end - start)?;
    }
    if !mode.contains(FallocateFlags::KEEP_SIZE) && Measure::of(file)?.size < range.end {
        rustix::fs::ftruncate(file, range.end)?;
    }
    Ok(())
}

/// What is held beside what a call to a file in a fence may take: file systems ask their quota for more than they then need.
pub(crate) fn beside(open: &OpenFile) -> u64 {
    if is_enclosed(open) { BESIDE } else { 0 }
}

/// Whether a file is in a fence that is not lifted.
pub(crate) fn is_enclosed(open: &OpenFile) -> bool {
    let fence = open.backing.as_deref().and_then(|backing| backing.fence.as_ref());
    fence.is_some_and(|fence| fence.width().is_some())
}
