//! The catalog object: opening a space's records, finding files, cutting the ledger.

use crate::directory::Directory;
use crate::inode::Inode;
use crate::ledger::{DIRECTORY_CHARGE, Ledger, TotalsNow, UserNow};
use crate::numbers::CatalogNumbers;
use crate::record::Record;
use crate::table::{Absent, Table};
use crate::{Error, Result, keys};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use ullage_kv::{Batch, Cut, Kv, Seq};
use ullage_types::{ByClass, Charge, Class, FileId, Kind, ROOT, Timestamp};

/// The format of the records this version writes (docs/ON_DISK.md).
pub const FORMAT: u32 = 1;

/// No tree is deeper; a chain of ancestors that is has a ring in it.
const DEPTH_MAX: usize = 1 << 24;

/// A space's names, inodes and ledger.
pub struct Catalog {
    pub(crate) kv: Arc<dyn Kv>,
    pub(crate) table: Arc<Table>,
    pub(crate) ledger: Ledger,
    /// Held shared by every operation around its totals and its commit, exclusively by a cut and by moves of
    /// directories. Taken before any inode's lock.
    pub(crate) gate: RwLock<()>,
    /// Directories without a name that nobody holds, but which files without names are charged to.
    pub(crate) waiting: Mutex<FxHashMap<FileId, Arc<Inode>>>,
    numbers: Arc<CatalogNumbers>,
    root: Arc<Inode>,
    created: bool,
}

impl Catalog {
    /// Opens the catalog in `kv`, or makes a new one whose root belongs to `uid` and `gid`.
    pub fn open(kv: Arc<dyn Kv>, uid: u32, gid: u32, now: Timestamp) -> Result<Arc<Self>> {
        let created = match kv.get(keys::SUPER)? {
            Some(bytes) => {
                check_format(&bytes)?;
                if kv.get(keys::REPAIR)?.is_some() {
                    return Err(Error::Damaged(
                        "a repair of it is not over: `ullage check --repair` goes on with it".into(),
                    ));
                }
                false
            }
            None => {
                refuse_headless(&*kv)?;
                format(&*kv, uid, gid, now)?;
                true
            }
        };
        let table = Arc::new(Table::new());
        let ledger = Ledger::load(&*kv)?;
        let record = read_record(&*kv, ROOT)?.ok_or_else(|| Error::Damaged("there is no root".into()))?;
        let root = load(&*kv, &ledger, &table, ROOT, record, None)?;
        table.enter(&root);
        let catalog = Arc::new(Self {
            ledger,
            numbers: Arc::new(CatalogNumbers::open(kv.clone())?),
            gate: RwLock::new(()),
            waiting: Mutex::default(),
            kv,
            table,
            root,
            created,
        });
        let cut: Arc<dyn Cut> = catalog.clone();
        catalog.kv.set_cut(Arc::downgrade(&cut));
        Ok(catalog)
    }

    /// Whether [`Catalog::open`] made it.
    pub fn created(&self) -> bool {
        self.created
    }

    /// The root directory.
    pub fn root(&self) -> &Arc<Inode> {
        &self.root
    }

    /// Where new file ids and generations come from.
    pub fn numbers(&self) -> Arc<CatalogNumbers> {
        self.numbers.clone()
    }

    /// The store below.
    pub fn kv(&self) -> &Arc<dyn Kv> {
        &self.kv
    }

    /// The file with this id. [`Error::NotFound`] when there is none.
    pub fn get(&self, file: FileId) -> Result<Arc<Inode>> {
        loop {
            let absent = match self.table.find(file) {
                Ok(found) => return Ok(found),
                Err(absent) => absent,
            };
            if let Some(loaded) = self.load_chain(file, absent)? {
                return Ok(loaded);
            }
        }
    }

    /// The file with this id, if it is in memory.
    pub fn get_cached(&self, file: FileId) -> Option<Arc<Inode>> {
        self.table.find(file).ok()
    }

    /// Loads a file, and the ancestors of a directory before it: from the nearest one in memory downwards, since a
    /// tree may be deeper than a stack. None when something moved meanwhile, and it is to be looked for again.
    fn load_chain(&self, file: FileId, absent: Absent) -> Result<Option<Arc<Inode>>> {
        let record = read_record(&*self.kv, file)?.ok_or(Error::NotFound)?;
        let mut missing = vec![(file, absent, record)];
        let mut above = None;
        while above.is_none()
            && let Some((id, _, child)) = missing.last()
            && child.kind == Kind::Directory
        {
            let (id, parent) = (*id, child.parent);
            match self.table.find(parent) {
                Ok(found) => above = Some(found),
                Err(absent) => {
                    let Some(record) = read_record(&*self.kv, parent)? else {
                        let again = read_record(&*self.kv, id)?;
                        return if again.is_some_and(|again| again.parent == parent) {
                            Err(Error::Damaged(format!(
                                "directory {id} is in directory {parent}, which does not exist"
                            )))
                        } else {
                            Ok(None)
                        };
                    };
                    if missing.len() > DEPTH_MAX {
                        return Err(Error::Damaged(format!("the ancestors of directory {file} form a ring")));
                    }
                    missing.push((parent, absent, record));
                }
            }
        }
        while let Some((id, absent, record)) = missing.pop() {
            let loaded = self.table.find_or(id, absent, |stands| {
                let record = if stands { record } else { read_record(&*self.kv, id)?.ok_or(Lost::Gone)? };
                let inode = load(&*self.kv, &self.ledger, &self.table, id, record, above.clone())?;
                let stands =
                    !inode.is_directory() || above.as_ref().is_some_and(|a| a.id == inode.lock().record.parent);
                if stands { Ok(inode) } else { Err(Lost::Moved(inode)) }
            });
            above = match loaded {
                Ok(inode) => Some(inode),
                Err(Lost::Moved(_) | Lost::Gone) => return Ok(None),
                Err(Lost::Failed(error)) => return Err(error),
            };
        }
        Ok(above)
    }

