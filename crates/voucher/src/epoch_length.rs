//! How long an epoch lasts: shorter as space runs low.

use crate::Micros;
use serde::{Deserialize, Serialize};

/// The length of epochs as a function of the space left, which the paper leaves as future work (section 3,
/// *Cheating*): what a cheater can take before it is named is bounded by K epochs, so epochs shrink with
/// what there is left to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochLength {
    /// While there is plenty of space.
    pub normal: Micros,
    /// The least; also used while a rebuilt bank learns what there is.
    pub shortest: Micros,
    /// Below this many thousandths of space left, epochs shrink in proportion. Zero: never.
    pub low_permille: u16,
}

impl EpochLength {
    /// Epochs of one length, whatever the space left.
    pub const fn fixed(length: Micros) -> Self {
        Self { normal: length, shortest: length, low_permille: 0 }
    }

    /// The length of the next epoch, with this much of the storage free.
    pub fn length(&self, free: u64, total: u64) -> Micros {
        if self.low_permille == 0 || total == 0 {
            return self.normal;
        }
        let low = u128::from(total) * u128::from(self.low_permille) / 1000;
        if u128::from(free) >= low {
            return self.normal;
        }
        let scaled = u128::from(self.normal.0) * u128::from(free) / low.max(1);
        Micros((scaled as u64).clamp(self.shortest.0.min(self.normal.0), self.normal.0))
    }
}

impl Default for EpochLength {
    fn default() -> Self {
        Self { normal: Micros::from_secs(600), shortest: Micros::from_secs(10), low_permille: 100 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn epochs_shrink_in_proportion_and_stop_at_the_shortest() {
        let length = EpochLength { normal: Micros::from_secs(600), shortest: Micros::from_secs(10), low_permille: 100 };
        assert_eq!(length.length(500, 1000), Micros::from_secs(600));
        assert_eq!(length.length(100, 1000), Micros::from_secs(600));
        assert_eq!(length.length(50, 1000), Micros::from_secs(300));
        assert_eq!(length.length(0, 1000), Micros::from_secs(10));
    }

    proptest! {
        #[test]
        fn less_space_never_means_longer_epochs(total in 1u64.., a: u64, b: u64, low: u16) {
            let length = EpochLength { low_permille: low, ..EpochLength::default() };
            let (less, more) = (a.min(b).min(total), a.max(b).min(total));
            prop_assert!(length.length(less, total) <= length.length(more, total));
            prop_assert!(length.length(less, total) >= length.shortest);
        }
    }
}
