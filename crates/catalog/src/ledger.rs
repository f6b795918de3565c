//! Who uses how much: per directory and per (user, class), exact and O(1) to read.
//!
//! Totals change in memory while the gate is held shared, together with the commit of the change itself, and are
//! written by [`crate::Catalog::cut`] with the gate held exclusively: so whatever is durable holds totals
//! that equal the sum of the records beside them (DESIGN, invariant 1).

use crate::account::{Account, Delta};
use crate::inode::Inode;
use crate::limits::{Limit, Limits};
use crate::{Error, Result, keys};
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use ullage_kv::{Batch, Kv};
use ullage_types::{ByClass, Charge, Class, FileId};

/// What a directory itself is charged, in bytes, however many entries it has.
pub const DIRECTORY_CHARGE: u64 = 4096;

/// What lies below a directory, itself included.
#[derive(Debug, Default)]
pub struct Totals {
    pub(crate) account: Account,
    linked: AtomicI64,
    dirty: AtomicBool,
}

/// The totals of a directory at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TotalsNow {
    /// Actual use by class, the directory's own charge included.
    pub actual: ByClass<Charge>,
    /// Names of multiply-linked files.
    pub linked: u64,
}

/// One user's use in one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserNow {
    /// The user.
    pub uid: u32,
    /// By class.
    pub actual: ByClass<Charge>,
}

impl Totals {
    /// The totals now.
    pub fn now(&self) -> TotalsNow {
        TotalsNow { actual: self.account.now(), linked: self.linked.load(Relaxed) as u64 }
    }

    /// Bytes that persistent use may still grow by before this directory's own limit, and inodes; none without one.
    pub fn room(&self) -> (Option<u64>, Option<u64>) {
        self.account.room()
    }

    /// Bytes promised to writes under way, and not used yet.
    pub fn held(&self) -> u64 {
        self.account.held()
    }

    pub(crate) fn from_now(now: TotalsNow) -> Self {
        Self {
            account: Account::from(now.actual),
            linked: AtomicI64::new(now.linked as i64),
            dirty: AtomicBool::new(false),
        }
    }

    pub(crate) fn load(kv: &dyn Kv, directory: FileId) -> Result<Self> {
        let bytes = kv.get(&keys::totals(directory))?;
        let damaged = || Error::Damaged(format!("the totals of directory {directory} cannot be read"));
        let now = TotalsNow::decode(&bytes.ok_or_else(damaged)?).ok_or_else(damaged)?;
        Ok(Self::from_now(now))
    }
}

impl TotalsNow {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(56);
        encode_charges(self.actual, &mut out);
        out.extend_from_slice(&self.linked.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (charges, linked) = bytes.split_at_checked(48)?;
        let linked = u64::from_le_bytes(linked.try_into().ok()?);
        Some(Self { actual: decode_charges(charges)?, linked })
    }
}

pub(crate) fn encode_charges(charges: ByClass<Charge>, out: &mut Vec<u8>) {
    for charge in charges.0 {
        out.extend_from_slice(&charge.bytes.0.to_le_bytes());
        out.extend_from_slice(&charge.inodes.to_le_bytes());
    }
}

pub(crate) fn decode_charges(bytes: &[u8]) -> Option<ByClass<Charge>> {
    let bytes: &[u8; 48] = bytes.try_into().ok()?;
    let number = |i: usize| u64::from_le_bytes(bytes[i * 8..i * 8 + 8].try_into().expect("eight bytes"));
    Some(ByClass([0, 1, 2].map(|i| Charge::new(number(2 * i), number(2 * i + 1)))))
}

#[derive(Debug, Default)]
pub(crate) struct User {
    pub account: Account,
    dirty: AtomicBool,
}

/// The ledger in memory.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    users: RwLock<FxHashMap<u32, Arc<User>>>,
    dirty_directories: Mutex<Vec<Arc<Inode>>>,
    /// Those that something was held for below at the last cut: what is held is in memory only, and with it they stay there.
    holding: Mutex<Vec<Arc<Inode>>>,
    dirty_users: Mutex<Vec<u32>>,
    /// Every limit there is, and who may grow.
    pub limits: Limits,
}

