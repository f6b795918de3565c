//! What the store's one lock guards.

use crate::layer::{Entry, Layer};
use crate::merge::Merge;
use crate::{Error, Seq};
use std::collections::VecDeque;
use std::sync::Arc;

/// Logged layers smaller than this are merged into one, so that reading looks into few.
const MERGE_ENTRIES: usize = 512;
/// A merged layer grows no further than this.
const MERGED_ENTRIES: usize = 16_384;

#[expect(clippy::struct_excessive_bools, reason = "each is a request or a fact of its own; no two exclude each other")]
/// The changes above the engine, by how far each has come, and the numbers that say so.
pub(super) struct State {
    /// Committed, in no log yet.
    pub pending: Layer,
    /// Being written to the log.
    pub writing: Option<Arc<Layer>>,
    /// Durable in the log, oldest first.
    pub logged: VecDeque<Arc<Layer>>,
    /// Being brought into the engine, oldest first; older than `logged`.
    pub applying: Vec<Arc<Layer>>,
    /// Bytes of all but `pending`.
    pub below_bytes: usize,
    pub newest: Seq,
    /// The newest commit that is in the log, flushed or not.
    pub written: Seq,
    pub durable: Seq,
    /// The newest commit in the engine.
    pub applied: Seq,
    /// The newest commit durable in the engine.
    pub persisted: Seq,
    /// The newest commit that a snapshot holds.
    pub cut: Seq,
    /// Somebody writes the log.
    pub flushing: bool,
    /// How often layers were removed because the engine has them.
    pub removals: u64,
    /// Why nothing more is accepted.
    pub poisoned: Option<String>,
    /// The background thread has been asked to work.
    pub kicked: bool,
    /// A log file was filled: what it holds shall become durable in the engine.
    pub persist_wanted: bool,
    pub stopping: bool,
    /// And writes what is left itself: the store is gone.
    pub left: bool,
}

impl State {
    pub fn new(newest: Seq) -> Self {
        Self {
            pending: Layer::after(newest),
            writing: None,
            logged: VecDeque::new(),
            applying: Vec::new(),
            below_bytes: 0,
            newest,
            written: newest,
            durable: newest,
            applied: newest,
            persisted: newest,
            cut: Seq(0),
            flushing: false,
            removals: 0,
            poisoned: None,
            kicked: false,
            persist_wanted: false,
            stopping: false,
            left: false,
        }
    }

    pub fn check(&self) -> Result<(), Error> {
        self.poisoned.as_ref().map_or(Ok(()), |why| Err(Error::Poisoned(why.clone())))
    }

    pub fn overlay_bytes(&self) -> usize {
        self.pending.bytes() + self.below_bytes
    }

    pub fn layer_count(&self) -> usize {
        self.layers().count()
    }

    /// All layers, newest first.
    pub fn layers(&self) -> impl Iterator<Item = &Layer> {
        std::iter::once(&self.pending)
            .chain(self.writing.as_deref())
            .chain(self.logged.iter().rev().map(Arc::as_ref))
            .chain(self.applying.iter().rev().map(Arc::as_ref))
            .filter(|layer| !layer.is_empty())
    }

    /// The newest entry of a key above the engine.
    pub fn find(&self, key: &[u8]) -> Option<&Entry> {
        self.layers().find_map(|layer| layer.get(key))
    }

    /// The entries above the engine from `start` to before `end`.
    pub fn merge<'a>(&'a self, start: &[u8], end: Option<&[u8]>) -> Merge<'a> {
        Merge::new(self.layers().map(|layer| layer.range(start, end)))
    }

    /// Takes what is pending to be written; it stays readable as `writing`.
    pub fn seal(&mut self) -> Arc<Layer> {
        let mut sealed = std::mem::replace(&mut self.pending, Layer::after(self.newest));
        sealed.last = self.newest;
        let sealed = Arc::new(sealed);
        self.below_bytes += sealed.bytes();
        self.writing = Some(Arc::clone(&sealed));
        sealed
    }

    /// The sealed layer is in the log; where `durably`, it and all before it are flushed.
    pub fn logged(&mut self, sealed: Arc<Layer>, durably: bool) {
        self.writing = None;
        self.written = sealed.last;
        if durably {
            self.durable = sealed.last;
        }
        let small = sealed.len() <= MERGE_ENTRIES;
        // What a snapshot holds is merged with nothing newer: a key set there and removed here would leave no trace in what
        // followers are given, who take it for what comes after the snapshot.
        let cut = self.cut;
        match self.logged.back_mut().filter(|last| last.last > cut).and_then(Arc::get_mut) {
            Some(last) if small && last.len() <= MERGED_ENTRIES => match Arc::try_unwrap(sealed) {
                Ok(sealed) => {
                    self.below_bytes -= last.bytes() + sealed.bytes();
                    last.merge(sealed);
                    self.below_bytes += last.bytes();
                }
                Err(shared) => self.logged.push_back(shared),
            },
            _ => self.logged.push_back(sealed),
        }
    }

    /// What is durable above the engine, oldest first, for a snapshot; and the last commit that it and the engine hold.
    pub fn cut(&mut self) -> (Vec<Arc<Layer>>, Seq) {
        let durable = self.logged.iter().filter(|layer| layer.last <= self.durable);
        let layers: Vec<_> = self.applying.iter().chain(durable).cloned().collect();
        self.cut = layers.last().map_or(self.applied, |layer| layer.last);
        (layers, self.cut)
    }

    /// The sealed layer is durable in the engine, past the log.
    pub fn bypassed(&mut self, sealed: &Layer) {
        self.writing = None;
        self.written = sealed.last;
        self.durable = sealed.last;
        self.applied = sealed.last;
        self.persisted = sealed.last;
        self.below_bytes -= sealed.bytes();
        self.removals += 1;
    }

    /// Takes what is durable in the log to be applied; it stays readable as `applying`. The engine never gets what the
    /// log could still lose.
    pub fn begin_apply(&mut self) -> Vec<Arc<Layer>> {
        debug_assert!(self.applying.is_empty());
        let ready = self.logged.partition_point(|layer| layer.last <= self.durable);
        self.applying = self.logged.drain(..ready).collect();
        self.applying.clone()
    }

    /// What was being applied is in the engine. Gives it back, to be freed without the lock.
    pub fn end_apply(&mut self) -> Vec<Arc<Layer>> {
        let done = std::mem::take(&mut self.applying);
        if let Some(last) = done.last() {
            self.applied = last.last;
            self.below_bytes -= done.iter().map(|layer| layer.bytes()).sum::<usize>();
            self.removals += 1;
        }
        done
    }
}
