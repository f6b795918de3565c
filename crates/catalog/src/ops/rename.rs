//! Moving and exchanging names.

use crate::account::Delta;
use crate::directory::Dirent;
use crate::inode::{Inode, State};
use crate::ops::unlink::{Step, drop_directory};
use crate::ops::{after, check_directory, check_name, touch};
use crate::{Catalog, Error, New, Record, Result, keys, names};
use parking_lot::MutexGuard;
use std::collections::BTreeMap;
use std::sync::Arc;
use ullage_kv::Batch;
use ullage_types::{FileId, Kind, Timestamp};

/// What a rename did besides moving the name.
#[derive(Debug)]
pub struct Renamed {
    /// The file that moved.
    pub moved: Arc<Inode>,
    /// The file whose name was taken over; `last` as in [`crate::Unlinked`].
    pub replaced: Option<crate::Unlinked>,
    /// The file that went the other way (`RENAME_EXCHANGE`).
    pub exchanged: Option<Arc<Inode>>,
}

/// The files of one rename, locked in order, each once.
struct Locked<'a> {
    states: BTreeMap<FileId, MutexGuard<'a, State>>,
}

impl<'a> Locked<'a> {
    fn new(inodes: &[&'a Arc<Inode>]) -> Self {
        let mut order: Vec<&'a Arc<Inode>> = inodes.to_vec();
        order.sort_unstable_by_key(|inode| inode.id);
        order.dedup_by_key(|inode| inode.id);
        Self { states: order.into_iter().map(|inode| (inode.id, inode.lock())).collect() }
    }

    fn get(&mut self, inode: &Inode) -> &mut MutexGuard<'a, State> {
        self.states.get_mut(&inode.id).expect("every file of a rename is locked")
    }
}

impl Catalog {
    /// Moves `name` in `from` to `to_name` in `to`, replacing what is there unless `keep` says that nothing
    /// may be (RENAME_NOREPLACE).
    pub fn rename(
        &self,
        (from, name): (&Arc<Inode>, &[u8]),
        (to, to_name): (&Arc<Inode>, &[u8]),
        keep: bool,
        now: Timestamp,
    ) -> Result<Renamed> {
        self.rename_leaving((from, name), (to, to_name), keep, None, now)
    }

    /// The same, and a new file without data takes the name that was left, in the same transaction (RENAME_WHITEOUT).
    pub fn rename_leaving(
        &self,
        (from, name): (&Arc<Inode>, &[u8]),
        (to, to_name): (&Arc<Inode>, &[u8]),
        keep: bool,
        left: Option<&New>,
        now: Timestamp,
    ) -> Result<Renamed> {
        check_name(to_name)?;
        self.between(|exclusive: bool| {
            loop {
                let moved = self.lookup(from, name)?.ok_or(Error::NotFound)?;
                let target = self.lookup(to, to_name)?;
                if let Some(target) = &target {
                    if keep {
                        return Err(Error::Exists);
                    }
                    if target.id == moved.id {
                        return Ok(Some(Renamed { moved, replaced: None, exchanged: None }));
                    }
                }
                if moved.is_directory() && from.id != to.id {
                    if !exclusive {
                        return Ok(None);
                    }
                    refuse_loop(&moved, to)?;
                }
                let mut inodes = vec![from, to, &moved];
                inodes.extend(&target);
                let mut locked = Locked::new(&inodes);
                let stands = self.still(locked.get(from), from, name, &moved)?;
                check_directory(locked.get(to))?;
                let there = locked.get(to).find(&*self.kv, to.id, to_name)?;
                if !stands || there.map(|dirent| dirent.file) != target.as_ref().map(|target| target.id) {
                    continue;
                }
                let replaced =
                    self.replace_locked(&mut locked, (from, name), (to, to_name), &moved, target.as_ref(), left, now)?;
                drop(locked);
                let replaced = target.map(|file| crate::Unlinked { file, last: replaced });
                return Ok(Some(Renamed { moved, replaced, exchanged: None }));
            }
        })
    }

