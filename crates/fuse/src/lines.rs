//! Calls that wait for threads, in a line for each thing that they may have to wait for.
//!
//! A pool that hangs holds whoever makes a call to it. Were all calls in one line, those of others would wait behind hundreds of its. So the
//! next call is of the line that the fewest threads are at, and no line has more than a part of all threads.

use std::collections::VecDeque;
use ullage_fs::WaitsFor;

/// One line. Calls begin in the order in which they came.
#[derive(Debug)]
struct Line<T> {
    of: WaitsFor,
    calls: VecDeque<T>,
    /// Begun, and not done.
    going_on: usize,
    /// The turn in which the last one began.
    turn: u64,
}

/// The lines of a connection: as many as there are pools, and two.
#[derive(Debug)]
pub(crate) struct Lines<T> {
    all: Vec<Line<T>>,
    /// Of one line at a time.
    most: usize,
    turn: u64,
}

impl<T> Lines<T> {
    /// No calls yet, of which `most` may go on in one line.
    pub fn new(most: usize) -> Self {
        Self { all: Vec::new(), most, turn: 0 }
    }

    fn line(&mut self, of: WaitsFor) -> &mut Line<T> {
        let at = self.all.iter().position(|line| line.of == of).unwrap_or_else(|| {
            self.all.push(Line { of, calls: VecDeque::new(), going_on: 0, turn: 0 });
            self.all.len() - 1
        });
        &mut self.all[at]
    }

    /// One more call.
    pub fn push(&mut self, of: WaitsFor, call: T) {
        self.line(of).calls.push_back(call);
    }

    /// The call that came last in a line, if it has not begun.
    pub fn take_back(&mut self, of: WaitsFor) -> Option<T> {
        self.line(of).calls.pop_back()
    }

    /// Calls that may begin.
    pub fn waiting(&self) -> usize {
        self.all.iter().map(|line| line.calls.len().min(self.most - line.going_on)).sum()
    }

    /// The next call, which begins, and its line.
    pub fn begin(&mut self) -> Option<(WaitsFor, T)> {
        let most = self.most;
        let can_begin = |line: &&mut Line<T>| !line.calls.is_empty() && line.going_on < most;
        let next = self.all.iter_mut().filter(can_begin).min_by_key(|line| (line.going_on, line.turn))?;
        self.turn += 1;
        (next.turn, next.going_on) = (self.turn, next.going_on + 1);
        next.calls.pop_front().map(|call| (next.of, call))
    }

    /// A call of this line is done.
    pub fn done(&mut self, of: WaitsFor) {
        self.line(of).going_on -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ullage_types::PoolId;

    const A: WaitsFor = WaitsFor::Pool(PoolId(1));
    const B: WaitsFor = WaitsFor::Pool(PoolId(2));

    #[test]
    fn a_line_in_which_calls_stand_still_keeps_no_other_from_going_on() {
        let mut lines = Lines::new(4);
        (0..100).for_each(|n| lines.push(A, n));
        assert_eq!(lines.waiting(), 4);
        assert_eq!(lines.begin(), Some((A, 0)));
        assert_eq!(lines.begin(), Some((A, 1)));
        lines.push(B, 200);
        lines.push(B, 201);
        assert_eq!(lines.begin(), Some((B, 200)), "nobody is at it");
        lines.done(B);
        assert_eq!(lines.begin(), Some((B, 201)));
        assert_eq!([lines.begin(), lines.begin(), lines.begin()], [Some((A, 2)), Some((A, 3)), None]);
        assert_eq!(lines.waiting(), 0);
        lines.done(A);
        assert_eq!((lines.waiting(), lines.begin()), (1, Some((A, 4))));
    }

    #[test]
    fn lines_that_as_many_are_at_take_turns() {
        let mut lines = Lines::new(4);
        for n in 0..3 {
            lines.push(A, n);
            lines.push(B, 10 + n);
        }
        let order: Vec<_> =
            std::iter::from_fn(|| lines.begin().inspect(|(of, _)| lines.done(*of))).map(|(_, n)| n).collect();
        assert_eq!(order, [0, 10, 1, 11, 2, 12]);
        lines.push(A, 3);
        assert_eq!((lines.take_back(A), lines.take_back(A)), (Some(3), None));
    }
}
