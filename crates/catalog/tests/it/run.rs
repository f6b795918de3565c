//! Runs generated operations on a catalog and on the model, and compares all there is to see.

use crate::bed::{Bed, at};
use crate::model::{File, Files, Id, Model, Most, ROOT, Refusal, refusal};
use crate::world::{Fault, Random};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use ullage_catalog::{Backing, Catalog, Error, Inode, Limit, New, Subject, XattrMode, verify};
use ullage_types::{Class, FileId, Generation, Kind, PoolId};

/// Files and names are chosen among those there are when their turn comes.
#[derive(Clone, Debug)]
pub enum Op {
    Create {
        place: Place,
        kind: u8,
        class: u8,
        owner: u32,
        target: u16,
        xattr: u16,
    },
    CreateUnnamed {
        directory: u8,
        class: u8,
    },
    Link {
        file: u8,
        to: Place,
    },
    Unlink(Place),
    Rmdir(Place),
    Rename {
        from: Place,
        to: Place,
        keep: bool,
    },
    Exchange {
        from: Place,
        to: Place,
    },
    /// Mode, owner, class, size and blocks.
    Update {
        file: u8,
        mode: u16,
        owner: u32,
        class: u8,
        blocks: u8,
    },
    SetXattr {
        file: u8,
        name: u8,
        length: u32,
        mode: u8,
    },
    RemoveXattr {
        file: u8,
        name: u8,
    },
    /// Nobody holds a file without a name any more.
    Remove(u8),
    /// Keeps a file in memory, or lets all of those go.
    Hold(u8),
    LetGo,
    /// A listing begins, and goes on by some entries.
    ListBegin(u8),
    ListOn(u8),
    /// In thousands of bytes, and inodes.
    LimitUser {
        uid: u8,
        bytes: Option<u8>,
        inodes: Option<u8>,
    },
    LimitDirectory {
        directory: u8,
        bytes: Option<u8>,
        inodes: Option<u8>,
    },
    Sync,
    Checkpoint,
    Reopen,
    Cut(u64),
    CutLater(u8),
}

/// A name in a directory (or, seldom, in what is none).
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub directory: u8,
    pub name: u8,
}

const NAMES: u8 = 7;

fn name_of(choice: u8) -> Vec<u8> {
    match choice {
        200.. => [vec![], b".".to_vec(), b"..".to_vec(), b"a/b".to_vec(), vec![b'n'; 256]][choice as usize % 5].clone(),
        _ => match choice % NAMES {
            5 => vec![b'n'; 255],
            6 => vec![0xff, 0xfe, b'\n'],
            n => vec![b'a' + n],
        },
    }
}

struct Listing {
    directory: Id,
    after: u64,
    seen: BTreeSet<Vec<u8>>,
    /// Names that have been there all the time.
    stayed: BTreeSet<Vec<u8>>,
}

pub struct Run {
    pub bed: Bed,
    pub model: Model,
    held: Vec<Arc<Inode>>,
    listing: Option<Listing>,
    now: i64,
    ever: BTreeSet<Id>,
    /// The place in the model's history that is known to be durable.
    synced: usize,
}

fn blank(kind: Kind, class: Class, owner: u32, now: i64) -> File {
    File {
        kind,
        class,
        mode: 0o640,
        uid: owner,
        gid: owner + 1,
        rdev: 9,
        size: 0,
        blocks: 0,
        times: [now; 4],
        target: Vec::new(),
        xattrs: BTreeMap::new(),
        entries: BTreeMap::new(),
        names: BTreeSet::new(),
        charged: (ROOT, Vec::new()),
        limit: None,
        user_limits: BTreeMap::new(),
        waiting: false,
    }
}

fn kind_of(choice: u8) -> Kind {
    match choice {
        0..=3 => Kind::Regular,
        4..=7 => Kind::Directory,
        n => Kind::from_u8(3 + n % 5).unwrap(),
    }
}

fn class_of(choice: u8) -> Class {
    Class::from_u8(choice % 3).unwrap()
}

/// The power went during the operation, or the store refuses since it went before.
struct Lost;

impl Run {
    pub fn new(bed: Bed) -> Self {
        let root = File { mode: 0o755, gid: 0, rdev: 0, ..blank(Kind::Directory, Class::Persistent, 0, 0) };
        Self {
            bed,
            model: Model::new(root),
            held: Vec::new(),
            listing: None,
            now: 1,
            ever: BTreeSet::from([ROOT]),
            synced: 0,
        }
    }

