//! Hard limits: on a user's persistent use, and on what lies below a directory (DESIGN, invariants 2 and 3).
//!
//! A limit stops growth and nothing else: it may lie below present use, and taking away always works. Growth is asked
//! for before an operation changes anything, and all limits in its way are looked at as one.

use crate::account::{Account, Delta};
use crate::inode::Inode;
use crate::ledger::Ledger;
use crate::{Catalog, Error, Result, keys};
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use ullage_kv::{Batch, Kv};
use ullage_types::{Charge, Class, FileId, ROOT};

/// The most that persistent use may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// Allocated bytes.
    pub bytes: Option<u64>,
    /// Inodes.
    pub inodes: Option<u64>,
}

/// What a limit is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// A user's files, wherever they lie.
    User(u32),
    /// A directory and all below it; that of the root is the size of the space.
    Directory(FileId),
}

/// A limit and the use that it bounds, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitNow {
    /// What it is on.
    pub subject: Subject,
    /// The most there may be.
    pub limit: Limit,
    /// Persistent use.
    pub used: Charge,
    /// Bytes promised to writes under way, beside that.
    pub held: u64,
}

/// The tightest of the limits above a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// Bytes that may still be added, those included that are held for files and not used yet.
    pub bytes_left: Option<u64>,
    /// Bytes used under that limit.
    pub bytes_used: u64,
    /// Inodes that may still be added.
    pub inodes_left: Option<u64>,
    /// Inodes used under that limit.
    pub inodes_used: u64,
}

const VERSION: u8 = 1;

impl Limit {
    /// None.
    pub const NONE: Self = Self { bytes: None, inodes: None };

    /// Whether it bounds nothing.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(17);
        out.push(VERSION);
        for most in [self.bytes, self.inodes] {
            out.extend_from_slice(&most.unwrap_or(u64::MAX).to_le_bytes());
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 17] = bytes.try_into().ok()?;
        let number = |at: usize| match u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")) {
            u64::MAX => Some(None),
            most => i64::try_from(most).is_ok().then_some(Some(most)),
        };
        let limit = Self { bytes: number(1)?, inodes: number(9)? };
        (bytes[0] == VERSION && !limit.is_none()).then_some(limit)
    }
}

/// Every limit of a space.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    all: RwLock<FxHashMap<Subject, Limit>>,
    count: AtomicUsize,
    /// Held while limits are asked and what they let through is charged: two never take the same room.
    asking: Mutex<()>,
}

impl Limits {
    pub(crate) fn load(kv: &dyn Kv) -> Result<Self> {
        let mut all = FxHashMap::default();
        let mut whole = true;
        kv.scan(&[keys::LIMIT], &[], &mut |key, value| {
            match (keys::subject_in(key), Limit::decode(value)) {
                (Some(subject), Some(limit)) => {
                    all.insert(subject, limit);
                }
                _ => whole = false,
            }
            whole
        })?;
        if !whole {
            return Err(Error::Damaged("a limit cannot be read".into()));
        }
        Ok(Self { count: AtomicUsize::new(all.len()), all: RwLock::new(all), asking: Mutex::default() })
    }

    pub(crate) fn exist(&self) -> bool {
        self.count.load(Relaxed) > 0
    }

    pub(crate) fn users(&self) -> Vec<(u32, Limit)> {
        let all = self.all.read();
        all.iter()
            .filter_map(|(subject, limit)| match subject {
                Subject::User(uid) => Some((*uid, *limit)),
                Subject::Directory(_) => None,
            })
            .collect()
    }

    pub(crate) fn of_directory(&self, directory: FileId) -> Option<Limit> {
        if !self.exist() {
            return None;
        }
        self.all.read().get(&Subject::Directory(directory)).copied()
    }

    pub(crate) fn set(&self, subject: Subject, limit: Limit) {
        let mut all = self.all.write();
        if limit.is_none() {
            all.remove(&subject);
        } else {
            all.insert(subject, limit);
        }
        self.count.store(all.len(), Relaxed);
    }
}

/// Growth that every limit has let through and that is charged. Taken back when it goes, unless it was kept.
#[must_use]
pub(crate) struct Admitted<'a> {
    ledger: &'a Ledger,
    chain: Option<(Arc<Inode>, Option<FileId>)>,
    uid: Option<u32>,
    class: Class,
    delta: Delta,
}

