//! The trait that every pool kind implements.

use crate::dir::name;
use crate::{Abilities, Annotation, Error, Fences};
use rustix::fd::BorrowedFd;
use serde::Serialize;
use std::any::Any;
use std::fs::File;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use ullage_types::{Bytes, FileId, Generation};

/// Where a backing file is inside its pool: opaque outside this crate, stored in the catalog, at most 255 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Locator(pub Box<[u8]>);

impl Locator {
    /// The leaf directory that it is in, as it is marked.
    pub fn leaf(&self) -> &[u8] {
        leaf_of(&self.0)
    }
}

/// The leaf directory that a locator leads to, as it is marked.
pub fn leaf_of(locator: &[u8]) -> &[u8] {
    let end = locator.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    locator.get(..end).unwrap_or_default()
}

/// A file's binding to its backing file, as the catalog stores it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Binding {
    /// The file.
    pub file: FileId,
    /// This binding, and no other one ever.
    pub generation: Generation,
    /// Where the backing file is.
    pub locator: Locator,
}

/// What placement may look at (COFS §4.2: the node issuing the request, the parent directory in the user's
/// view, the process creating the file).
#[derive(Clone, Copy, Debug)]
pub struct Hint {
    /// The parent directory in the user's view.
    pub parent: FileId,
    /// The process that creates the file.
    pub pid: u32,
}

/// A new, empty backing file, open for reading and writing, already bound to numbers of its own.
#[derive(Debug)]
pub struct Fresh {
    /// The binding, with the file id that the new file must take.
    pub binding: Binding,
    /// The backing file.
    pub file: Arc<File>,
    /// What [`Prepare`] made of it.
    pub prepared: Option<Prepared>,
}

/// What is done with new backing files in the background, so that who creates a file need not wait for it.
pub trait Prepare: Send + Sync {
    /// Called for a file that is empty, bound, and changed by nobody until it is given out. The result goes with it, and is
    /// dropped with a file that nobody gets.
    fn prepare(&self, file: &File) -> Option<Prepared>;

    /// Called when such a file was moved inside its pool, which changes its times.
    fn moved(&self, prepared: Prepared, file: &File) -> Option<Prepared>;
}

/// See [`Prepare`].
pub type Prepared = Box<dyn Any + Send + Sync>;

/// How a backing file is to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// For reading only.
    Read,
    /// For reading and writing.
    Write,
}

/// What opening a backing file may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// As long as the file system below takes.
    Disk,
    /// For nothing: what would have to be read from a disk is refused ([`Error::would_wait`]).
    Nothing,
}

/// What the file system below a pool says of itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// All there is.
    pub total: Bytes,
    /// Free to the pool.
    pub free: Bytes,
    /// All inodes; 0 where the file system below has no such number.
    pub inodes_total: u64,
    /// Free inodes, without those that are left to others.
    pub inodes_free: u64,
    /// Block size.
    pub block: Bytes,
}

/// A backing file found where a crash may have left something that the catalog does not know.
#[derive(Debug)]
pub struct Suspect {
    /// What its extended attribute says, if it has a whole one.
    pub binding: Option<Binding>,
    /// It cannot be read, so nobody knows whose it is.
    pub unreadable: bool,
    /// Where it is.
    pub locator: Locator,
}

/// What `pool list` shows of a pool.
#[derive(Clone, Debug, Serialize)]
pub struct Description {
    /// The kind of pool: `dir`, `null` ….
    pub kind: &'static str,
    /// The layout, where the kind has several.
    pub layout: Option<&'static str>,
    /// Where it is.
    pub path: Option<PathBuf>,
    /// The type of the file system below.
    pub fs_type: Option<String>,
    /// How many bytes it gives a file at once, at most: a block, or some of them.
    pub unit: u64,
    /// Whether all that it has for a file are extents: those of some are mapped block by block.
    pub extents: bool,
    /// What the file system below can do.
    pub abilities: Abilities,
    /// What a user should know: what is missing, and what follows from it.
    pub notes: Vec<String>,
}

/// Where new numbers come from; handed in by the catalog. Numbers never repeat, across crashes too.
pub trait Numbers: Send + Sync {
    /// A file id and a generation of its first binding.
    fn next(&self) -> (FileId, Generation);
}

/// Durable marks of the leaf directories in which the catalog and the backing files may differ after a crash
/// (a write-intent log, as disk arrays have it); handed in by the catalog.
pub trait Marks: Send + Sync {
    /// Returns when it is durable that these leaves are being changed. Cheap when they are already marked.
    fn mark(&self, leaves: &[&[u8]]) -> Result<(), Error>;
    /// Nothing in `leaf` is open for writing, fresh or being removed any more; need not be durable.
    fn clear(&self, leaf: &[u8]);
}