    /// Writes every commit so far to the disk and returns when it is there.
    pub fn sync(&self) -> Result<()> {
        Ok(self.kv.sync(self.kv.newest())?)
    }

    /// The newest commit that survives a power cut.
    pub fn durable(&self) -> Seq {
        self.kv.durable()
    }

    /// What every user uses.
    pub fn users(&self) -> Vec<UserNow> {
        self.ledger.users()
    }

    /// What one user uses.
    pub fn user(&self, uid: u32) -> UserNow {
        self.ledger.user_now(uid)
    }

    /// Begins an operation: where the store's memory is full, waits; then holds the gate.
    pub(crate) fn enter(&self) -> Result<RwLockReadGuard<'_, ()>> {
        self.kv.make_room()?;
        Ok(self.gate.read())
    }

    /// Refuses what would make something while the store has no room to bring it into its engine. What removes is let through,
    /// since it makes room.
    pub(crate) fn refuse_when_tight(&self) -> Result<()> {
        if self.kv.is_tight() { Err(Error::NoRoom) } else { Ok(()) }
    }

    pub(crate) fn commit(&self, batch: Batch) -> Result<Seq> {
        Ok(self.kv.commit(batch)?)
    }

    /// The directory that a file is charged to.
    pub(crate) fn charged_to(&self, record: &Record) -> Result<Arc<Inode>> {
        self.get(record.parent)
    }
}

impl Cut for Catalog {
    fn cut(&self, take: &mut dyn FnMut(Batch)) {
        let _gate = self.gate.write();
        let mut batch = Batch::new();
        let written = self.ledger.collect(&mut batch);
        take(batch);
        // Only now: a directory that leaves memory before its totals are taken would be loaded with the old ones.
        drop(written);
    }
}

/// Whoever closes the store afterwards writes what is still pending: the totals must be with it, and nobody can be
/// asked for a cut any more.
impl Drop for Catalog {
    fn drop(&mut self) {
        let mut batch = Batch::new();
        let written = self.ledger.collect(&mut batch);
        if !batch.is_empty()
            && let Err(error) = self.kv.commit(batch)
        {
            tracing::debug!("the last totals are not written: {error}");
        }
        drop(written);
    }
}

pub(crate) fn check_format(superblock: &[u8]) -> Result<()> {
    match superblock.get(..4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes) {
        Some(FORMAT) => Ok(()),
        Some(found) => Err(ullage_kv::Error::Newer { found, known: FORMAT }.into()),
        None => Err(Error::Damaged("the superblock cannot be read".into())),
    }
}

/// A store with records but no superblock is no new one: making a catalog in it would bury what is left.
fn refuse_headless(kv: &dyn Kv) -> Result<()> {
    let mut empty = true;
    kv.scan(&[], &[], &mut |_, _| {
        empty = false;
        false
    })?;
    if empty { Ok(()) } else { Err(Error::Damaged("there are records but no superblock".into())) }
}

/// Why a load did not give a file. A file that moved is handed out, to be dropped where no shard is locked.
enum Lost {
    Gone,
    Moved(#[allow(dead_code)] Arc<Inode>),
    Failed(Error),
}

impl From<Error> for Lost {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

pub(crate) fn read_record(kv: &dyn Kv, file: FileId) -> Result<Option<Record>> {
    kv.get(&keys::inode(file))?.map(|bytes| Record::decode(file, &bytes)).transpose()
}

/// The file of a record, in memory.
fn load(
    kv: &dyn Kv,
    ledger: &Ledger,
    table: &Arc<Table>,
    file: FileId,
    record: Record,
    parent: Option<Arc<Inode>>,
) -> Result<Arc<Inode>> {
    let totals = (record.kind == Kind::Directory).then(|| ledger.totals(kv, file)).transpose()?;
    Ok(Arc::new(Inode::new(file, record, Directory::default(), parent, totals, Arc::downgrade(table))))
}

/// The first records of a new catalog.
fn format(kv: &dyn Kv, uid: u32, gid: u32, now: Timestamp) -> Result<()> {
    let root = Record::empty(Kind::Directory, ROOT, 0o755, (uid, gid), now);
    let mut actual = ByClass::<Charge>::default();
    actual[Class::Persistent] = Charge::new(DIRECTORY_CHARGE, 1);
    let mut batch = Batch::new();
    batch.put_new(keys::inode(ROOT), root.encode());
    batch.put_new(keys::totals(ROOT), TotalsNow { actual, linked: 0 }.encode());
    let mut user = Vec::new();
    crate::ledger::encode_charges(actual, &mut user);
    batch.put_new(keys::user(uid), user);
    batch.put_new(keys::SUPER.to_vec(), FORMAT.to_le_bytes().to_vec());
    kv.sync(kv.commit(batch)?)?;
    Ok(())
}
