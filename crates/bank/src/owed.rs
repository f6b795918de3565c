//! By how much users are over of which the site's program has not been told, or has not ended well since: kept, since what is found is found once.

use crate::history::{key, number};
use std::collections::BTreeMap;
use ullage_voucher::{RowBytes, User, Write};

/// The rows' tag.
const TAG: u8 = b'X';

/// Bytes by user. Rows of the server's own, beside those of its [`crate::history`].
#[derive(Debug, Default)]
pub(crate) struct Owed(BTreeMap<User, u64>);

impl Owed {
    /// From rows, as those of the history.
    pub(crate) fn load<'a>(rows: impl IntoIterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>) -> Self {
        let own = rows.into_iter().filter(|(key, _)| key.starts_with(&[b'~', TAG]));
        let row = |(key, value): (&Vec<u8>, &Vec<u8>)| {
            Some((User(number(key, 0)?), u64::from_be_bytes(value.as_slice().try_into().ok()?)))
        };
        Self(own.filter_map(row).collect())
    }

    /// Who is over, and by how much.
    pub(crate) fn all(&self) -> impl Iterator<Item = (User, u64)> + '_ {
        self.0.iter().map(|(user, bytes)| (*user, *bytes))
    }

    /// So much more.
    pub(crate) fn add(&mut self, user: User, bytes: u64, writes: &mut Vec<Write>) {
        let sum = self.0.entry(user).or_default();
        *sum = sum.saturating_add(bytes);
        writes.push(Write { key: key(TAG, &[user.0]), value: Some(RowBytes::from_slice(&sum.to_be_bytes())) });
    }

    /// So much was seen to.
    pub(crate) fn settle(&mut self, user: User, bytes: u64, writes: &mut Vec<Write>) {
        let left = self.0.remove(&user).unwrap_or(0).saturating_sub(bytes);
        if left > 0 {
            self.add(user, left, writes);
        } else {
            writes.push(Write { key: key(TAG, &[user.0]), value: None });
        }
    }
}