impl Admitted<'_> {
    /// The operation was committed.
    pub(crate) fn keep(mut self) {
        self.delta = Delta::default();
    }

    fn charge(&self, delta: Delta) {
        if delta.is_zero() {
            return;
        }
        if let Some((directory, until)) = &self.chain {
            self.ledger.charge_chain(directory, *until, self.class, delta);
        }
        if let Some(uid) = self.uid {
            self.ledger.charge_user(uid, self.class, delta);
        }
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.charge(-self.delta);
    }
}

impl Ledger {
    /// Charges growth to a user and to a chain of directories (up to, and without, the one given beside the first), if
    /// every limit allows it. Call with the gate held, before the commit.
    pub(crate) fn admit(
        &self,
        chain: Option<(&Arc<Inode>, Option<FileId>)>,
        uid: Option<u32>,
        class: Class,
        delta: Delta,
    ) -> Result<Admitted<'_>> {
        let chain = chain.map(|(directory, until)| (directory.clone(), until));
        let admitted = Admitted { ledger: self, chain, uid, class, delta };
        let asking = (self.limits.exist() && class == Class::Persistent).then(|| self.limits.asking.lock());
        if asking.is_some()
            && let Err(error) = self.ask(&admitted)
        {
            // Nothing is charged yet.
            admitted.keep();
            return Err(error);
        }
        admitted.charge(delta);
        Ok(admitted)
    }

    fn ask(&self, wanted: &Admitted<'_>) -> Result<()> {
        if let Some(uid) = wanted.uid
            && !self.user(uid).account.has_room(wanted.delta)
        {
            return Err(Error::OverUserLimit);
        }
        let Some((directory, until)) = &wanted.chain else { return Ok(()) };
        let mut at = Some(directory.clone());
        while let Some(inode) = at.filter(|inode| Some(inode.id) != *until) {
            if !inode.totals().account.has_room(wanted.delta) {
                return Err(Error::OverDirectoryLimit);
            }
            at = inode.parent.read().clone();
        }
        Ok(())
    }

    /// Begins to move charges (`gain` by class) from the chain of one directory to that of another: what grows by it
    /// is asked for. Where both chains are one nothing changes.
    pub(crate) fn shift<'a>(&'a self, from: &Arc<Inode>, to: &Arc<Inode>, gain: [Delta; 3]) -> Result<Shift<'a>> {
        let meet = Some(meeting(from, to));
        let class = Class::Persistent;
        let gained = gain[class as usize].growth();
        let lost = (-gain[class as usize]).growth();
        let there = self.admit(Some((to, meet)), None, class, gained)?;
        let here = self.admit(Some((from, meet)), None, class, lost)?;
        Ok(Shift {
            ledger: self,
            from: from.clone(),
            to: to.clone(),
            meet,
            gain,
            gained,
            lost,
            admitted: [there, here],
        })
    }
}

/// A move of charges whose growth is made. See [`Ledger::shift`].
#[must_use]
pub(crate) struct Shift<'a> {
    ledger: &'a Ledger,
    from: Arc<Inode>,
    to: Arc<Inode>,
    meet: Option<FileId>,
    gain: [Delta; 3],
    gained: Delta,
    lost: Delta,
    admitted: [Admitted<'a>; 2],
}

impl Shift<'_> {
    /// The operation was committed: the rest of the move.
    pub(crate) fn keep(self) {
        self.admitted.into_iter().for_each(Admitted::keep);
        for class in Class::ALL {
            let gain = self.gain[class as usize];
            let (mut there, mut here) = (gain, -gain);
            if class == Class::Persistent {
                there = there - self.gained;
                here = here - self.lost;
            }
            self.ledger.charge_chain(&self.to, self.meet, class, there);
            self.ledger.charge_chain(&self.from, self.meet, class, here);
        }
    }
}

/// The lowest directory that is above (or is) both.
pub(crate) fn meeting(one: &Arc<Inode>, other: &Arc<Inode>) -> FileId {
    let above = |inode: &Arc<Inode>| inode.parent.read().clone();
    let depth = |inode: &Arc<Inode>| {
        let (mut depth, mut at) = (0usize, above(inode));
        while let Some(inode) = at {
            depth += 1;
            at = above(&inode);
        }
        depth
    };
    let (mut one, mut other) = (one.clone(), other.clone());
    let (mut deep, mut shallow) = (depth(&one), depth(&other));
    while one.id != other.id {
        let (first, second) = (deep >= shallow, shallow >= deep);
        if first {
            match above(&one) {
                Some(next) => (one, deep) = (next, deep - 1),
                None => return ROOT,
            }
        }
        if second {
            match above(&other) {
                Some(next) => (other, shallow) = (next, shallow - 1),
                None => return ROOT,
            }
        }
    }
    one.id
}