    /// One operation on both sides, their answers compared.
    pub fn step(&mut self, op: &Op) {
        self.now += 1;
        if self.act(op).is_err() {
            self.cut(self.now as u64);
            return;
        }
        self.model.record();
        self.follow_listing();
    }

    pub fn all(&mut self, ops: &[Op]) {
        for op in ops {
            self.step(op);
        }
        self.finish();
    }

    fn any(&self, choice: u8) -> Id {
        let files: Vec<Id> = self.model.files.keys().copied().collect();
        files[choice as usize % files.len()]
    }

    fn directory(&self, choice: u8) -> Id {
        if choice >= 250 {
            return self.any(choice);
        }
        let directories = self.model.directories();
        directories[choice as usize % directories.len()]
    }

    fn place(&self, place: Place) -> (Id, Vec<u8>) {
        (self.directory(place.directory), name_of(place.name))
    }

    fn get(&self, id: Id) -> Arc<Inode> {
        let inode = self.bed.catalog().get(FileId(id)).unwrap_or_else(|error| panic!("file {id} is there: {error}"));
        assert_eq!(inode.id.0, id);
        inode
    }

    fn act(&mut self, op: &Op) -> Result<(), Lost> {
        let catalog = self.bed.catalog();
        let now = self.now;
        match *op {
            Op::Create { place, kind, class, owner, target, xattr } => {
                let (parent, name) = self.place(place);
                let mut file = blank(kind_of(kind), class_of(class), owner % 3, now);
                if file.kind == Kind::Symlink {
                    file.target = vec![b't'; 1 + target as usize % 4095];
                    file.size = file.target.len() as u64;
                }
                if xattr > 0 {
                    file.xattrs.insert(b"user.born".to_vec(), vec![1; xattr as usize % 5000]);
                }
                let new = self.fresh(&catalog, &file)?;
                let id = new.id.0;
                let made = catalog.create(&self.get(parent), &name, new, at(now)).map(drop);
                same(made, self.model.within_limits(|model| model.create(id, parent, &name, file, now)))
            }
            Op::CreateUnnamed { directory, class } => {
                let parent = self.directory(directory);
                let file = blank(Kind::Regular, class_of(class), 1, now);
                let new = self.fresh(&catalog, &file)?;
                let id = new.id.0;
                let made = catalog.create_unnamed(&self.get(parent), new, at(now)).map(drop);
                same(made, self.model.within_limits(|model| model.create_unnamed(id, parent, file)))
            }
            Op::Link { file, to } => {
                let (id, (parent, name)) = (self.any(file), self.place(to));
                let made = catalog.link(&self.get(id), &self.get(parent), &name, at(now));
                same(made, self.model.within_limits(|model| model.link(id, parent, &name, now)))
            }
            Op::Unlink(place) => {
                let (parent, name) = self.place(place);
                let done = catalog.unlink(&self.get(parent), &name, at(now));
                let done = done.map(|unlinked| (unlinked.file.id.0, unlinked.last));
                let expected = self.model.unlink(parent, &name, now);
                same(done, expected.map(|id| (id, self.model.nlink(id) == 0)))
            }
            Op::Rmdir(place) => {
                let (parent, name) = self.place(place);
                let done = catalog.rmdir(&self.get(parent), &name, at(now));
                same(done.map(|unlinked| unlinked.file.id.0), self.model.rmdir(parent, &name, now))
            }
            Op::Rename { from, to, keep } => {
                let ((from, name), (to, to_name)) = (self.place(from), self.place(to));
                let done = catalog.rename((&self.get(from), &name), (&self.get(to), &to_name), keep, at(now));
                let gone = self.model.files.get(&to).and_then(|file| file.entries.get(&to_name)).copied();
                let expected = self.model.within_limits(|model| model.rename((from, &name), (to, &to_name), keep, now));
                if let (Ok(renamed), Ok(())) = (&done, &expected)
                    && renamed.moved.id.0 != gone.unwrap_or(0)
                {
                    let replaced = renamed.replaced.as_ref().map(|unlinked| (unlinked.file.id.0, unlinked.last));
                    assert_eq!(replaced, gone.map(|id| (id, self.model.nlink(id) == 0)));
                }
                same(done.map(drop), expected)
            }
            Op::Exchange { from, to } => {
                let ((from, name), (to, to_name)) = (self.place(from), self.place(to));
                let done = catalog.exchange((&self.get(from), &name), (&self.get(to), &to_name), at(now));
                let expected = self.model.within_limits(|model| model.exchange((from, &name), (to, &to_name), now));
                same(done.map(drop), expected)
            }
            Op::Update { file, mode, owner, class, blocks } => self.update(&catalog, file, mode, owner, class, blocks),
            Op::SetXattr { file, name, length, mode } => {
                let id = self.any(file);
                let name = vec![b'u', name % 4];
                let mode = [XattrMode::Any, XattrMode::Create, XattrMode::Replace][mode as usize % 3];
                let value = vec![7; length as usize];
                let done = catalog.set_xattr(&self.get(id), &name, &value, mode, at(now), |_| {});
                same(done, self.model.within_limits(|model| model.set_xattr(id, &name, &value, mode, now)))
            }
            Op::LimitUser { uid, bytes, inodes } => {
                let uid = u32::from(uid) % 3;
                let most = (bytes.map(|n| u64::from(n) * 1000), inodes.map(u64::from));
                let done = catalog.set_limit(Subject::User(uid), limit(most));
                if done.is_ok() {
                    let limits = &mut self.model.at_mut(ROOT).user_limits;
                    if most == (None, None) {
                        limits.remove(&uid)
                    } else {
                        limits.insert(uid, most)
                    };
                }
                same(done, Ok(()))
            }
            Op::LimitDirectory { directory, bytes, inodes } => {
                let id = self.directory(directory);
                let most = (bytes.map(|n| u64::from(n) * 1000), inodes.map(u64::from));
                let done = catalog.set_limit(Subject::Directory(FileId(id)), limit(most));
                same(done, self.model.limit_directory(id, most))
            }
            Op::RemoveXattr { file, name } => {
                let id = self.any(file);
                let name = vec![b'u', name % 4];
                let done = catalog.remove_xattr(&self.get(id), &name, at(now), |_| {});
                same(done, self.model.remove_xattr(id, &name, now))
            }
            Op::Remove(choice) => {
                let orphans = self.model.orphans();
                if orphans.is_empty() {
                    return Ok(());
                }
                let id = orphans[choice as usize % orphans.len()];
                self.held.retain(|inode| inode.id.0 != id);
                let done = catalog.remove(&self.get(id)).map(drop);
                if done.is_ok() {
                    self.model.remove(id);
                }
                same(done, Ok(()))
            }
            Op::Hold(file) => {
                self.held.push(self.get(self.any(file)));
                Ok(())
            }
            Op::LetGo => {
                self.held.clear();
                Ok(())
            }
            Op::ListBegin(directory) => {
                let directory = self.directory(directory % 250);
                let stayed = self.model.at(directory).entries.keys().cloned().collect();
                self.listing = Some(Listing { directory, after: 0, seen: BTreeSet::new(), stayed });
                Ok(())
            }
            Op::ListOn(most) => {
                self.list_on(1 + most as usize % 4);
                Ok(())
            }
            Op::Sync => {
                catalog.sync().map_err(|_| Lost)?;
                self.synced = self.model.history.len() - 1;
                Ok(())
            }
            Op::Checkpoint => {
                self.bed.checkpoint().map_err(|_| Lost)?;
                self.synced = self.model.history.len() - 1;
                Ok(())
            }
            Op::Reopen => {
                drop(catalog);
                if self.bed.survives() && self.bed.world().is_none_or(|world| !world.armed()) {
                    self.forget();
                    self.bed.reopen();
                    self.forget_waiting();
                }
                Ok(())
            }
            Op::Cut(seed) => {
                drop(catalog);
                if self.bed.world().is_some() {
                    self.cut(seed);
                }
                Ok(())
            }
            Op::CutLater(calls) => {
                if let Some(world) = self.bed.world() {
                    world.arm(calls.into(), Fault::Power);
                }
                Ok(())
            }
        }
    }