/// A place where file data lives.
///
/// The conditions under which a backing file may be removed or used again are split between caller and pool
/// (DESIGN, "Backing files outlive their names"): the caller vouches in [`Pool::release`] that the transaction
/// which dropped the last name is durable and that the kernel has forgotten the file; the pool makes
/// sure that no descriptor or mapping can still write to it (a lease probe) or puts it into quarantine.
pub trait Pool: Send + Sync {
    /// A new backing file, from the ready ones where there are any. Never blocks on a flush when its leaf is
    /// already marked. ENOSPC and EDQUOT come back as [`Error::Io`] with that errno.
    fn create(&self, hint: Hint) -> Result<Fresh, Error>;

    /// The same where a file is ready: no call to the file system below is made.
    fn take_ready(&self, hint: Hint) -> Option<Fresh> {
        let _ = hint;
        None
    }

    /// Whether files that were given back may still have their blocks.
    fn is_freeing(&self) -> bool {
        false
    }

    /// Leaves so many inodes of its file system to others: who makes a file that would take one of them finds no room.
    fn leave_inodes(&self, least: u64) {
        let _ = least;
    }

    /// How many that are.
    fn least_inodes(&self) -> u64 {
        0
    }

    /// Recovery is over: what files will be made in soon may be prepared, in the background, and marks may be cleared.
    fn begin(&self) {}

    /// Has files prepared before they are given out, where they are held ready. Called once at most.
    fn prepare_with(&self, prepare: Arc<dyn Prepare>) {
        drop(prepare);
    }

    /// Gives back a file from [`Pool::create`] that no transaction ever named: it can be used at once.
    fn abandon(&self, fresh: Fresh);

    /// Opens a backing file; refuses with [`Error::Mismatch`] when it does not carry the binding's generation.
    /// Opening for writing marks the leaf first, whatever that waits for.
    fn open_waiting(&self, binding: &Binding, access: Access, wait: Wait) -> Result<File, Error>;

    /// The same for who may wait.
    fn open(&self, binding: &Binding, access: Access) -> Result<File, Error> {
        self.open_waiting(binding, access, Wait::Disk)
    }

    /// The last write handle is gone, and what the file became is recorded durably; for a file from
    /// [`Pool::create`] too, once it has a name. Until then its leaf stays marked. Must not run beside an
    /// [`Pool::open`] for writing of the same binding.
    fn closed(&self, binding: &Binding) {
        let _ = binding;
    }

    /// To be called before the transaction that drops the file's last name is committed: returns when it is durable that
    /// its leaf is being changed, so that no crash between that transaction and [`Pool::release`] leaks the file.
    /// Cheap when the leaf is already marked. [`Pool::release`] ends it, or [`Pool::closed`] when nothing came of it.
    fn doom(&self, binding: &Binding) -> Result<(), Error> {
        let _ = binding;
        Ok(())
    }

    /// Keeps a leaf in doubt for as long as the pool is open, whatever is opened and closed in it: each start is to look at it.
    fn doubt(&self, leaf: &[u8]) -> Result<(), Error> {
        let _ = leaf;
        Ok(())
    }

    /// Whether [`Pool::doom`] is cheap: the leaf is marked, and nobody is just changing that.
    fn is_marked(&self, locator: &Locator) -> bool {
        let _ = locator;
        true
    }

    /// Takes a backing file back, to be emptied and used again or removed in the background.
    fn release(&self, binding: Binding);

    /// What the file system below has.
    fn usage(&self) -> Result<Usage, Error>;

    /// Visits every backing file in a leaf that was marked at the last unclean end.
    fn suspects(&self, leaf: &[u8], visit: &mut dyn FnMut(Suspect)) -> Result<(), Error>;

    /// The leaves that the pool itself has noted as being changed. A catalog that is older than the pool, as on another disk
    /// that lost its power first, does not know of all of them.
    fn noted(&self) -> Result<Vec<Box<[u8]>>, Error> {
        Ok(Vec::new())
    }

    /// A noted leaf is not marked, and was looked through if need be.
    fn forget_note(&self, leaf: &[u8]) {
        let _ = leaf;
    }

    /// The leaves that were begun last: after an unclean end they are looked through as well, for notes that could not be made.
    fn newest_leaves(&self) -> Result<Vec<Box<[u8]>>, Error> {
        Ok(Vec::new())
    }

