//! What is held in the ledger for one open file, which of its writes still lack their blocks, and which need none.

use super::given::{Given, Upto};
use crate::lazy::Blank;
use std::ops::Range;
use std::sync::LazyLock;
use ullage_policy::headroom::Counting;

/// What is held for an open file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grant {
    /// In the ledger.
    pub held: u64,
    /// Of it, what no write since the last measurement may have taken.
    unspent: u64,
    /// Of it, what writes under way may still take.
    under_way: u64,
    /// What was ever set aside for writes that are over; how far of that all was written out, or needs not be; and how far it showed in
    /// a measurement. They only grow, so that two who write the file out at a time do not both count for what came between; a few
    /// allocations of all there can be are more than 64 bits hold.
    spent: u128,
    settled: u128,
    shown: u128,
    /// Of it, what stores into a mapping may take, and how many bytes of the file that was counted for.
    kept: u64,
    bare: u64,
    /// Of it, what the map may take while blocks that were given ahead are written out.
    pub given: Given,
    /// Of it, what may be written unseen (`lend.rs`), and what the map of that may grow by before it has its blocks.
    lent: u64,
    owed: u64,
    /// What was written unseen since it was last known to have its blocks.
    unplaced: u64,
    /// Of it, what stores into mappings may fill holes with (`fence.rs`).
    for_holes: u64,
    /// What was held for writes unseen that ended since the last measurement.
    ended_unseen: u64,
    /// How many are under way, those that take nothing too.
    writes: u32,
    /// One of them asked, and goes on unseen: what was set aside for it.
    let_go: Option<u64>,
    /// Written without gaps, to be given its blocks before the next measurement.
    loose: Range<u64>,
    /// What the loose range was counted with.
    counted: u64,
    /// Written and given its blocks: to write to it again takes nothing.
    placed: Range<u64>,
    /// Writes under way that count on it.
    relying: u32,
    /// Of those, what fills with zeros what was never written: nothing may be written there meanwhile.
    filling: u32,
    /// Operations under way that may take blocks away: nothing is placed meanwhile.
    freeing: u32,
    /// How often a look for what is placed was in vain, and how many writes the next one waits for.
    in_vain: (u32, u32),
}

impl Blank for Grant {
    fn blank() -> &'static Self {
        static BLANK: LazyLock<Grant> = LazyLock::new(Grant::default);
        &BLANK
    }
}

/// A look at a file's map costs as much as what it saves: one that was in vain is repeated after twice as many writes.
const MOST_IN_VAIN: u32 = 10;

/// What was set aside for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// So many bytes.
    Held(u64),
    /// Nothing: its blocks are placed.
    Nothing,
}

/// How far the writes to a file had come at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark(u128);

/// What is to be held as long as a file may be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keep {
    /// In the ledger, beyond what is kept already.
    pub bytes: u64,
    /// For so many bytes of the file.
    bare: u64,
}

impl Grant {
    /// Whether a write to this range needs nothing. If so it is under way.
    pub(crate) fn rely(&mut self, range: &Range<u64>) -> bool {
        let placed = self.freeing == 0 && self.placed.start <= range.start && range.end <= self.placed.end;
        self.relying += u32::from(placed);
        self.writes += u32::from(placed);
        placed
    }

    /// Whether it is time to look whether a range is placed.
    pub(crate) fn looks(&mut self) -> bool {
        let due = self.in_vain.1 == 0;
        self.in_vain.1 = self.in_vain.1.saturating_sub(1);
        due && self.freeing == 0
    }

    /// A look was in vain.
    pub(crate) fn looked_in_vain(&mut self) {
        let times = (self.in_vain.0 + 1).min(MOST_IN_VAIN);
        self.in_vain = (times, (1 << times) - 1);
    }

    /// This range was written and has its blocks.
    pub(crate) fn place(&mut self, range: Range<u64>) {
        if self.freeing > 0 {
            return;
        }
        let placed = &self.placed;
        let touch = range.start <= placed.end && placed.start <= range.end;
        self.placed = if touch { placed.start.min(range.start)..placed.end.max(range.end) } else { range };
        self.in_vain = (0, 0);
    }

    /// What was called placed may not all be written.
    pub(crate) fn unplace(&mut self) {
        self.placed = 0..0;
    }

    /// Something may take blocks away from now on. Whether it has to wait, since a write counts on them: then this is to be
    /// asked for again.
    pub(crate) fn free(&mut self) -> bool {
        self.unplace();
        let wait = self.relying > 0;
        self.freeing += u32::from(!wait);
        wait
    }

    /// What has blocks and was never written is about to be filled.
    pub(crate) fn fill(&mut self) {
        self.relying += 1;
        self.writes += 1;
        self.filling += 1;
    }

    /// It was.
    pub(crate) fn filled(&mut self) {
        self.filling -= 1;
        self.ended(Taken::Nothing);
    }

    /// Whether it is being filled.
    pub(crate) fn is_filling(&self) -> bool {
        self.filling > 0
    }

