//! Identities and time. Each is a newtype, so that one can never be passed for another.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Add;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// Who is charged: the owner of a file or its writer, as the site chose ([`crate::ChargeBy`]).
    User(u64)
);
id!(
    /// A client: one wallet. A restarted client is a new client.
    Client(u64)
);
id!(
    /// A bank or a storage server. Zero is nobody (see [`crate::ANYONE`]).
    Node(u32)
);
id!(
    /// One life of a node's state. A store restored from an old copy starts a new one, and so does a bank each
    /// time it loads its state: serials of two lives can never be equal.
    Incarnation(u32)
);
id!(
    /// A number of an epoch. The bank turns epochs; everybody else hears of them.
    Epoch(u64)
);
id!(
    /// A client's own number of a request. Repeating a request under its number never has a second effect.
    Op(u64)
);
id!(
    /// Microseconds on the caller's own monotonic clock, with any origin.
    Micros(u64)
);

impl Epoch {
    /// The epoch this many later.
    #[must_use]
    pub const fn plus(self, epochs: u64) -> Self {
        Self(self.0.saturating_add(epochs))
    }

    /// The epoch this many earlier, or none before the first.
    pub const fn minus(self, epochs: u64) -> Option<Self> {
        match self.0.checked_sub(epochs) {
            Some(epoch) => Some(Self(epoch)),
            None => None,
        }
    }
}

impl Micros {
    /// This many milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1000))
    }

    /// This many seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// The time since `earlier`, or zero if that is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Micros {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// Who made a voucher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Issuer {
    /// The bank, or the storage server that freed space.
    pub node: Node,
    /// In which of its lives.
    pub incarnation: Incarnation,
}

/// What makes a voucher unique for ever: its issuer and the issuer's serial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VoucherId {
    /// Who made it.
    pub issuer: Issuer,
    /// The issuer's own count.
    pub serial: u64,
}

impl fmt::Display for VoucherId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.issuer.node, self.issuer.incarnation, self.serial)
    }
}
