//! What a file costs, and sums of it by class.

use crate::{Bytes, Class};
use serde::{Deserialize, Serialize};
use std::ops::{Add, AddAssign, Index, IndexMut, Sub, SubAssign};

/// An amount of use: allocated bytes and inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Charge {
    /// Allocated bytes (whole blocks), not the file's length.
    pub bytes: Bytes,
    /// Inodes.
    pub inodes: u64,
}

impl Charge {
    /// Nothing.
    pub const ZERO: Self = Self { bytes: Bytes(0), inodes: 0 };

    /// A charge of this many bytes and inodes.
    pub const fn new(bytes: u64, inodes: u64) -> Self {
        Self { bytes: Bytes(bytes), inodes }
    }
}

impl Add for Charge {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, inodes: self.inodes + other.inodes }
    }
}

impl AddAssign for Charge {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// Taking away more than there is would be a broken ledger: it panics rather than wrap.
impl Sub for Charge {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self {
            bytes: self.bytes - other.bytes,
            inodes: self.inodes.checked_sub(other.inodes).expect("the ledger never goes below zero"),
        }
    }
}

impl SubAssign for Charge {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

/// One value for each class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ByClass<T>(pub [T; 3]);

impl<T> Index<Class> for ByClass<T> {
    type Output = T;
    fn index(&self, class: Class) -> &T {
        &self.0[class as usize]
    }
}

impl<T> IndexMut<Class> for ByClass<T> {
    fn index_mut(&mut self, class: Class) -> &mut T {
        &mut self.0[class as usize]
    }
}
