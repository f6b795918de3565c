//! What one transaction changes.

/// One key's new value, or its removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key.
    pub key: Vec<u8>,
    /// Its new value; `None` removes it.
    pub value: Option<Vec<u8>>,
    /// The caller knows that the key did not exist before: a later removal that meets it before it was
    /// written anywhere cancels both.
    pub fresh: bool,
}

/// The changes of one transaction, in order; of several for one key the last one counts.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    changes: Vec<Change>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a key.
    pub fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.changes.push(Change { key, value: Some(value), fresh: false });
    }

    /// Sets a key of which the caller knows that it did not exist.
    pub fn put_new(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.changes.push(Change { key, value: Some(value), fresh: true });
    }

    /// Removes a key.
    pub fn del(&mut self, key: Vec<u8>) {
        self.changes.push(Change { key, value: None, fresh: false });
    }

    /// Whether nothing would change.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The changes, in order.
    pub fn into_changes(self) -> Vec<Change> {
        self.changes
    }
}