    /// Whether blocks are counted on: what takes some away waits.
    pub(crate) fn counts_on_blocks(&self) -> bool {
        self.relying > 0
    }

    /// It has taken them away.
    pub(crate) fn freed(&mut self) {
        self.freeing -= 1;
    }

    /// What a measurement lets go of.
    pub(crate) fn excess(&self) -> u64 {
        self.held - self.under_way - self.kept - self.lent - self.owed - self.for_holes - self.given.held()
    }

    /// So many bytes were given blocks ahead, of a file that has `all`, and has `grown` since it was measured: of what is held for the writes to
    /// it that are over, and for no data, their map keeps some.
    pub(crate) fn give(&mut self, bytes: u64, all: u64, grown: u64, counting: Counting) {
        let free = self.left(grown);
        self.given.add(bytes, all, free, counting);
    }

    /// What is held for writes that are over, and not for data that they `grew` the file by.
    pub(crate) fn left(&self, grown: u64) -> u64 {
        self.excess().saturating_sub(self.unspent + grown)
    }

    /// What is to be written out so that nothing is held for what was given. Nothing while a write is under way: what it writes to may have been
    /// given already.
    pub(crate) fn given_waits(&self) -> Option<Upto> {
        if self.writes > 0 { None } else { self.given.waits() }
    }

    /// What was set aside for writes that are over, and may be taken yet.
    pub(crate) fn spent(&self) -> u64 {
        (self.spent - self.settled) as u64
    }

