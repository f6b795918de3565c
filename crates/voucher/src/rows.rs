//! Durable state as rows of a key-value table: a tag byte, fields that sort, and a postcard value.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// One change of the durable state. All writes of one step belong into one transaction, which must be durable
/// before any action of that step leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The row.
    pub key: Vec<u8>,
    /// Its new value, or nothing to remove it.
    pub value: Option<Vec<u8>>,
}

/// Why a state cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// A row that does not decode.
    #[error("row {0:02x?} of the saved state is damaged")]
    Row(Vec<u8>),
    /// The row that every state has is missing.
    #[error("the saved state has no head row")]
    NoHead,
}

/// As long as the longest key.
const KEY_BYTES: usize = 33;

/// As long as most values: what grows while it is written is moved again and again.
const VALUE_BYTES: usize = 40;

/// Builds a key: big-endian fields sort as their numbers do.
#[derive(Clone, Debug)]
pub(crate) struct Key(Vec<u8>);

impl Key {
    pub(crate) fn new(tag: u8) -> Self {
        let mut key = Vec::with_capacity(KEY_BYTES);
        key.push(tag);
        Self(key)
    }

    pub(crate) fn u64(mut self, field: u64) -> Self {
        self.0.extend_from_slice(&field.to_be_bytes());
        self
    }

    pub(crate) fn u32(mut self, field: u32) -> Self {
        self.0.extend_from_slice(&field.to_be_bytes());
        self
    }

    pub(crate) fn put<T: Serialize>(self, value: &T) -> Write {
        let value = postcard::to_extend(value, Vec::with_capacity(VALUE_BYTES)).expect("plain values always encode");
        Write { key: self.0, value: Some(value) }
    }

    pub(crate) fn remove(self) -> Write {
        Write { key: self.0, value: None }
    }
}

/// Reads the fields back off a key, and the value.
pub(crate) struct Row<'a> {
    key: &'a [u8],
    rest: &'a [u8],
    value: &'a [u8],
}

impl<'a> Row<'a> {
    pub(crate) fn new(key: &'a [u8], value: &'a [u8]) -> Self {
        Self { key, rest: key.get(1..).unwrap_or_default(), value }
    }

    pub(crate) fn tag(&self) -> u8 {
        self.key.first().copied().unwrap_or_default()
    }

    pub(crate) fn damaged(&self) -> LoadError {
        LoadError::Row(self.key.to_vec())
    }

    pub(crate) fn u64(&mut self) -> Result<u64, LoadError> {
        let (head, tail) = self.rest.split_first_chunk().ok_or_else(|| self.damaged())?;
        self.rest = tail;
        Ok(u64::from_be_bytes(*head))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, LoadError> {
        let (head, tail) = self.rest.split_first_chunk().ok_or_else(|| self.damaged())?;
        self.rest = tail;
        Ok(u32::from_be_bytes(*head))
    }

    pub(crate) fn value<T: DeserializeOwned>(&self) -> Result<T, LoadError> {
        if !self.rest.is_empty() {
            return Err(self.damaged());
        }
        postcard::from_bytes(self.value).map_err(|_| self.damaged())
    }
}