    /// Under which binding to give back what [`Pool::suspects`] showed and the catalog does not know, by [`Pool::doom`] and then
    /// [`Pool::release`]. None for what is no backing file of ours: it is left alone.
    fn stray(&self, suspect: Suspect) -> Option<Binding> {
        suspect.binding
    }

    /// Makes a file that is there, under a name in a directory of the same file system, a backing file beside that: it gets
    /// a second name in the pool, and its binding. Its leaf is marked until [`Pool::closed`]. Whatever becomes of the
    /// binding, [`Pool::release`] included, the file keeps its first name and its data.
    fn adopt(&self, hint: Hint, above: BorrowedFd<'_>, name: &[u8]) -> Result<Binding, Error> {
        let _ = (hint, above, name);
        Err(Error::Unusable("this pool can take in no file that it did not make".to_owned()))
    }

    /// A new, empty backing file for a file that has one elsewhere, under a binding of its own. It has no name that it is known by, so that no
    /// crash leaves it half made, until [`Pool::keep`]; where that is never called, [`Pool::drop_draft`] ends it.
    fn draft(&self, file: FileId, hint: Hint) -> Result<Fresh, Error> {
        let _ = (file, hint);
        Err(Error::Unusable("this pool takes in no data of others".to_owned()))
    }

    /// Gives a draft its name, durably. From then on it is like one from [`Pool::create`]. Where it fails the draft is as it was: what may be
    /// left of the name the pool itself remembers.
    fn keep(&self, draft: &Fresh) -> Result<(), Error> {
        Err(name::mismatch(&draft.binding))
    }

    /// Ends a draft that was not kept.
    fn drop_draft(&self, draft: Fresh) {
        self.closed(&draft.binding);
    }

    /// Makes an empty backing file for a binding that has lost its own, open for reading and writing: after a power cut a
    /// file that was never flushed may be in the catalog and not in the pool. EEXIST when there is one; marks the leaf, as
    /// [`Pool::open`] for writing does.
    fn recreate(&self, binding: &Binding) -> Result<File, Error>;

    /// Records on the backing file what is lost with the catalog. Need not be called at once, nor be durable.
    fn annotate(&self, binding: &Binding, annotation: Annotation) -> Result<(), Error> {
        let _ = (binding, annotation);
        Ok(())
    }

    /// What [`Pool::annotate`] recorded last, where anything was.
    fn annotation(&self, binding: &Binding) -> Result<Option<Annotation>, Error> {
        let _ = binding;
        Ok(None)
    }

    /// Whether it is there at all: nothing can be read or made in one that is not ([`crate::AbsentPool`]).
    fn is_there(&self) -> bool {
        true
    }

    /// Whether data is thrown away: writes are to be counted only, and reads give zeros.
    fn discards(&self) -> bool {
        false
    }

    /// Whether data of its files can move in the kernel, as far as that goes by the file system below.
    fn moves_in_kernel(&self) -> bool {
        true
    }

    /// The device (`st_dev`) that fsync(2) of a backing file flushes, where there is one.
    fn device(&self) -> Option<u64> {
        None
    }

    /// The file system that its files lie on (`disk_of`): what is free to one pool there is free to all.
    fn disk(&self) -> Option<u64> {
        self.device()
    }

    /// The kernel's own quota around single files.
    ///
    /// # Errors
    /// Why there is none, for people.
    fn fences(&self) -> Result<&Fences, &str> {
        Err("this pool has no file system below it")
    }

    /// The seconds that times of its files can have; others become the first or the last of them.
    fn times(&self) -> RangeInclusive<i64> {
        i64::MIN..=i64::MAX
    }

    /// To how much the times of its files are cut: what changes a file within so much of a time that it has may not show in that.
    fn granularity(&self) -> Duration {
        Duration::from_nanos(1)
    }

    /// What was counted since the pool was opened, by name.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// What the pool is and can do.
    fn describe(&self) -> Description;

    /// Where a backing file is for a user to look at, where that is a path.
    fn backing_path(&self, locator: &Locator) -> Option<PathBuf> {
        let _ = locator;
        None
    }

    /// Has the journal of the file system below written out with all that went into it so far, for whatever files. Nothing by default.
    fn write_journal(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Returns when all data written so far is on disk.
    fn sync(&self) -> Result<(), Error>;

    /// Stops background work, removes ready files that nobody used, and returns when everything is on disk.
    fn close(&self) -> Result<(), Error>;
}
