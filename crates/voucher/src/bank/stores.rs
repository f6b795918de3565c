//! What the bank knows of one life of a store.

use crate::message::Report;
use crate::{Epoch, Micros, User};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One life of a store.
#[derive(Clone, Debug, Default)]
pub(super) struct StoreState {
    /// Everything up to here has been reported.
    pub(super) reported: Epoch,
    /// It acts in no epoch before this one.
    pub(super) accept_from: Epoch,
    /// Given up: the last epoch in which it can have acted.
    pub(super) lost: Option<Epoch>,
    pub(super) beat: u64,
    pub(super) boot: u64,
    /// `S_h` by user: what is in `Account::settled`.
    pub(super) settled: BTreeMap<User, i64>,
    /// `S` as of the last report, by user.
    pub(super) latest: BTreeMap<User, i64>,
    /// Reports of epochs after the horizon.
    pub(super) pending: BTreeMap<Epoch, Report>,
    /// What its lines of each epoch that it has not reported add up to.
    pub(super) counted: BTreeMap<Epoch, u128>,
    /// The bank believes in the lease until then; unknown after a restart.
    pub(super) lease_until: Option<Micros>,
    /// When this life of the bank last gave it one.
    pub(super) heard: Option<Micros>,
    /// That it has none was told.
    pub(super) lapsed: bool,
    pub(super) free: u64,
    pub(super) total: u64,
    /// The newest epoch that it said it knows.
    pub(super) epoch: Epoch,
}

/// What is stored of it; settled amounts and reports have rows of their own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StoreRow {
    pub(super) reported: Epoch,
    pub(super) accept_from: Epoch,
    pub(super) lost: Option<Epoch>,
    pub(super) beat: u64,
    pub(super) boot: u64,
}

impl StoreState {
    /// Whether what it says of vouchers may be taken in: before it has renewed its lease it may know of some that only a later bank gave,
    /// of which this one is an old copy. What one says that was given up is of before.
    pub(super) fn counts(&self) -> bool {
        self.heard.is_some() || self.lost.is_some()
    }

    pub(super) fn row(&self) -> StoreRow {
        StoreRow {
            reported: self.reported,
            accept_from: self.accept_from,
            lost: self.lost,
            beat: self.beat,
            boot: self.boot,
        }
    }
}
