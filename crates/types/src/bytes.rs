//! Amounts of data: printed with units, parsed with or without them.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::str::FromStr;

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

const UNITS: [(&str, u32); 6] = [("K", 10), ("M", 20), ("G", 30), ("T", 40), ("P", 50), ("E", 60)];

impl Bytes {
    /// The difference, or zero where `other` is larger.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// Why a text is not an amount of data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a size: write a number with a unit, such as 4096, 512K, 1.5G or 2TiB (K, M, G, T, P, E are powers of 1024)"
)]
pub struct ParseBytesError(String);

impl FromStr for Bytes {
    type Err = ParseBytesError;

    /// Accepts `4096`, `4096B`, `512K`, `1.5G`, `2TiB`; units are powers of 1024, in either case.
    fn from_str(text: &str) -> Result<Self, ParseBytesError> {
        let refuse = || ParseBytesError(text.to_owned());
        let trimmed = text.trim();
        let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let unit = unit.trim().to_ascii_uppercase();
        let shift = match unit.as_str() {
            "" | "B" => 0,
            unit => {
                let unit = unit.strip_suffix("IB").or_else(|| unit.strip_suffix('B')).unwrap_or(unit);
                UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(refuse)?.1
            }
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || fraction.len() > 9 || (shift == 0 && !fraction.is_empty()) {
            return Err(refuse());
        }
        let whole: u64 = whole.parse().map_err(|_| refuse())?;
        let mut total = u128::from(whole) << shift;
        if !fraction.is_empty() {
            let digits: u128 = fraction.parse().map_err(|_| refuse())?;
            total += (digits << shift) / 10u128.pow(fraction.len() as u32);
        }
        u64::try_from(total).map(Self).map_err(|_| refuse())
    }
}

/// With the largest unit that leaves at least 1: `512 B`, `1.5 GiB`.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match UNITS.iter().rev().find(|(_, shift)| self.0 >= 1 << shift) {
            None => format!("{} B", self.0),
            Some((unit, shift)) => {
                let value = self.0 as f64 / (1u64 << shift) as f64;
                if value.fract() == 0.0 { format!("{value:.0} {unit}iB") } else { format!("{value:.1} {unit}iB") }
            }
        };
        f.pad(&text)
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.checked_add(other.0).expect("sums of bytes fit 64 bits"))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// Taking away more than there is would be a broken ledger: it panics rather than wrap.
impl Sub for Bytes {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.checked_sub(other.0).expect("amounts never go below zero"))
    }
}

impl SubAssign for Bytes {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self(0), Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_read_with_and_without_units() {
        for (text, expected) in [
            ("0", 0),
            ("4096", 4096),
            ("10B", 10),
            ("512k", 512 << 10),
            ("1.5G", 3 << 29),
            ("2TiB", 2 << 40),
            ("1 MB", 1 << 20),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(expected)), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "K", "-1", "1.5", "1X", "99E", "1..5G", "1e3", "0x10", "1.0000000001G"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn exact_multiples_survive_printing(number in 1u64..1023, unit in 0usize..6) {
            let bytes = Bytes(number << UNITS[unit].1);
            prop_assume!(bytes.0 >> UNITS[unit].1 == number);
            prop_assert_eq!(bytes.to_string().parse::<Bytes>(), Ok(bytes));
        }
    }
}