impl Ledger {
    pub(crate) fn load(kv: &dyn Kv) -> Result<Self> {
        let mut users: FxHashMap<u32, Arc<User>> = FxHashMap::default();
        let mut whole = true;
        kv.scan(&[keys::USER], &[], &mut |key, value| {
            let uid = key.get(1..5).and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes);
            match (uid, decode_charges(value)) {
                (Some(uid), Some(charges)) => {
                    users
                        .insert(uid, Arc::new(User { account: Account::from(charges), dirty: AtomicBool::new(false) }));
                }
                _ => whole = false,
            }
            whole
        })?;
        if !whole {
            return Err(Error::Damaged("a user's totals cannot be read".into()));
        }
        let ledger = Self { users: RwLock::new(users), limits: Limits::load(kv)?, ..Self::default() };
        for (uid, limit) in ledger.limits.users() {
            ledger.user(uid).account.limit(limit.bytes, limit.inodes);
        }
        Ok(ledger)
    }

    /// The totals of a directory being loaded, under its limit.
    pub(crate) fn totals(&self, kv: &dyn Kv, directory: FileId) -> Result<Totals> {
        let totals = Totals::load(kv, directory)?;
        let limit = self.limits.of_directory(directory).unwrap_or(Limit::NONE);
        totals.account.limit(limit.bytes, limit.inodes);
        Ok(totals)
    }

    pub(crate) fn user(&self, uid: u32) -> Arc<User> {
        if let Some(user) = self.users.read().get(&uid) {
            return user.clone();
        }
        self.users.write().entry(uid).or_default().clone()
    }

    /// Charges a user and every directory from `directory` up to the root. Call with the gate held.
    pub(crate) fn charge(&self, directory: &Arc<Inode>, uid: u32, class: Class, delta: Delta) {
        if delta.is_zero() {
            return;
        }
        self.charge_directories(directory, class, delta);
        self.charge_user(uid, class, delta);
    }

    /// Charges only the directories, for moves that leave the owner as it is.
    pub(crate) fn charge_directories(&self, directory: &Arc<Inode>, class: Class, delta: Delta) {
        self.charge_chain(directory, None, class, delta);
    }

    /// Charges the directories from `directory` up to, and without, `until`.
    pub(crate) fn charge_chain(&self, directory: &Arc<Inode>, until: Option<FileId>, class: Class, delta: Delta) {
        if !delta.is_zero() {
            self.walk_up(directory, until, |totals| totals.account.add(class, delta));
        }
    }

    /// Moves a charge between directories that no limit lies between.
    pub(crate) fn move_charge(&self, from: &Arc<Inode>, to: &Arc<Inode>, class: Class, weight: Delta) {
        let meet = Some(crate::limits::meeting(from, to));
        self.charge_chain(to, meet, class, weight);
        self.charge_chain(from, meet, class, -weight);
    }

    /// Charges only the user, for changes of owner that leave the place as it is.
    pub(crate) fn charge_user(&self, uid: u32, class: Class, delta: Delta) {
        let user = self.user(uid);
        user.account.add(class, delta);
        if !user.dirty.swap(true, Relaxed) {
            self.dirty_users.lock().push(uid);
        }
    }

    /// Counts names of multiply-linked files in a directory and all above it.
    pub(crate) fn count_linked(&self, directory: &Arc<Inode>, delta: i64) {
        self.walk_up(directory, None, |totals| {
            assert!(totals.linked.fetch_add(delta, Relaxed) + delta >= 0, "a count of links fell below zero");
        });
    }

    fn walk_up(&self, directory: &Arc<Inode>, until: Option<FileId>, change: impl Fn(&Totals)) {
        let mut at = Some(directory.clone());
        while let Some(inode) = at {
            if Some(inode.id) == until {
                return;
            }
            change(inode.totals());
            at = inode.parent.read().clone();
            self.soil(inode);
        }
    }

    fn soil(&self, directory: Arc<Inode>) {
        if !directory.totals().dirty.swap(true, Relaxed) {
            self.dirty_directories.lock().push(directory);
        }
    }

    /// Everything that changed since the last cut, as records. Call with the gate held exclusively, and hold the
    /// directories that come back until the records can be read.
    #[must_use]
    pub(crate) fn collect(&self, batch: &mut Batch) -> Vec<Arc<Inode>> {
        let directories = std::mem::take(&mut *self.dirty_directories.lock());
        for directory in &directories {
            directory.totals().dirty.store(false, Relaxed);
            if !directory.lock().removed {
                batch.put(keys::totals(directory.id), directory.totals().now().encode());
            }
        }
        let mut holding = self.holding.lock();
        holding.extend(directories.iter().cloned());
        holding.sort_unstable_by_key(|directory| directory.id);
        holding.dedup_by_key(|directory| directory.id);
        holding.retain(|directory| directory.totals().held() > 0);
        drop(holding);
        let uids = std::mem::take(&mut *self.dirty_users.lock());
        for uid in uids {
            let user = self.user(uid);
            user.dirty.store(false, Relaxed);
            let mut value = Vec::with_capacity(48);
            encode_charges(user.account.now(), &mut value);
            batch.put(keys::user(uid), value);
        }
        directories
    }

    pub(crate) fn users(&self) -> Vec<UserNow> {
        let mut users: Vec<UserNow> =
            self.users.read().iter().map(|(&uid, user)| UserNow { uid, actual: user.account.now() }).collect();
        users.sort_unstable_by_key(|user| user.uid);
        users
    }

    pub(crate) fn user_now(&self, uid: u32) -> UserNow {
        UserNow { uid, actual: self.user(uid).account.now() }
    }
}
