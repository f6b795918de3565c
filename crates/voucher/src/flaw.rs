//! Known flaws, for proving that the fault simulation would notice them.

/// A flaw that a core can be given on purpose. Exists only with the feature `canary`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The bank forgets what it issued after X epochs, by the clock.
    ForgetAtExpiry,
    /// A store hands out twice what was freed.
    RefundDoubled,
    /// A store does not count what was split off a voucher before.
    SplitNotCounted,
    /// The bank drops a failed store's use at once, while its refunds can still be spent.
    ExcludeAtOnce,
    /// A store accepts vouchers of epochs that it has already reported.
    AcceptAfterReport,
    /// A store keeps accepting without a lease.
    NoLease,
    /// A store forgets requests that are settled as if they had never been.
    SettledForgotten,
}

/// Whether this core has this flaw.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flaws {
    #[cfg(feature = "canary")]
    flaw: Option<Flaw>,
}

impl Flaws {
    #[cfg(feature = "canary")]
    pub(crate) fn only(flaw: Flaw) -> Self {
        Self { flaw: Some(flaw) }
    }

    #[cfg(feature = "canary")]
    pub(crate) fn has(self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    #[cfg(not(feature = "canary"))]
    #[expect(clippy::unused_self, reason = "the same call with and without the feature")]
    pub(crate) const fn has(self, _flaw: Flaw) -> bool {
        false
    }
}
