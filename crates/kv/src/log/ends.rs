//! The last commits of records: what a record may say of those before it.

use crate::Seq;
use std::collections::VecDeque;

/// Commits that left nothing to write are durable without a record; the next record begins with them. If it said itself that they are, or
/// one after it did, the log would seem to lack them where that one record was lost. So only whole records are said to be durable.
#[derive(Debug)]
pub(super) struct Ends {
    /// The last commit of the newest record that is known to be durable.
    durable: Seq,
    /// Those of the records since. Both files full of them at most: then all is flushed.
    later: VecDeque<Seq>,
}

impl Ends {
    /// Nothing is in the log that is newer than this commit.
    pub fn after(durable: Seq) -> Self {
        Self { durable, later: VecDeque::new() }
    }

    /// A record was written.
    pub fn push(&mut self, last: Seq) {
        self.later.push_back(last);
    }

    /// The newest end of a record that is not beyond `durable`.
    pub fn upto(&mut self, durable: Seq) -> Seq {
        while let Some(last) = self.later.front().copied().filter(|last| *last <= durable) {
            self.durable = last;
            self.later.pop_front();
        }
        self.durable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_records_are_durable() {
        let mut ends = Ends::after(Seq(3));
        assert_eq!(ends.upto(Seq(3)), Seq(3));
        // Commit 4 left nothing to write.
        assert_eq!(ends.upto(Seq(4)), Seq(3));
        ends.push(Seq(6));
        ends.push(Seq(7));
        assert_eq!(ends.upto(Seq(4)), Seq(3));
        assert_eq!(ends.upto(Seq(6)), Seq(6));
        ends.push(Seq(9));
        assert_eq!(ends.upto(Seq(8)), Seq(7));
        assert_eq!(ends.upto(Seq(12)), Seq(9));
    }
}