    fn update(
        &mut self,
        catalog: &Catalog,
        file: u8,
        mode: u16,
        owner: u32,
        class: u8,
        blocks: u8,
    ) -> Result<(), Lost> {
        let (id, now) = (self.any(file), self.now);
        let class = class_of(class);
        let inode = self.get(id);
        let done = catalog.update(&inode, |record| {
            record.mode = u32::from(mode) & 0o7777;
            record.uid = owner % 3;
            record.class = class;
            record.ctime = at(now);
            if record.kind == Kind::Regular {
                (record.size, record.blocks) = (u64::from(blocks) * 700, u64::from(blocks));
                record.mtime = at(now);
            }
            Ok(())
        });
        let file = self.model.at_mut(id);
        let mut changed = file.clone();
        (changed.mode, changed.uid, changed.class) = (u32::from(mode) & 0o7777, owner % 3, class);
        changed.times[2] = now;
        if changed.kind == Kind::Regular {
            (changed.size, changed.blocks) = (u64::from(blocks) * 700, u64::from(blocks));
            changed.times[1] = now;
        }
        // Blocks are measured and never refused; what they cost a new owner or class is.
        let (moves, reclassified) =
            ((file.uid, file.class) != (changed.uid, changed.class), file.class != changed.class);
        let expected = self.model.within(moves, reclassified, |model| {
            *model.at_mut(id) = changed;
            Ok(())
        });
        same(done, expected)
    }