/// The nearest limited directory at or above this one: links of one file never leave it.
pub(crate) fn domain(directory: &Arc<Inode>) -> Option<FileId> {
    let mut at = Some(directory.clone());
    while let Some(inode) = at {
        if inode.totals().account.is_limited() {
            return Some(inode.id);
        }
        at = inode.parent.read().clone();
    }
    None
}

impl Catalog {
    /// Whether there is any limit.
    pub fn has_limits(&self) -> bool {
        self.ledger.limits.exist()
    }

    /// Refuses to let the names of one file lie in two limited directories.
    pub(crate) fn same_domain(&self, one: &Arc<Inode>, other: &Arc<Inode>) -> Result<()> {
        if one.id == other.id || !self.has_limits() || domain(one) == domain(other) {
            Ok(())
        } else {
            Err(Error::CrossDomain)
        }
    }

    /// What the limits at and above a directory leave of bytes and of inodes, each with the use below the directory that is
    /// nearest to its limit; none without a limit.
    pub fn tightest(&self, directory: &Arc<Inode>) -> Option<Bound> {
        if !self.has_limits() {
            return None;
        }
        let mut bound = Bound::default();
        let mut at = Some(directory.clone());
        while let Some(inode) = at {
            let (bytes, inodes) = inode.totals().account.unused();
            let used = inode.totals().account.now()[Class::Persistent];
            if bytes.is_some_and(|left| bound.bytes_left.is_none_or(|least| left < least)) {
                (bound.bytes_left, bound.bytes_used) = (bytes, used.bytes.0);
            }
            if inodes.is_some_and(|left| bound.inodes_left.is_none_or(|least| left < least)) {
                (bound.inodes_left, bound.inodes_used) = (inodes, used.inodes);
            }
            at = inode.parent.read().clone();
        }
        (bound != Bound::default()).then_some(bound)
    }

    /// Whether what is in one directory is bounded by a limit when it moves to another that does not bound it now.
    pub fn differ_in_limits(&self, from: &Arc<Inode>, to: &Arc<Inode>) -> bool {
        // The nearest limited one bounds it already where that is above both.
        from.id != to.id && self.has_limits() && domain(to).is_some_and(|there| !is_below(from, there))
    }

    /// Whether `directory` is `above`, or lies below it.
    pub fn is_below(&self, directory: &Arc<Inode>, above: &Arc<Inode>) -> bool {
        is_below(directory, above.id)
    }

    /// Whether a user is limited.
    pub fn is_user_bounded(&self, uid: u32) -> bool {
        self.has_limits() && self.ledger.user(uid).account.is_limited()
    }

    /// Sets a limit, or with [`Limit::NONE`] takes it away; durable with the next sync.
    ///
    /// [`Error::CrossDomain`] when a directory is to be limited and a file has names both below and outside it;
    /// [`Error::NotDirectory`], [`Error::NotFound`]; [`Error::Invalid`] for a limit of 2^63 or more.
    pub fn set_limit(&self, subject: Subject, limit: Limit) -> Result<()> {
        if [limit.bytes, limit.inodes].into_iter().flatten().any(|most| i64::try_from(most).is_err()) {
            return Err(Error::Invalid);
        }
        let directory = match subject {
            Subject::User(_) => None,
            Subject::Directory(file) => Some(self.get(file)?),
        };
        self.kv.make_room()?;
        let _gate = self.gate.write();
        if let Some(directory) = &directory {
            crate::ops::check_directory(&directory.lock())?;
            if !limit.is_none() && !directory.totals().account.is_limited() && directory.totals().now().linked > 0 {
                self.refuse_spread(directory)?;
            }
        }
        let mut batch = Batch::new();
        if limit.is_none() {
            batch.del(keys::limit(subject));
        } else {
            batch.put(keys::limit(subject), limit.encode());
        }
        self.commit(batch)?;
        self.ledger.limits.set(subject, limit);
        match (subject, &directory) {
            (Subject::User(uid), _) => self.ledger.user(uid).account.limit(limit.bytes, limit.inodes),
            (_, Some(directory)) => directory.totals().account.limit(limit.bytes, limit.inodes),
            (Subject::Directory(_), None) => {}
        }
        Ok(())
    }