    #[allow(clippy::too_many_arguments)]
    fn replace_locked(
        &self,
        locked: &mut Locked<'_>,
        (from, name): (&Arc<Inode>, &[u8]),
        (to, to_name): (&Arc<Inode>, &[u8]),
        moved: &Arc<Inode>,
        target: Option<&Arc<Inode>>,
        left: Option<&New>,
        now: Timestamp,
    ) -> Result<bool> {
        let mut batch = Batch::new();
        let is_directory = moved.is_directory();
        let mut record = locked.get(moved).record.clone();
        let was_primary = moves_primary(&record, moved, from, name);
        let mut gone: Option<(Record, Step)> = None;
        if let Some(target) = target {
            let mut old = locked.get(target).record.clone();
            let step = match (is_directory, target.is_directory()) {
                (true, false) => return Err(Error::NotDirectory),
                (false, true) => return Err(Error::IsDirectory),
                (true, true) if old.entries > 0 => return Err(Error::NotEmpty),
                (true, true) => {
                    drop_directory(&mut batch, target, &mut old, now);
                    Step::default()
                }
                (false, false) => self.drop_name(&mut batch, target, &mut old, to, to_name, now)?,
            };
            batch.put(keys::inode(target.id), old.encode());
            gone = Some((old, step));
        }
        // The directories' records, one object each even when they are the same.
        let same = from.id == to.id;
        let mut above = locked.get(from).record.clone();
        let mut below = (!same).then(|| locked.get(to).record.clone());
        touch(&mut above, now);
        above.entries -= 1;
        above.nlink -= u32::from(is_directory);
        let into = below.as_mut().unwrap_or(&mut above);
        touch(into, now);
        let cookie = match (target.is_some(), locked.get(to).find(&*self.kv, to.id, to_name)?) {
            (true, Some(dirent)) => {
                // The name stays in the listing; only what it names changes.
                into.nlink -= u32::from(is_directory);
                dirent.cookie
            }
            _ if same && left.is_none() => {
                // The entry stays in the listing; only its name changes.
                into.entries += 1;
                locked.get(from).find(&*self.kv, from.id, name)?.ok_or(Error::NotFound)?.cookie
            }
            _ => {
                into.entries += 1;
                into.next_cookie += 1;
                into.next_cookie - 1
            }
        };
        into.nlink += u32::from(is_directory);
        let dirent = Dirent { file: moved.id, kind: moved.kind, cookie };
        if record.nlink > 1 && !is_directory {
            names::remove(&mut batch, moved.id, from.id, name);
            names::add(&mut batch, moved.id, to.id, to_name);
        }
        record.ctime = after(record.ctime, now);
        if was_primary {
            record.parent = to.id;
            record.name = to_name.into();
        }
        let left = match left {
            None => {
                batch.del(keys::entry(from.id, name));
                None
            }
            Some(new) => {
                let place = locked.get(from).find(&*self.kv, from.id, name)?.ok_or(Error::NotFound)?;
                let dirent = Dirent { file: new.id, kind: new.kind, cookie: place.cookie };
                above.entries += 1;
                batch.put(keys::entry(from.id, name), dirent.encode());
                Some((self.born(from, name, new, now, &mut batch), dirent))
            }
        };
        batch.put(keys::entry(to.id, to_name), dirent.encode());
        batch.put(keys::inode(from.id), above.encode());
        if let Some(below) = &below {
            batch.put(keys::inode(to.id), below.encode());
        }
        batch.put(keys::inode(moved.id), record.encode());
        self.keep_links_together(moved, record.nlink, from, to)?;
        let gain = if was_primary { gain_of(moved, locked.get(moved)) } else { NOTHING };
        let shift = self.ledger.shift(from, to, gain)?;
        let admitted = match &left {
            None => None,
            Some((file, _)) => {
                let state = file.lock();
                let (uid, class) = (state.record.uid, state.record.class);
                Some(self.ledger.admit(Some((from, None)), Some(uid), class, state.weight())?)
            }
        };
        match &left {
            None => self.commit(batch).map(drop)?,
            Some((file, _)) => self.commit_born(batch, file)?,
        }

        match left {
            None => locked.get(from).directory.remove(name),
            Some((_, dirent)) => locked.get(from).directory.replace(name, dirent),
        }
        if let Some(admitted) = admitted {
            admitted.keep();
        }
        if target.is_some() {
            locked.get(to).directory.replace(to_name, dirent);
        } else {
            locked.get(to).directory.insert(to_name, dirent);
        }
        locked.get(from).record = above;
        if let Some(below) = below {
            locked.get(to).record = below;
        }
        let mut last = false;
        if let (Some(target), Some((old, step))) = (target, gone) {
            last = old.nlink == 0;
            locked.get(target).record = old;
            self.settle(to, locked.get(target), step);
        }
        shift.keep();
        self.moved(moved, &record, from, to);
        locked.get(moved).record = record;
        Ok(last)
    }

