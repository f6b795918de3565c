//! What a catalog must do, as plainly as it can be said: maps, and no thought for speed.

use std::collections::{BTreeMap, BTreeSet};
use ullage_catalog::{Error, TotalsNow, XattrMode};
use ullage_types::{ByClass, Charge, Class, Kind};

pub type Id = u64;
pub const ROOT: Id = 1;

/// Why an operation was refused: the name of the error's variant.
pub type Refusal = &'static str;

pub fn refusal(error: &Error) -> Refusal {
    match error {
        Error::NotFound => "NotFound",
        Error::Exists => "Exists",
        Error::NotDirectory => "NotDirectory",
        Error::IsDirectory => "IsDirectory",
        Error::NotEmpty => "NotEmpty",
        Error::NameTooLong => "NameTooLong",
        Error::TooManyLinks => "TooManyLinks",
        Error::Invalid => "Invalid",
        Error::NoAttribute => "NoAttribute",
        Error::AttributesFull => "AttributesFull",
        Error::NoRoom => "NoRoom",
        Error::CrossDomain => "CrossDomain",
        Error::TooLarge => "TooLarge",
        Error::OverUserLimit => "OverUserLimit",
        Error::OverDirectoryLimit => "OverDirectoryLimit",
        Error::Damaged(_) => "Damaged",
        Error::Kv(_) => "Kv",
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub kind: Kind,
    pub class: Class,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub size: u64,
    pub blocks: u64,
    /// atime, mtime, ctime, btime
    pub times: [i64; 4],
    pub target: Vec<u8>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub entries: BTreeMap<Vec<u8>, Id>,
    /// Every name of it.
    pub names: BTreeSet<(Id, Vec<u8>)>,
    /// The directory it is charged to, and its name there.
    pub charged: (Id, Vec<u8>),
    /// What a directory may hold at most: bytes and inodes.
    pub limit: Option<Most>,
    /// Of the root: what users may have at most.
    pub user_limits: BTreeMap<u32, Most>,
    /// Nobody holds it, but files without names are charged to it.
    pub waiting: bool,
}

impl File {
    pub fn charge(&self) -> Charge {
        let data = if self.kind == Kind::Directory { 4096 } else { self.blocks * 512 };
        let beside = [self.target.len(), self.xattr_bytes()];
        let beside: u64 = beside.iter().filter(|&&n| n > 256).map(|&n| n.div_ceil(4096) as u64 * 4096).sum();
        Charge::new(data + beside, 1)
    }

    pub fn xattr_bytes(&self) -> usize {
        self.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum()
    }
}

/// Bytes and inodes.
pub type Most = (Option<u64>, Option<u64>);

/// Every file at one moment.
pub type Files = BTreeMap<Id, File>;

#[derive(Debug)]
pub struct Model {
    pub files: Files,
    /// What there was after each commit: what a power cut may go back to.
    pub history: Vec<Files>,
}

pub fn check_name(name: &[u8]) -> Result<(), Refusal> {
    match name {
        _ if name.len() > 255 => Err("NameTooLong"),
        b"" | b"." | b".." => Err("Invalid"),
        _ if name.contains(&b'/') || name.contains(&0) => Err("Invalid"),
        _ => Ok(()),
    }
}

impl Model {
    pub fn new(root: File) -> Self {
        let files = Files::from([(ROOT, root)]);
        Self { history: vec![files.clone()], files }
    }

    pub fn at(&self, id: Id) -> &File {
        &self.files[&id]
    }

    pub fn at_mut(&mut self, id: Id) -> &mut File {
        self.files.get_mut(&id).unwrap()
    }

    pub fn is_directory(&self, id: Id) -> bool {
        self.at(id).kind == Kind::Directory
    }

    pub fn nlink(&self, id: Id) -> u32 {
        let file = self.at(id);
        if file.kind != Kind::Directory {
            return file.names.len() as u32;
        }
        if id != ROOT && file.names.is_empty() {
            return 0;
        }
        2 + file.entries.values().filter(|child| self.is_directory(**child)).count() as u32
    }

    pub fn directories(&self) -> Vec<Id> {
        self.files.keys().copied().filter(|id| self.is_directory(*id)).collect()
    }

    pub fn orphans(&self) -> Vec<Id> {
        self.files.keys().copied().filter(|id| self.nlink(*id) == 0).collect()
    }

    fn check_directory(&self, id: Id) -> Result<(), Refusal> {
        if !self.is_directory(id) {
            return Err("NotDirectory");
        }
        if self.nlink(id) == 0 { Err("NotFound") } else { Ok(()) }
    }

    fn touch(&mut self, directory: Id, now: i64) {
        let times = &mut self.at_mut(directory).times;
        (times[1], times[2]) = (now, now);
    }

    pub fn lookup(&self, directory: Id, name: &[u8]) -> Result<Option<Id>, Refusal> {
        self.check_directory(directory)?;
        Ok(self.at(directory).entries.get(name).copied())
    }

    fn enter(&mut self, directory: Id, name: &[u8], id: Id) {
        self.at_mut(directory).entries.insert(name.to_vec(), id);
        let file = self.at_mut(id);
        if file.names.is_empty() {
            file.charged = (directory, name.to_vec());
        }
        file.names.insert((directory, name.to_vec()));
    }

    fn leave(&mut self, directory: Id, name: &[u8]) -> Id {
        let id = self.at_mut(directory).entries.remove(name).unwrap();
        let gone = (directory, name.to_vec());
        let file = self.at_mut(id);
        assert!(file.names.remove(&gone));
        if file.charged == gone
            && let Some(other) = file.names.range(gone..).next().or_else(|| file.names.first())
        {
            file.charged = other.clone();
        }
        id
    }

    pub fn create(&mut self, id: Id, directory: Id, name: &[u8], file: File, now: i64) -> Result<(), Refusal> {
        check_name(name)?;
        if self.lookup(directory, name)?.is_some() {
            return Err("Exists");
        }
        self.files.insert(id, file);
        self.enter(directory, name, id);
        self.touch(directory, now);
        Ok(())
    }

    pub fn create_unnamed(&mut self, id: Id, directory: Id, mut file: File) -> Result<(), Refusal> {
        self.check_directory(directory)?;
        file.charged = (directory, Vec::new());
        self.files.insert(id, file);
        Ok(())
    }

    pub fn link(&mut self, id: Id, directory: Id, name: &[u8], now: i64) -> Result<(), Refusal> {
        check_name(name)?;
        if self.is_directory(id) {
            return Err("IsDirectory");
        }
        if self.lookup(directory, name)?.is_some() {
            return Err("Exists");
        }
        let before = self.at(id).charged.0;
        self.enter(directory, name, id);
        self.at_mut(id).times[2] = now;
        self.touch(directory, now);
        self.record();
        self.retire(before);
        Ok(())
    }

    pub fn unlink(&mut self, directory: Id, name: &[u8], now: i64) -> Result<Id, Refusal> {
        let id = self.lookup(directory, name)?.ok_or("NotFound")?;
        if self.is_directory(id) {
            return Err("IsDirectory");
        }
        self.leave(directory, name);
        self.at_mut(id).times[2] = now;
        self.touch(directory, now);
        Ok(id)
    }

    pub fn rmdir(&mut self, directory: Id, name: &[u8], now: i64) -> Result<Id, Refusal> {
        let id = self.lookup(directory, name)?.ok_or("NotFound")?;
        if !self.is_directory(id) {
            return Err("NotDirectory");
        }
        if !self.at(id).entries.is_empty() {
            return Err("NotEmpty");
        }
        self.leave(directory, name);
        self.at_mut(id).times[2] = now;
        self.touch(directory, now);
        Ok(id)
    }

    /// Whether `directory` is `file` or lies below it.
    fn is_below(&self, directory: Id, file: Id) -> bool {
        self.chain(directory).contains(&file)
    }

    pub fn rename(
        &mut self,
        (from, name): (Id, &[u8]),
        (to, to_name): (Id, &[u8]),
        keep: bool,
        now: i64,
    ) -> Result<(), Refusal> {
        check_name(to_name)?;
        let moved = self.lookup(from, name)?.ok_or("NotFound")?;
        let target = self.lookup(to, to_name)?;
        if target.is_some() && keep {
            return Err("Exists");
        }
        if target == Some(moved) {
            return Ok(());
        }
        if self.is_directory(moved) && from != to && self.is_below(to, moved) {
            return Err("Invalid");
        }
        if let Some(target) = target {
            match (self.is_directory(moved), self.is_directory(target)) {
                (true, false) => return Err("NotDirectory"),
                (false, true) => return Err("IsDirectory"),
                (true, true) if !self.at(target).entries.is_empty() => return Err("NotEmpty"),
                _ => {}
            }
            self.leave(to, to_name);
            self.at_mut(target).times[2] = now;
        }
        self.move_name(moved, (from, name), (to, to_name));
        self.at_mut(moved).times[2] = now;
        self.touch(from, now);
        self.touch(to, now);
        Ok(())
    }

    /// A name moves; a charge that followed it goes on following it.
    fn move_name(&mut self, id: Id, (from, name): (Id, &[u8]), (to, to_name): (Id, &[u8])) {
        let (old, new) = ((from, name.to_vec()), (to, to_name.to_vec()));
        if self.at(from).entries.get(name) == Some(&id) {
            self.at_mut(from).entries.remove(name);
        }
        self.at_mut(to).entries.insert(to_name.to_vec(), id);
        let file = self.at_mut(id);
        assert!(file.names.remove(&old));
        file.names.insert(new.clone());
        if file.charged == old {
            file.charged = new;
        }
    }

    pub fn exchange(&mut self, (from, name): (Id, &[u8]), (to, to_name): (Id, &[u8]), now: i64) -> Result<(), Refusal> {
        let one = self.lookup(from, name)?.ok_or("NotFound")?;
        let other = self.lookup(to, to_name)?.ok_or("NotFound")?;
        if one == other {
            return Ok(());
        }
        if from != to
            && (self.is_directory(one) || self.is_directory(other))
            && (self.is_below(to, one) || self.is_below(from, other))
        {
            return Err("Invalid");
        }
        self.move_name(one, (from, name), (to, to_name));
        self.move_name(other, (to, to_name), (from, name));
        for id in [one, other] {
            self.at_mut(id).times[2] = now;
        }
        self.touch(from, now);
        self.touch(to, now);
        Ok(())
    }

    pub fn set_xattr(&mut self, id: Id, name: &[u8], value: &[u8], mode: XattrMode, now: i64) -> Result<(), Refusal> {
        let file = self.at_mut(id);
        match (file.xattrs.get(name), mode) {
            (Some(_), XattrMode::Create) => return Err("Exists"),
            (None, XattrMode::Replace) => return Err("NoAttribute"),
            _ => {}
        }
        let mut xattrs = file.xattrs.clone();
        xattrs.insert(name.to_vec(), value.to_vec());
        if xattrs.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > 256 * 1024 {
            return Err("AttributesFull");
        }
        // As ext4 does: what is the same is not a change.
        if file.xattrs != xattrs {
            file.xattrs = xattrs;
            file.times[2] = now;
        }
        Ok(())
    }

    pub fn remove_xattr(&mut self, id: Id, name: &[u8], now: i64) -> Result<(), Refusal> {
        let file = self.at_mut(id);
        file.xattrs.remove(name).ok_or("NoAttribute")?;
        file.times[2] = now;
        Ok(())
    }

    fn holds_charges(&self, directory: Id) -> bool {
        self.files.iter().any(|(&id, file)| id != directory && file.charged.0 == directory)
    }

    /// Nobody holds a file without a name any more. What is charged to a directory outlives its name, not itself.
    pub fn remove(&mut self, id: Id) {
        if self.nlink(id) > 0 {
            return;
        }
        if self.is_directory(id) && self.holds_charges(id) {
            self.at_mut(id).waiting = true;
            return;
        }
        let file = self.files.remove(&id).unwrap();
        self.record();
        self.retire(file.charged.0);
    }

    /// Keeps what is there now for a power cut.
    pub fn record(&mut self) {
        self.history.push(self.files.clone());
    }

    fn retire(&mut self, directory: Id) {
        if self.files.get(&directory).is_some_and(|file| file.waiting) && !self.holds_charges(directory) {
            self.remove(directory);
        }
    }

    /// A directory and all above it.
    fn chain(&self, directory: Id) -> Vec<Id> {
        let mut chain = vec![directory];
        while *chain.last().unwrap() != ROOT {
            chain.push(self.at(*chain.last().unwrap()).charged.0);
        }
        chain
    }

    /// The totals of every directory and of every user, counted anew.
    pub fn recount(&self) -> (BTreeMap<Id, TotalsNow>, BTreeMap<u32, ByClass<Charge>>) {
        let mut totals: BTreeMap<Id, TotalsNow> = BTreeMap::new();
        let mut users: BTreeMap<u32, ByClass<Charge>> = BTreeMap::new();
        for (&id, file) in &self.files {
            users.entry(file.uid).or_default()[file.class] += file.charge();
            for at in self.chain(if self.is_directory(id) { id } else { file.charged.0 }) {
                totals.entry(at).or_default().actual[file.class] += file.charge();
            }
            if file.names.len() > 1 {
                for at in file.names.iter().flat_map(|(directory, _)| self.chain(*directory)) {
                    totals.entry(at).or_default().linked += 1;
                }
            }
        }
        (totals, users)
    }

    /// An operation, refused where what grows by it passes a limit.
    pub fn within_limits(&mut self, work: impl FnOnce(&mut Self) -> Result<(), Refusal>) -> Result<(), Refusal> {
        self.within(true, true, work)
    }

    /// The same, looking at the limits of users and of directories as told.
    pub fn within(
        &mut self,
        users: bool,
        directories: bool,
        work: impl FnOnce(&mut Self) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let user_limits = self.at(ROOT).user_limits.clone();
        let limited = |files: &Files| files.iter().any(|(_, file)| file.limit.is_some());
        if user_limits.is_empty() && !limited(&self.files) {
            return work(self);
        }
        let (files, length) = (self.files.clone(), self.history.len());
        let before = self.recount();
        work(self)?;
        let after = self.recount();
        let persistent = |all: Option<&ByClass<Charge>>| all.map_or(Charge::ZERO, |all| all[Class::Persistent]);
        let passes = |before: Charge, after: Charge, (bytes, inodes): Most| {
            let over =
                |before: u64, after: u64, most: Option<u64>| after > before && most.is_some_and(|most| after > most);
            over(before.bytes.0, after.bytes.0, bytes) || over(before.inodes, after.inodes, inodes)
        };
        let over_user = users
            && user_limits
                .iter()
                .any(|(uid, most)| passes(persistent(before.1.get(uid)), persistent(after.1.get(uid)), *most));
        let of = |totals: &BTreeMap<Id, TotalsNow>, id: &Id| persistent(totals.get(id).map(|now| &now.actual));
        let over_directory = directories
            && files
                .iter()
                .filter_map(|(id, file)| Some((id, file.limit?)))
                .any(|(id, most)| self.files.contains_key(id) && passes(of(&before.0, id), of(&after.0, id), most));
        let refused = if self.is_spread(&files) {
            Some("CrossDomain")
        } else if over_user {
            Some("OverUserLimit")
        } else {
            over_directory.then_some("OverDirectoryLimit")
        };
        match refused {
            None => Ok(()),
            Some(refusal) => {
                self.files = files;
                self.history.truncate(length);
                Err(refusal)
            }
        }
    }

    /// The nearest limited directory.
    fn domain(&self, directory: Id) -> Option<Id> {
        self.chain(directory).into_iter().find(|id| self.at(*id).limit.is_some())
    }

    /// Whether names of one file would lie in several domains, or might: a tree with such names changed its domain.
    fn is_spread(&self, before: &Files) -> bool {
        let (totals, _) = self.recount();
        let old = Self { files: before.clone(), history: Vec::new() };
        self.files.iter().any(|(&id, file)| match file.kind {
            Kind::Directory => {
                let was = before.get(&id);
                let moved = was.is_some_and(|was| was.charged.0 != file.charged.0) && id != ROOT;
                moved
                    && totals[&id].linked > 0
                    && file.limit.is_none()
                    && old.domain(before[&id].charged.0) != self.domain(file.charged.0)
            }
            _ => {
                let domains: BTreeSet<Option<Id>> = file.names.iter().map(|(place, _)| self.domain(*place)).collect();
                domains.len() > 1
            }
        })
    }

    pub fn limit_directory(&mut self, id: Id, most: Most) -> Result<(), Refusal> {
        self.check_directory(id)?;
        let split = self.files.values().any(|file| {
            let below = file.names.iter().filter(|(place, _)| self.is_below(*place, id)).count();
            below != 0 && below != file.names.len() && file.kind != Kind::Directory
        });
        if most != (None, None) && self.at(id).limit.is_none() && split {
            return Err("CrossDomain");
        }
        self.at_mut(id).limit = (most != (None, None)).then_some(most);
        Ok(())
    }
}
