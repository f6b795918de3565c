//! What was acknowledged, and so must be there after a crash.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One file's promise.
#[derive(Clone, Debug, Default)]
pub struct Promise {
    /// The file must be found under at least one of these names; with none it need not be there.
    pub names: Vec<String>,
    /// What must not be there: names whose end was made durable.
    pub gone: Vec<String>,
    /// The lowest stamp that each block may have.
    pub stamps: Vec<u64>,
    /// The lowest that an extended attribute of it may say, where it is to have one.
    pub mark: Option<u64>,
}

/// All promises, by tag.
#[derive(Debug, Default)]
pub struct Promises(Mutex<BTreeMap<u64, Promise>>);

impl Promises {
    /// The promises, to change or to look at.
    pub fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Promise>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes one.
    pub fn change(&self, tag: u64, how: impl FnOnce(&mut Promise)) {
        how(self.lock().entry(tag).or_default());
    }
}