    /// Exchanges two names (RENAME_EXCHANGE).
    pub fn exchange(
        &self,
        (from, name): (&Arc<Inode>, &[u8]),
        (to, to_name): (&Arc<Inode>, &[u8]),
        now: Timestamp,
    ) -> Result<Renamed> {
        self.between(|exclusive: bool| {
            loop {
                let one = self.lookup(from, name)?.ok_or(Error::NotFound)?;
                let other = self.lookup(to, to_name)?.ok_or(Error::NotFound)?;
                if one.id == other.id {
                    return Ok(Some(Renamed { moved: one, replaced: None, exchanged: Some(other) }));
                }
                if from.id != to.id && (one.is_directory() || other.is_directory()) {
                    if !exclusive {
                        return Ok(None);
                    }
                    refuse_loop(&one, to)?;
                    refuse_loop(&other, from)?;
                }
                let mut locked = Locked::new(&[from, to, &one, &other]);
                if !self.still(locked.get(from), from, name, &one)?
                    || !self.still(locked.get(to), to, to_name, &other)?
                {
                    continue;
                }
                self.exchange_locked(&mut locked, (from, name, &one), (to, to_name, &other), now)?;
                drop(locked);
                return Ok(Some(Renamed { moved: one, replaced: None, exchanged: Some(other) }));
            }
        })
    }

    fn exchange_locked(
        &self,
        locked: &mut Locked<'_>,
        (from, name, one): (&Arc<Inode>, &[u8], &Arc<Inode>),
        (to, to_name, other): (&Arc<Inode>, &[u8], &Arc<Inode>),
        now: Timestamp,
    ) -> Result<()> {
        let mut batch = Batch::new();
        let cookie = |locked: &mut Locked<'_>, directory: &Inode, name: &[u8]| -> Result<u64> {
            let dirent = locked.get(directory).find(&*self.kv, directory.id, name)?;
            Ok(dirent.expect("the entry was there under this lock").cookie)
        };
        let here = Dirent { file: other.id, kind: other.kind, cookie: cookie(locked, from, name)? };
        let there = Dirent { file: one.id, kind: one.kind, cookie: cookie(locked, to, to_name)? };
        let mut records = Vec::with_capacity(2);
        for (file, (old, old_name), (new, new_name)) in
            [(one, (from, name), (to, to_name)), (other, (to, to_name), (from, name))]
        {
            let mut record = locked.get(file).record.clone();
            let primary = moves_primary(&record, file, old, old_name);
            record.ctime = after(record.ctime, now);
            if primary {
                record.parent = new.id;
                record.name = new_name.into();
            }
            if record.nlink > 1 && !file.is_directory() {
                names::remove(&mut batch, file.id, old.id, old_name);
                names::add(&mut batch, file.id, new.id, new_name);
            }
            batch.put(keys::inode(file.id), record.encode());
            records.push((file, old, new, record, primary));
        }
        let mut above = locked.get(from).record.clone();
        touch(&mut above, now);
        let mut below = None;
        if from.id != to.id {
            let mut record = locked.get(to).record.clone();
            touch(&mut record, now);
            let balance = |record: &mut Record, gone: Kind, came: Kind| {
                record.nlink += u32::from(came == Kind::Directory);
                record.nlink -= u32::from(gone == Kind::Directory);
            };
            balance(&mut above, one.kind, other.kind);
            balance(&mut record, other.kind, one.kind);
            batch.put(keys::inode(to.id), record.encode());
            below = Some(record);
        }
        batch.put(keys::inode(from.id), above.encode());
        batch.put(keys::entry(from.id, name), here.encode());
        batch.put(keys::entry(to.id, to_name), there.encode());
        let mut gain = NOTHING;
        for (index, (file, old, new, record, primary)) in records.iter().enumerate() {
            self.keep_links_together(file, record.nlink, old, new)?;
            if *primary {
                let moves = gain_of(file, locked.get(file));
                let signed = moves.map(|delta| if index == 0 { delta } else { -delta });
                gain = std::array::from_fn(|class| gain[class] + signed[class]);
            }
        }
        let shift = self.ledger.shift(from, to, gain)?;
        self.commit(batch)?;

