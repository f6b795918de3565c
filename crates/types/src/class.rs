//! The class of a file: what the system may do with it when space runs low.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What the system may do with a file (elastic quotas §2; transparent contribution §2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Class {
    /// Never removed by the system; bound by quotas.
    #[default]
    Persistent = 0,
    /// May be reclaimed when the space is over its threshold.
    Elastic = 1,
    /// Lives in space nobody uses; may vanish at any time.
    Transparent = 2,
}

impl Class {
    /// Every class, in the order of [`crate::ByClass`].
    pub const ALL: [Self; 3] = [Self::Persistent, Self::Elastic, Self::Transparent];

    /// The class with this number, as stored on disk.
    pub const fn from_u8(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Persistent),
            1 => Some(Self::Elastic),
            2 => Some(Self::Transparent),
            _ => None,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Persistent => "persistent",
            Self::Elastic => "elastic",
            Self::Transparent => "transparent",
        })
    }
}
