//! One line of the ledger: what somebody uses, what is held for writes under way, and the limit on both together.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use ullage_types::{ByClass, Charge, Class};

/// A signed change of use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delta {
    /// Bytes, those held included.
    pub bytes: i64,
    pub inodes: i64,
    /// Those among the bytes that are held only: promised to writes, and not used yet.
    pub held: i64,
}

impl Delta {
    pub(crate) fn plus(charge: Charge) -> Self {
        Self { bytes: charge.bytes.0 as i64, inodes: charge.inodes as i64, held: 0 }
    }

    /// So many bytes, held.
    pub(crate) fn holding(bytes: u64) -> Self {
        Self { bytes: bytes as i64, inodes: 0, held: bytes as i64 }
    }

    pub(crate) fn is_zero(self) -> bool {
        self == Self::default()
    }

    /// What of it grows.
    pub(crate) fn growth(self) -> Self {
        Self { bytes: self.bytes.max(0), inodes: self.inodes.max(0), held: 0 }
    }
}

impl std::ops::Add for Delta {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, inodes: self.inodes + other.inodes, held: self.held + other.held }
    }
}

impl std::ops::Neg for Delta {
    type Output = Self;
    fn neg(self) -> Self {
        Self { bytes: -self.bytes, inodes: -self.inodes, held: -self.held }
    }
}

impl std::ops::Sub for Delta {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self + -other
    }
}

/// The most that is promised of a line, and at once, where no limit is either: what is measured beside it always fits.
pub(crate) const MOST: i64 = i64::MAX >> 2;

/// No limit, in the atomics.
const NONE: i64 = i64::MAX;

/// Use by class, and the limit on persistent use.
#[derive(Debug)]
pub(crate) struct Account {
    bytes: [AtomicI64; 3],
    inodes: [AtomicI64; 3],
    held: [AtomicI64; 3],
    most_bytes: AtomicI64,
    most_inodes: AtomicI64,
}

impl Default for Account {
    fn default() -> Self {
        Self::from(ByClass::default())
    }
}

impl Account {
    pub(crate) fn from(values: ByClass<Charge>) -> Self {
        Self {
            bytes: values.0.map(|charge| AtomicI64::new(charge.bytes.0 as i64)),
            inodes: values.0.map(|charge| AtomicI64::new(charge.inodes as i64)),
            held: Default::default(),
            most_bytes: AtomicI64::new(NONE),
            most_inodes: AtomicI64::new(NONE),
        }
    }

    pub(crate) fn add(&self, class: Class, delta: Delta) {
        let bytes = self.bytes[class as usize].fetch_add(delta.bytes, Relaxed) + delta.bytes;
        let inodes = self.inodes[class as usize].fetch_add(delta.inodes, Relaxed) + delta.inodes;
        assert!(bytes >= 0 && inodes >= 0, "a total of the ledger fell below zero");
        if delta.held != 0 {
            let held = self.held[class as usize].fetch_add(delta.held, Relaxed) + delta.held;
            assert!(held >= 0, "what is held fell below zero");
        }
    }

    /// What is used, without what is only held.
    pub(crate) fn now(&self) -> ByClass<Charge> {
        ByClass([0, 1, 2].map(|i| {
            let used = self.bytes[i].load(Relaxed) - self.held[i].load(Relaxed);
            Charge::new(used.max(0) as u64, self.inodes[i].load(Relaxed) as u64)
        }))
    }

    /// What is held of all classes.
    pub(crate) fn held(&self) -> u64 {
        self.held.iter().map(|held| held.load(Relaxed)).sum::<i64>().max(0) as u64
    }

    /// All that is used and held, by class.
    pub(crate) fn weights(&self) -> [Delta; 3] {
        [0, 1, 2].map(|i| Delta {
            bytes: self.bytes[i].load(Relaxed),
            inodes: self.inodes[i].load(Relaxed),
            held: self.held[i].load(Relaxed),
        })
    }

    pub(crate) fn limit(&self, bytes: Option<u64>, inodes: Option<u64>) {
        // The largest there can be is one all the same.
        let most = |limit: Option<u64>| limit.map_or(NONE, |limit| i64::try_from(limit).unwrap_or(NONE).min(NONE - 1));
        self.most_bytes.store(most(bytes), Relaxed);
        self.most_inodes.store(most(inodes), Relaxed);
    }

    pub(crate) fn is_limited(&self) -> bool {
        (self.most_bytes.load(Relaxed), self.most_inodes.load(Relaxed)) != (NONE, NONE)
    }

    /// Whether persistent use may grow by so much. What does not grow is never in the way, even of use past the limit.
    pub(crate) fn has_room(&self, delta: Delta) -> bool {
        let fits = |now: &AtomicI64, more: i64, most: &AtomicI64| {
            more <= 0 || now.load(Relaxed).saturating_add(more) <= most.load(Relaxed).min(MOST)
        };
        fits(&self.bytes[0], delta.bytes, &self.most_bytes) && fits(&self.inodes[0], delta.inodes, &self.most_inodes)
    }

    /// Bytes and inodes that persistent use may still grow by; none where no limit is.
    pub(crate) fn room(&self) -> (Option<u64>, Option<u64>) {
        self.room_beside(0)
    }

    /// The same, with what is held taken for free: it comes back where it is not used.
    pub(crate) fn unused(&self) -> (Option<u64>, Option<u64>) {
        self.room_beside(self.held[0].load(Relaxed))
    }

    fn room_beside(&self, held: i64) -> (Option<u64>, Option<u64>) {
        let left = |now: i64, most: &AtomicI64| match most.load(Relaxed) {
            NONE => None,
            most => Some(most.saturating_sub(now).max(0) as u64),
        };
        (
            left(self.bytes[0].load(Relaxed) - held, &self.most_bytes),
            left(self.inodes[0].load(Relaxed), &self.most_inodes),
        )
    }
}
