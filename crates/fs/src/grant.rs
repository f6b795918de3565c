//! What is held in the ledger for one open file, and which of its writes still lack their blocks.

use std::ops::Range;
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
    /// Written without gaps, to be given its blocks before the next measurement.
    loose: Range<u64>,
    /// What the loose range was counted with.
    counted: u64,
}

impl Grant {
    /// What a measurement lets go of.
    pub(crate) fn excess(&self) -> u64 {
        self.held - self.under_way
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
        }
        enough
    }

    /// A write that `need` was set aside for is over.
    pub(crate) fn ended(&mut self, need: u64) {
        self.under_way -= need;
    }

    /// So much was added in the ledger.
    pub(crate) fn add(&mut self, held: u64) {
        self.held += held;
        self.unspent = held;
    }

    /// The file was measured, and so much let go of.
    pub(crate) fn measured(&mut self, released: u64) {
        self.held -= released;
        self.unspent = 0;
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COUNTING: Counting = Counting { block: 4096, map: true };

    #[test]
    fn a_write_that_goes_on_costs_no_map_of_its_own() {
        let mut grant = Grant::default();
        let first = grant.need(&(0..4096), COUNTING);
        assert_eq!(first, COUNTING.worst(0, 4096));
        assert_eq!(grant.loosen(0..4096, first), None);
        assert_eq!(grant.need(&(4096..8192), COUNTING), 4096);
        assert_eq!(grant.need(&(0..4096), COUNTING), 0);
        assert_eq!(grant.need(&(12288..16384), COUNTING), first);
    }

    #[test]
    fn what_does_not_touch_is_to_have_its_blocks_at_once() {
        let mut grant = Grant::default();
        assert_eq!(grant.loosen(0..10, 1), None);
        assert_eq!(grant.loosen(10..20, 1), None);
        assert_eq!(grant.loosen(30..40, 1), Some(0..20));
        assert_eq!(grant.firm(), Some(30..40));
        assert_eq!(grant.firm(), None);
    }

    #[test]
    fn what_was_cut_off_gets_no_blocks() {
        let mut grant = Grant::default();
        grant.loosen(4096..8192, 1);
        grant.cut(5000);
        assert_eq!(grant.firm(), Some(4096..5000));
        grant.loosen(4096..8192, 1);
        grant.cut(0);
        assert_eq!(grant.firm(), None);
    }

    proptest! {
        #[test]
        fn the_loose_range_is_always_counted_at_its_worst(writes in proptest::collection::vec((0u64..1 << 20, 1u64..1 << 16), 1..40)) {
            let mut grant = Grant::default();
            for (start, length) in writes {
                let range = start..start + length;
                let need = grant.need(&range, COUNTING);
                grant.loosen(range, need);
                prop_assert!(grant.counted >= worst(&grant.loose, COUNTING));
            }
        }
    }
}