        locked.get(from).directory.replace(name, here);
        locked.get(to).directory.replace(to_name, there);
        locked.get(from).record = above;
        if let Some(below) = below {
            locked.get(to).record = below;
        }
        shift.keep();
        for (file, old, new, record, _) in records {
            self.moved(file, &record, old, new);
            locked.get(file).record = record;
        }
        Ok(())
    }

    /// The names of one file stay in one limited directory. Without looking into a tree that moves, as soon as it holds any
    /// name of a file with several: unless it is limited itself, so that the others are in it too.
    fn keep_links_together(&self, file: &Arc<Inode>, nlink: u32, from: &Arc<Inode>, to: &Arc<Inode>) -> Result<()> {
        let bound = if file.is_directory() {
            file.totals().now().linked > 0 && !file.totals().account.is_limited()
        } else {
            nlink > 1
        };
        if bound { self.same_domain(from, to) } else { Ok(()) }
    }

    /// Moves what is counted of links of a file whose name moved, and a directory's place in the chain of its ancestors.
    fn moved(&self, file: &Arc<Inode>, record: &Record, from: &Arc<Inode>, to: &Arc<Inode>) {
        if from.id == to.id {
            return;
        }
        if file.is_directory() {
            let linked = file.totals().now().linked as i64;
            *file.parent.write() = Some(to.clone());
            if linked > 0 {
                self.ledger.count_linked(from, -linked);
                self.ledger.count_linked(to, linked);
            }
            return;
        }
        if record.nlink > 1 {
            self.ledger.count_linked(from, -1);
            self.ledger.count_linked(to, 1);
        }
    }

    /// Runs a rename with the gate held: shared, and again exclusively when it says (with `None`) that it would
    /// move a directory between directories, since its ancestors must stand still meanwhile.
    fn between(&self, work: impl Fn(bool) -> Result<Option<Renamed>>) -> Result<Renamed> {
        let outcome = {
            let _gate = self.enter()?;
            work(false)?
        };
        if let Some(renamed) = outcome {
            return Ok(renamed);
        }
        let _gate = self.gate.write();
        Ok(work(true)?.expect("an exclusive rename decides"))
    }
}

/// Refuses to move `file` below itself.
fn refuse_loop(file: &Arc<Inode>, to: &Arc<Inode>) -> Result<()> {
    let mut at = Some(to.clone());
    while let Some(inode) = at {
        if inode.id == file.id {
            return Err(Error::Invalid);
        }
        at = inode.parent.read().clone();
    }
    Ok(())
}

const NOTHING: [Delta; 3] = [Delta { bytes: 0, inodes: 0, held: 0 }; 3];

/// What a directory gains, by class, that a file moves to.
fn gain_of(file: &Inode, state: &State) -> [Delta; 3] {
    if file.is_directory() { file.totals().account.weights() } else { state.gain() }
}

fn moves_primary(record: &Record, file: &Inode, from: &Inode, name: &[u8]) -> bool {
    file.is_directory() || record.nlink == 1 || (record.parent == from.id && *record.name == *name)
}