    fn fresh(&mut self, catalog: &Catalog, file: &File) -> Result<New, Lost> {
        let (id, generation) = catalog.numbers().pair();
        // When the power goes meanwhile the number is given all the same, and nothing can be recorded under it.
        if self.bed.world().is_some_and(super::world::World::is_off) {
            return Err(Lost);
        }
        assert!(self.ever.insert(id.0), "file id {id} was used before");
        Ok(New {
            id,
            kind: file.kind,
            class: file.class,
            mode: file.mode,
            uid: file.uid,
            gid: file.gid,
            rdev: file.rdev,
            target: file.target.clone().into(),
            backing: backing(file.kind, generation),
            xattrs: file.xattrs.clone().into_iter().collect(),
            brought: None,
        })
    }

    fn list_on(&mut self, most: usize) {
        let Some(mut listing) = self.listing.take() else { return };
        let entries = self.bed.catalog().list(&self.get(listing.directory), listing.after, u64::MAX, most).unwrap();
        assert!(entries.len() <= most);
        let ended = entries.len() < most;
        for entry in entries {
            assert!(entry.cookie > listing.after, "a listing goes on");
            listing.after = entry.cookie;
            assert_eq!(self.model.at(listing.directory).entries.get(&entry.name), Some(&entry.file.0));
            let again = !listing.seen.insert(entry.name.clone());
            assert!(!(again && listing.stayed.contains(&entry.name)), "an entry that stays is met once");
        }
        if ended {
            assert!(listing.stayed.is_subset(&listing.seen), "an entry that stays is met");
        } else {
            self.listing = Some(listing);
        }
    }

    /// What is gone, or was gone in between, a listing owes nothing.
    fn follow_listing(&mut self) {
        let Some(listing) = &mut self.listing else { return };
        match self.model.files.get(&listing.directory) {
            Some(file) => listing.stayed.retain(|name| file.entries.contains_key(name)),
            None => self.listing = None,
        }
    }

    fn forget(&mut self) {
        self.held.clear();
        self.listing = None;
    }

    /// Who holds what is not known after a start: whoever opens a space removes all that has no name.
    fn forget_waiting(&mut self) {
        for file in self.model.files.values_mut() {
            file.waiting = false;
        }
    }

    fn cut(&mut self, seed: u64) {
        self.forget();
        self.bed.cut(&mut Random(seed));
        let found = self.dump();
        let states = &self.model.history[self.synced..];
        let Some(place) = states.iter().position(|state| forgotten(state) == found) else {
            panic!("after a power cut there is {found:#?}\nwhich is no state since the last sync");
        };
        self.model.files = found;
        self.synced += place;
        self.model.history.truncate(self.synced + 1);
        self.check_clean();
        let catalog = self.bed.catalog();
        for id in catalog.orphans().unwrap() {
            catalog.remove(&catalog.get(id).unwrap()).unwrap();
        }
        for id in self.model.orphans() {
            if self.model.files.contains_key(&id) {
                self.model.remove(id);
            }
        }
        assert_eq!(self.model.orphans(), [] as [Id; 0]);
        self.model.record();
    }

