//! What waits to be written, in order.

use super::super::{Done, EngineError};
use std::collections::VecDeque;

/// etcd refuses requests above 1.5 MiB by default.
pub(super) const PART_BYTES: usize = 1 << 20;

pub(super) enum Item {
    Batch(Vec<u8>, Done),
    /// All rows, with the batches before it and without those behind it.
    Snapshot(Vec<u8>),
}

#[derive(Default)]
pub(super) struct Queue {
    pub(super) items: VecDeque<Item>,
    /// Number of the commit that the next batches taken will be.
    pub(super) next: u64,
}

/// What is to be done next.
pub(super) enum Task {
    Commit { number: u64, record: Vec<u8>, waiting: Vec<Done> },
    Snapshot { number: u64, state: Vec<u8> },
    Nothing,
}

impl Queue {
    /// As many batches as fit one commit, or the snapshot that comes before them: however many batches there are, it is
    /// written in its turn.
    pub(super) fn take(&mut self) -> Task {
        let (mut record, mut waiting) = (Vec::new(), Vec::new());
        while let Some(item) = self.items.pop_front() {
            match item {
                Item::Snapshot(state) if waiting.is_empty() => return Task::Snapshot { number: self.next, state },
                Item::Batch(bytes, done) if waiting.is_empty() || record.len() + bytes.len() <= PART_BYTES => {
                    record.extend_from_slice(&bytes);
                    waiting.push(done);
                }
                later => {
                    self.items.push_front(later);
                    break;
                }
            }
        }
        if waiting.is_empty() {
            return Task::Nothing;
        }
        let number = self.next;
        if !record.is_empty() {
            self.next += 1;
        }
        Task::Commit { number, record, waiting }
    }

    /// All that waits for a commit, which there will not be.
    pub(super) fn give_up(&mut self) -> Vec<Done> {
        let batch = |item| match item {
            Item::Batch(_, done) => Some(done),
            Item::Snapshot(_) => None,
        };
        self.items.drain(..).filter_map(batch).collect()
    }
}

pub(super) fn refuse(waiting: impl IntoIterator<Item = Done>) {
    for done in waiting {
        done(Err(EngineError::Deposed));
    }
}