    /// How far writes have come that are over: what is written out from now on goes as far as this at least.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.spent)
    }

    /// All was written out as far as this, and what it took shows.
    pub(crate) fn settle(&mut self, Mark(upto): Mark) {
        self.settled = self.settled.max(upto.min(self.spent));
    }

    /// What was written since the last measurement, and shows in the next that `keeps` what is not written out.
    pub(crate) fn shows(&self, keeps: bool) -> u64 {
        ((if keeps { self.settled } else { self.spent }) - self.shown) as u64
    }

    /// What of it the file's blocks, and the map of those, may take beyond what was measured.
    pub(crate) fn grows(&self) -> u64 {
        self.held - self.kept - self.owed - self.given.held()
    }

    /// What is lent.
    pub(crate) fn lent(&self) -> u64 {
        self.lent
    }

    /// So much more was added in the ledger, and may be written unseen.
    pub(crate) fn lend(&mut self, bytes: u64) {
        self.held += bytes;
        self.lent += bytes;
    }

    /// Nothing is written unseen any more.
    pub(crate) fn end_lending(&mut self) {
        self.ended_unseen += std::mem::take(&mut self.lent);
    }

    /// What is held for holes.
    pub(crate) fn for_holes(&self) -> u64 {
        self.for_holes
    }

    /// Nothing is written unseen any more but into holes, which take so much. Gives back how much of that is not held yet.
    pub(crate) fn lend_to_holes(&mut self, bytes: u64) -> u64 {
        let there = self.lent + self.for_holes;
        self.lent = 0;
        self.for_holes = bytes.min(there);
        self.ended_unseen += there - self.for_holes;
        bytes - self.for_holes
    }

    /// So much more was added in the ledger, for holes.
    pub(crate) fn add_for_holes(&mut self, bytes: u64) {
        self.held += bytes;
        self.for_holes += bytes;
    }

    /// So much was written unseen, and the map may still grow by that: what is held for it is taken from what is lent, and then from what was held
    /// for writes that have ended, as far as that is `free`: the next measurement would let go of it.
    pub(crate) fn owe(&mut self, grown: u64, free: u64, counting: Counting) {
        self.unplaced += grown;
        let owes = counting.map_growth(self.unplaced.div_ceil(counting.block), u64::MAX).saturating_sub(self.owed);
        let of_lent = owes.min(self.lent);
        let of_holes = (owes - of_lent).min(self.for_holes);
        let of_ended = (owes - of_lent - of_holes).min(self.ended_unseen).min(free);
        self.lent -= of_lent;
        self.for_holes -= of_holes;
        self.ended_unseen -= of_ended;
        self.owed += of_lent + of_holes + of_ended;
    }

    /// Whether something written unseen may lack its blocks.
    pub(crate) fn owes(&self) -> bool {
        self.owed > 0
    }

    /// How much was.
    pub(crate) fn unplaced(&self) -> u64 {
        self.unplaced
    }

    /// All that was written unseen so far has its blocks, and nothing is held for it any more.
    pub(crate) fn pay(&mut self) {
        (self.owed, self.unplaced) = (0, 0);
    }

    /// The same, but what its map may take is held until the disk has it.
    pub(crate) fn pay_ahead(&mut self) {
        self.given.pay(self.unplaced, self.owed);
        self.pay();
    }

    /// What must be added in the ledger, and kept, before stores come to so many bytes that were never written: with
    /// those known before, or `anew`, when the whole file was looked at.
    pub(crate) fn to_keep(&self, bare: u64, anew: bool, counting: Counting) -> Keep {
        let bare = if anew { bare.max(self.bare) } else { self.bare + bare };
        Keep { bare, bytes: counting.map_growth(bare.div_ceil(counting.block), u64::MAX).saturating_sub(self.kept) }
    }

    /// It was added, and no measurement lets go of it.
    pub(crate) fn keep(&mut self, keep: Keep) {
        self.held += keep.bytes;
        self.kept += keep.bytes;
        self.bare = keep.bare;
    }

    /// Nobody has the file mapped.
    pub(crate) fn unkeep(&mut self) {
        (self.kept, self.bare, self.for_holes) = (0, 0, 0);
    }

    /// Whether something takes blocks away.
    pub(crate) fn is_freeing(&self) -> bool {
        self.freeing > 0
    }

    /// What a write to this range may take beyond what the loose range it goes on from was counted with.
    pub(crate) fn need(&self, range: &Range<u64>, counting: Counting) -> u64 {
        match self.joined(range) {
            Some(whole) => worst(&whole, counting).saturating_sub(self.counted),
            None => worst(range, counting),
        }
    }

    /// Sets `need` aside for a write, if so much is left.
    pub(crate) fn spend(&mut self, need: u64) -> bool {
        let enough = self.unspent >= need;
        if enough {
            self.unspent -= need;
            self.under_way += need;
            self.writes += 1;
        }
        enough
    }

    /// Whether a write is under way.
    pub(crate) fn is_under_way(&self) -> bool {
        self.writes > 0
    }

    /// A write is over.
    pub(crate) fn ended(&mut self, taken: Taken) {
        self.writes -= 1;
        match taken {
            Taken::Held(need) => {
                self.under_way -= need;
                self.spent += u128::from(need);
            }
            Taken::Nothing => self.relying -= 1,
        }
    }

    /// A write that so much was set aside for goes on unseen. Who was let go on before has ended: else this one could not have asked.
    pub(crate) fn let_go(&mut self, need: u64) {
        self.end_let_go();
        self.let_go = Some(need);
    }

    /// Whether a write may go on unseen that asked.
    pub(crate) fn has_let_go(&self) -> bool {
        self.let_go.is_some()
    }

    /// It has ended, if there was one.
    pub(crate) fn end_let_go(&mut self) {
        if let Some(need) = self.let_go.take() {
            self.ended_unseen += need;
            self.ended(Taken::Held(need));
        }
    }

    /// So much was added in the ledger.
    pub(crate) fn add(&mut self, held: u64) {
        self.held += held;
        self.unspent = held;
    }

    /// The file was measured, and so much let go of; it `keeps` what writes that are over may take later.
    pub(crate) fn measured(&mut self, released: u64, keeps: bool) {
        self.held -= released;
        self.kept = self.kept.min(self.held);
        (self.unspent, self.ended_unseen) = (0, 0);
        if !keeps {
            self.settled = self.spent;
        }
        self.shown = self.settled;
    }

    /// A range that takes its blocks later was counted with `need`. Gives back the one before, when they do not touch: it
    /// must have its blocks now.
    pub(crate) fn loosen(&mut self, range: Range<u64>, need: u64) -> Option<Range<u64>> {
        if let Some(whole) = self.joined(&range) {
            self.loose = whole;
            self.counted += need;
            return None;
        }
        self.counted = need;
        let before = std::mem::replace(&mut self.loose, range);
        (!before.is_empty()).then_some(before)
    }

    /// Whether a write goes on from the loose range, or into it.
    pub(crate) fn goes_on(&self, range: &Range<u64>) -> bool {
        self.joined(range).is_some()
    }

    /// Whether something written lacks its blocks.
    pub(crate) fn is_loose(&self) -> bool {
        !self.loose.is_empty()
    }

    /// The file was measured, and the loose range stays so: of what it was counted with, its own blocks are in the measurement.
    pub(crate) fn stays_loose(&mut self, counting: Counting) {
        self.counted = counting.span(self.loose.start, self.loose.end - self.loose.start);
    }

    /// Takes out the range that must have its blocks now.
    pub(crate) fn firm(&mut self) -> Option<Range<u64>> {
        self.counted = 0;
        let loose = std::mem::take(&mut self.loose);
        (!loose.is_empty()).then_some(loose)
    }

    /// Nothing from here on has blocks any more, nor shall it have.
    pub(crate) fn cut(&mut self, size: u64) {
        self.loose.end = self.loose.end.min(size);
    }

    fn joined(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let loose = &self.loose;
        let touch = !loose.is_empty() && range.start <= loose.end && loose.start <= range.end;
        touch.then(|| loose.start.min(range.start)..loose.end.max(range.end))
    }
}

fn worst(range: &Range<u64>, counting: Counting) -> u64 {
    counting.worst(range.start, range.end - range.start)
}
#[cfg(test)]
#[path = "grant_tests.rs"]
mod tests;