    /// Everything that the catalog has, read through it.
    fn dump(&self) -> Files {
        let catalog = self.bed.catalog();
        let mut files = Files::new();
        let mut todo: Vec<Id> = catalog.orphans().unwrap().into_iter().map(|id| id.0).collect();
        todo.push(ROOT);
        let mut names: BTreeMap<Id, BTreeSet<(Id, Vec<u8>)>> = BTreeMap::new();
        while let Some(id) = todo.pop() {
            if files.contains_key(&id) {
                continue;
            }
            let inode = self.get(id);
            let record = inode.record();
            let mut file = blank(record.kind, record.class, record.uid, 0);
            (file.mode, file.gid, file.rdev) = (record.mode, record.gid, record.rdev);
            (file.size, file.blocks) = (record.size, record.blocks);
            file.times = [record.atime, record.mtime, record.ctime, record.btime].map(|time| time.seconds);
            file.target = record.target.to_vec();
            file.xattrs = catalog.xattrs(&inode).unwrap().into_iter().collect();
            assert_eq!(record.xattr_bytes as usize, file.xattr_bytes());
            assert_eq!(record.xattrs as usize, file.xattrs.len());
            file.charged = (record.parent.0, record.name.to_vec());
            file.limit = most(catalog.limit(Subject::Directory(inode.id)));
            if id == ROOT {
                let user = |uid| most(catalog.limit(Subject::User(uid))).map(|most| (uid, most));
                file.user_limits = (0..3).filter_map(user).collect();
            }
            if record.kind == Kind::Directory {
                for entry in catalog.list(&inode, 0, u64::MAX, usize::MAX).unwrap() {
                    file.entries.insert(entry.name.clone(), entry.file.0);
                    names.entry(entry.file.0).or_default().insert((id, entry.name));
                    todo.push(entry.file.0);
                }
                assert_eq!(record.entries as usize, file.entries.len());
            }
            files.insert(id, file);
        }
        for (id, names) in names {
            files.get_mut(&id).unwrap().names = names;
        }
        files
    }

    /// Every number that the catalog keeps, against the model's recount.
    pub fn compare(&self) {
        let catalog = self.bed.catalog();
        assert_eq!(self.dump(), forgotten(&self.model.files));
        let (totals, users) = self.model.recount();
        for (&id, file) in &self.model.files {
            let inode = self.get(id);
            assert_eq!(inode.record().nlink, self.model.nlink(id), "links of {id}");
            assert_eq!(inode.record().charge(), file.charge(), "charge of {id}");
            if let Some(totals) = totals.get(&id) {
                assert_eq!(inode.totals().now(), *totals, "totals of directory {id}");
            }
            for (name, child) in &file.entries {
                assert_eq!(catalog.lookup(&inode, name).unwrap().map(|inode| inode.id.0), Some(*child));
            }
        }
        for user in catalog.users() {
            assert_eq!(user.actual, users.get(&user.uid).copied().unwrap_or_default(), "use of {}", user.uid);
        }
        assert!(users.keys().all(|uid| catalog.users().iter().any(|user| user.uid == *uid)));
    }

    fn check_clean(&self) {
        let report = verify(self.bed.kv()).unwrap();
        assert_eq!(report.findings, []);
        assert_eq!(report.files as usize, self.model.files.len());
    }

    /// Everything equal, in memory and as records.
    pub fn finish(&mut self) {
        while self.listing.is_some() {
            self.list_on(2);
        }
        self.compare();
        if self.bed.world().is_some_and(super::world::World::is_off) || self.bed.catalog().sync().is_err() {
            self.cut(1);
            self.compare();
            self.bed.catalog().sync().unwrap();
        }
        self.check_clean();
    }
}

fn forgotten(files: &Files) -> Files {
    let mut files = files.clone();
    for file in files.values_mut() {
        file.waiting = false;
    }
    files
}

fn limit((bytes, inodes): Most) -> Limit {
    Limit { bytes, inodes }
}

fn most(limit: Option<Limit>) -> Option<Most> {
    limit.map(|limit| (limit.bytes, limit.inodes))
}

fn backing(kind: Kind, generation: Generation) -> Option<Backing> {
    (kind == Kind::Regular).then(|| Backing { pool: PoolId(1), generation, locator: (*b"1/f/x").into() })
}

/// Compares an answer with the model's. When the store takes no more it is the power that went.
fn same<T: PartialEq + std::fmt::Debug>(done: Result<T, Error>, expected: Result<T, Refusal>) -> Result<(), Lost> {
    match done {
        Err(Error::Kv(_)) => Err(Lost),
        done => {
            assert_eq!(done.map_err(|error| refusal(&error)), expected);
            Ok(())
        }
    }
}