    /// Refuses when a file has names below `directory` and elsewhere. Looks at the files with several names only.
    fn refuse_spread(&self, directory: &Arc<Inode>) -> Result<()> {
        let mut places: FxHashMap<FileId, Vec<FileId>> = FxHashMap::default();
        self.kv.scan(&[keys::NAME], &[], &mut |key, _| {
            if let (Some(file), Some(place)) = (keys::id_in(key), key.get(9..17)) {
                let place = FileId(u64::from_be_bytes(place.try_into().expect("eight bytes")));
                places.entry(file).or_default().push(place);
            }
            true
        })?;
        for places in places.into_values() {
            let mut below = 0;
            for &place in &places {
                below += usize::from(is_below(&self.get(place)?, directory.id));
            }
            if below != 0 && below != places.len() {
                return Err(Error::CrossDomain);
            }
        }
        Ok(())
    }

    /// Every limit and what it bounds, users first.
    pub fn limits(&self) -> Result<Vec<LimitNow>> {
        let mut all: Vec<Subject> = self.ledger.limits.all.read().keys().copied().collect();
        all.sort_unstable();
        let mut list = Vec::with_capacity(all.len());
        for subject in all {
            list.push(match subject {
                Subject::User(uid) => self.use_of(uid),
                Subject::Directory(file) => match self.get(file) {
                    Ok(inode) => self.use_below(&inode),
                    // Removed since.
                    Err(Error::NotFound) => continue,
                    Err(error) => return Err(error),
                },
            });
        }
        Ok(list)
    }

    /// What a user uses, whether or not that is limited.
    pub fn use_of(&self, uid: u32) -> LimitNow {
        self.used(Subject::User(uid), &self.ledger.user(uid).account)
    }

    /// What lies below a directory, itself included, whether or not that is limited.
    pub fn use_below(&self, directory: &Inode) -> LimitNow {
        self.used(Subject::Directory(directory.id), &directory.totals().account)
    }

    fn used(&self, subject: Subject, account: &Account) -> LimitNow {
        let limit = self.limit(subject).unwrap_or(Limit::NONE);
        LimitNow { subject, limit, used: account.now()[Class::Persistent], held: account.held() }
    }

    /// The limit on something, if there is one.
    pub fn limit(&self, subject: Subject) -> Option<Limit> {
        self.ledger.limits.all.read().get(&subject).copied()
    }

    /// Whether any limit bounds a file of this owner in (or at) this directory.
    pub fn is_bounded(&self, uid: u32, directory: &Arc<Inode>) -> bool {
        self.has_limits() && (self.ledger.user(uid).account.is_limited() || domain(directory).is_some())
    }

    /// Bytes and inodes that may still be added in this directory by this user (by anybody where none is given): the
    /// least of all limits; none where there is no limit.
    pub fn room(&self, uid: Option<u32>, directory: &Arc<Inode>) -> (Option<u64>, Option<u64>) {
        self.least(uid, directory, Account::room)
    }

    /// Bytes that may still be added so, with what is held taken for free: it comes back where it is not used.
    pub fn unused(&self, uid: u32, directory: &Arc<Inode>) -> Option<u64> {
        self.least(Some(uid), directory, Account::unused).0
    }

    fn least(
        &self,
        uid: Option<u32>,
        directory: &Arc<Inode>,
        left: impl Fn(&Account) -> (Option<u64>, Option<u64>),
    ) -> (Option<u64>, Option<u64>) {
        if !self.has_limits() {
            return (None, None);
        }
        let mut rooms = Vec::new();
        if let Some(uid) = uid {
            rooms.push(left(&self.ledger.user(uid).account));
        }
        let mut at = Some(directory.clone());
        while let Some(inode) = at {
            rooms.push(left(&inode.totals().account));
            at = inode.parent.read().clone();
        }
        (rooms.iter().filter_map(|room| room.0).min(), rooms.iter().filter_map(|room| room.1).min())
    }
}

/// Whether `directory` is `above`, or lies below it.
pub(crate) fn is_below(directory: &Arc<Inode>, above: FileId) -> bool {
    let mut at = Some(directory.clone());
    while let Some(inode) = at {
        if inode.id == above {
            return true;
        }
        at = inode.parent.read().clone();
    }
    false
}

/// Checks the records of limits against the directories there are (`ullage check`).
pub(crate) fn verify(kv: &dyn Kv, is_directory: impl Fn(FileId) -> bool, wrong: &mut dyn FnMut(String)) -> Result<()> {
    kv.scan(&[keys::LIMIT], &[], &mut |key, value| {
        if Limit::decode(value).is_none() {
            wrong(format!("the limit with the key {key:02x?} cannot be read"));
        }
        match keys::subject_in(key) {
            Some(Subject::Directory(file)) if !is_directory(file) => {
                wrong(format!("there is a limit on inode {file}, which is no directory"));
            }
            // Malformed keys are found with all others.
            Some(_) | None => {}
        }
        true
    })
    .map_err(Into::into)
}
