//! A key in memory, compared without looking at its bytes where its beginning decides.

use std::borrow::Borrow;
use std::cmp::Ordering;

/// So many bytes of a key lie beside it in the tree: a table, a directory and the beginning of a name.
const HEAD: usize = size_of::<u128>();

/// Orders as the bytes do. A look into a tree of some thousand would else be a cache miss and a call for each of its levels.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// The first bytes as a number, zeros where there are none.
    head: u128,
    bytes: Vec<u8>,
}

impl Key {
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }
}

impl From<Vec<u8>> for Key {
    fn from(bytes: Vec<u8>) -> Self {
        let mut first = [0; HEAD];
        match bytes.first_chunk::<HEAD>() {
            Some(all) => first = *all,
            None => first[..bytes.len()].copy_from_slice(&bytes),
        }
        Self { head: u128::from_be_bytes(first), bytes }
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.head.cmp(&other.head).then_with(|| self.bytes.cmp(&other.bytes))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Keys that share beginnings and end in zeros, of which the heads may be equal.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop_oneof![3 => Just(0), 1 => Just(1), 1 => any::<u8>()], 0..20)
    }

    proptest! {
        #[test]
        fn keys_order_as_their_bytes(one in bytes(), other in bytes()) {
            let order = one.cmp(&other);
            prop_assert_eq!(Key::from(one).cmp(&Key::from(other)), order);
        }
    }
}
