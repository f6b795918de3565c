//! Durable state as rows of a key-value table: a tag byte, fields that sort, and a postcard value.

use serde::Serialize;
use serde::de::DeserializeOwned;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// One change of the durable state. All writes of one step belong into one transaction, which must be durable
/// before any action of that step leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The row.
    pub key: RowBytes,
    /// Its new value, or nothing to remove it.
    pub value: Option<RowBytes>,
}

impl Write {
    /// Makes this change to a table of rows.
    pub fn apply(&self, rows: &mut BTreeMap<Vec<u8>, Vec<u8>>) {
        match &self.value {
            Some(value) => rows.insert(self.key.to_vec(), value.to_vec()),
            None => rows.remove(&*self.key),
        };
    }
}

/// A key or a value. Most fit in here: a payment changes three rows, and six pieces of memory taken and given back are a tenth of
/// what it costs.
pub type RowBytes = SmallVec<[u8; INLINE]>;

/// Longer than every key of a core and most values.
const INLINE: usize = 40;

/// Why a state cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// A row that does not decode.
    #[error("row {0:02x?} of the saved state is damaged")]
    Row(Vec<u8>),
    /// A row of a kind that is not known.
    #[error(
        "row {0:02x?} of the saved state is of no kind that this version knows: a later one wrote it; use that, or the copy \
         from before the upgrade"
    )]
    Later(Vec<u8>),
    /// The row that every state has is missing.
    #[error("the saved state has no head row")]
    NoHead,
    /// Of a bank with other parameters: they never change.
    #[error(
        "this bank was begun, or first started by a version that keeps them, with X = {expiry} and K = {reconcile}, and vouchers of then are out: start it with these, \
         not with X = {given_expiry} and K = {given} (--expiry-epochs {expiry} --reconcile-epochs {reconcile})"
    )]
    Params {
        /// X so far.
        expiry: u64,
        /// K so far.
        reconcile: u64,
        /// X now.
        given_expiry: u64,
        /// K now.
        given: u64,
    },
    /// Of a bank with a smaller K, which an older version did not keep.
    #[error("this bank was begun with K = {most} at most: start it with that, not with {given} (--reconcile-epochs)")]
    Reconcile {
        /// K now.
        given: u64,
        /// The largest it can have been.
        most: u64,
    },
}

/// Builds a key: big-endian fields sort as their numbers do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    bytes: [u8; INLINE],
    length: usize,
}

impl Key {
    pub(crate) fn new(tag: u8) -> Self {
        Self { bytes: [0; INLINE], length: 0 }.field([tag])
    }

    pub(crate) fn u64(self, field: u64) -> Self {
        self.field(field.to_be_bytes())
    }

    pub(crate) fn u32(self, field: u32) -> Self {
        self.field(field.to_be_bytes())
    }

    fn field<const N: usize>(mut self, field: [u8; N]) -> Self {
        self.bytes[self.length..self.length + N].copy_from_slice(&field);
        self.length += N;
        self
    }

    fn finish(self) -> RowBytes {
        RowBytes::from_buf_and_len(self.bytes, self.length)
    }

    pub(crate) fn put<T: Serialize>(self, value: &T) -> Write {
        let mut inline = [0; INLINE];
        let short = postcard::to_slice(value, &mut inline).map(|short| short.len());
        let value = match short {
            Ok(length) => RowBytes::from_buf_and_len(inline, length),
            Err(_) => postcard::to_allocvec(value).expect("plain values always encode").into(),
        };
        Write { key: self.finish(), value: Some(value) }
    }

    pub(crate) fn remove(self) -> Write {
        Write { key: self.finish(), value: None }
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
