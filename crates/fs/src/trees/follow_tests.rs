//! Orders of events that threads seldom meet.

use super::super::Held;
use super::{Change, Follower, Moving, Shared};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, Mode, OFlags};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use ullage_catalog::{Catalog, Inode, New};
use ullage_kv::{EngineKind, Options, Store};
use ullage_pool::{FILES, Tree, Uuid};
use ullage_types::{Class, FileId, Kind, PoolId, ROOT, Timestamp};

const NOW: Timestamp = Timestamp { seconds: 1, nanoseconds: 0 };

struct Bed {
    catalog: Arc<Catalog>,
    shared: Arc<Shared>,
    follower: Follower,
    tree: TempDir,
    _store: TempDir,
}

impl Bed {
    fn new() -> Self {
        let (tree, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(tree.path().join(FILES)).unwrap();
        let kv =
            Store::open(store.path(), EngineKind::Memory, Options { interval: None, ..Options::default() }).unwrap();
        let catalog = Catalog::open(Arc::new(kv), 0, 0, NOW).unwrap();
        let shared = Arc::new(Shared { moving: Mutex::new(vec![Moving::default()]), ..Shared::default() });
        let trees = vec![(PoolId(0), Arc::new(Tree::open(tree.path(), Uuid([1; 16])).unwrap()))];
        let follower = Follower::new(catalog.clone(), trees, shared.clone());
        Self { catalog, shared, follower, tree, _store: store }
    }

    fn mkdir(&mut self, above: &Arc<Inode>, name: &str) -> Arc<Inode> {
        let made = self.make(above, name);
        self.follow(above.id, name);
        made
    }

    /// The same, but that it is not followed yet.
    fn make(&self, above: &Arc<Inode>, name: &str) -> Arc<Inode> {
        self.make_of(Kind::Directory, above, name)
    }

    fn make_of(&self, kind: Kind, above: &Arc<Inode>, name: &str) -> Arc<Inode> {
        let new = New {
            id: self.catalog.numbers().pair().0,
            kind,
            class: Class::Persistent,
            mode: 0o755,
            uid: 0,
            gid: 0,
            rdev: 0,
            target: Box::default(),
            backing: None,
            xattrs: Vec::new(),
            brought: None,
        };
        self.catalog.create(above, name.as_bytes(), new, NOW).unwrap()
    }

    /// As RENAME does it, but that nothing is followed yet.
    fn rename(&self, from: &Arc<Inode>, to: &Arc<Inode>, name: &str) {
        rename(&self.catalog, Held(self.shared.moving.lock()), (from, to), name);
    }

    fn follow(&mut self, directory: FileId, name: &str) {
        self.follower.follow(&Change::Name(directory, name.as_bytes().into()), &mut |_| {});
    }

    fn number(&self, path: &str) -> u64 {
        self.tree.path().join(path).metadata().unwrap().ino()
    }
}

fn rename(catalog: &Catalog, mut held: Held<'_>, (from, to): (&Arc<Inode>, &Arc<Inode>), name: &str) {
    let name = name.as_bytes();
    let renamed = catalog.rename((from, name), (to, name), false, NOW).unwrap();
    held.moves(&renamed.moved, from.id, name);
}

/// What was put right while it moved on was said to stand where it had stood before: it was built anew.
#[test]
fn a_directory_that_moves_to_and_fro_is_taken_from_where_it_was_put_last() {
    let mut bed = Bed::new();
    let root = bed.catalog.root().clone();
    bed.mkdir(&root, "big");
    let other = bed.mkdir(&root, "other");
    let number = bed.number("big");
    bed.rename(&root, &other, "big");
    bed.rename(&other, &root, "big");
    bed.follow(ROOT, "big");
    bed.rename(&root, &other, "big");
    bed.follow(other.id, "big");
    assert_eq!(bed.number("other/big"), number);
    bed.rename(&other, &root, "big");
    bed.follow(ROOT, "big");
    bed.follow(other.id, "big");
    assert_eq!(bed.number("big"), number, "it was built anew");
    assert!(!bed.tree.path().join("other/big").exists());
    assert_eq!(bed.follower.failures, 0);
}

/// The directory that it stood in is gone before it is known where it belongs.
#[test]
fn a_directory_is_saved_from_one_that_is_removed() {
    let mut bed = Bed::new();
    let root = bed.catalog.root().clone();
    let above = bed.mkdir(&root, "above");
    bed.mkdir(&above, "below");
    let other = bed.mkdir(&root, "other");
    let number = bed.number("above/below");
    bed.rename(&above, &other, "below");
    bed.catalog.rmdir(&root, b"above", NOW).unwrap();
    bed.catalog.remove(&above).unwrap();
    drop(above);
    bed.follow(ROOT, "above");
    bed.follow(other.id, "below");
    assert_eq!(bed.number("other/below"), number, "it was built anew");
    bed.follower.finish(&mut |_| {});
    assert_eq!(bed.number("other/below"), number);
    assert!(bed.shared.moving.lock()[0].is_empty());
}

/// Every rename waited for the thread, and that for the disk of the pool.
#[test]
fn a_directory_can_move_while_what_is_above_it_is_put_in_its_place() {
    let mut bed = Bed::new();
    let root = bed.catalog.root().clone();
    let other = bed.mkdir(&root, "other");
    let above = bed.make(&root, "above");
    let moved = bed.make(&above, "moved");
    bed.make(&moved, "below");
    let (catalog, shared) = (bed.catalog.clone(), bed.shared.clone());
    let mut moves = |change| {
        if change == Change::Names(above.id) {
            let lock = shared.moving.try_lock().expect("nobody holds it while the tree is changed");
            rename(&catalog, Held(lock), (&above, &other), "moved");
        }
    };
    bed.follower.follow(&Change::Name(moved.id, b"below".as_slice().into()), &mut moves);
    let number = bed.number("other/moved");
    for directory in [&above, &other] {
        bed.follow(directory.id, "moved");
    }
    assert_eq!(bed.number("other/moved"), number, "it was built anew");
    assert!(bed.tree.path().join("other/moved/below").is_dir());
    assert!(!bed.tree.path().join("above/moved").exists());
    assert_eq!(bed.follower.failures, 0);
}

/// `lost+found` was made there, by a repair too, and stayed; `.ullage` stood in the way of itself, and each start looked at everything again.
#[test]
fn what_is_below_a_name_that_the_tree_cannot_have_is_not_in_it() {
    let mut bed = Bed::new();
    let root = bed.catalog.root().clone();
    for name in ["lost+found", FILES] {
        let reserved = bed.mkdir(&root, name);
        let below = bed.mkdir(&reserved, "below");
        bed.mkdir(&below, "deeper");
        let mut more = vec![Change::All(ROOT)];
        while let Some(change) = more.pop() {
            bed.follower.follow(&change, &mut |change| more.push(change));
        }
        bed.follower.finish(&mut |_| {});
        assert!(!bed.tree.path().join(name).join("below").exists());
        // It is in the tree by another name, and is no more once it has this one again.
        for (from, to) in [(name, "other"), ("other", name)] {
            bed.catalog.rename((&root, from.as_bytes()), (&root, to.as_bytes()), false, NOW).unwrap();
            bed.follow(ROOT, from);
            bed.follow(ROOT, to);
            bed.follower.follow(&Change::Names(reserved.id), &mut |_| {});
            bed.follower.finish(&mut |_| {});
            assert_eq!(bed.tree.path().join("other/below").exists(), to == "other");
        }
    }
    assert!(!bed.tree.path().join("lost+found").exists());
    assert_eq!(bed.follower.failures, 0);
}

/// What came to be in it was put into the one that was gone, and nobody was told.
#[test]
fn a_directory_that_was_removed_by_hand_is_there_again_with_what_comes_next() {
    let mut bed = Bed::new();
    let root = bed.catalog.root().clone();
    let dir = bed.mkdir(&root, "dir");
    std::fs::remove_dir(bed.tree.path().join("dir")).unwrap();
    bed.mkdir(&dir, "below");
    assert!(bed.tree.path().join("dir/below").is_dir());
    assert_eq!(bed.follower.failures, 0);
}

/// Whoever came to one of them went up to the top again for each that was to be opened on the way down: an end of a space waited for hours.
#[test]
fn directories_that_lie_deep_are_come_to_in_time() {
    const DEPTH: usize = 1500;
    let mut bed = Bed::new();
    let (began, mut above) = (Instant::now(), bed.catalog.root().clone());
    for _ in 0..DEPTH {
        above = bed.mkdir(&above, "d");
    }
    bed.follower.finish(&mut |_| {});
    // As of another start, and from the bottom up.
    for open in &mut bed.follower.trees {
        open.directories = super::Kept::default();
    }
    for step in 0..3 {
        bed.follower.follow(&Change::Attributes(above.id), &mut |_| {});
        bed.follower.trees[0].directories = super::Kept::default();
        assert!(began.elapsed() < Duration::from_secs(20), "step {step}");
        above = bed.catalog.get(above.record().parent).unwrap();
    }
    assert_eq!(bed.follower.failures, 0);
    // What clears the ground goes by paths, which are not as long as that.
    while std::fs::rename(bed.tree.path().join("d/d"), bed.tree.path().join("e")).is_ok() {
        std::fs::remove_dir(bed.tree.path().join("d")).unwrap();
        std::fs::rename(bed.tree.path().join("e"), bed.tree.path().join("d")).unwrap();
    }
}

/// Each name was a change that waited: of a tree that was made anew, or of a directory with millions of files, more than there was memory for.
#[test]
fn a_new_directory_is_one_change_however_much_is_in_it() {
    let mut bed = Bed::new();
    let root = bed.catalog.root().clone();
    let full = bed.make(&root, "full");
    for n in 0..100 {
        bed.make(&full, &n.to_string());
    }
    let mut more = Vec::new();
    bed.follower.follow(&Change::Name(ROOT, b"full".as_slice().into()), &mut |change| more.push(change));
    assert_eq!(more.len(), 1, "{more:?}");
    bed.follower.follow(&more.remove(0), &mut |_| {});
    assert!((0..100).all(|n| bed.tree.path().join(format!("full/{n}")).is_dir()));
}

/// Whoever made some ten thousand directories, one in another, had the thread walk down all of them for each: `down` did not end.
#[test]
fn two_deep_places_are_come_to_in_turns_without_all_the_way_down() {
    const LEVELS: usize = 2000;
    let mut bed = Bed::new();
    let mut way = vec![bed.catalog.get(ROOT).unwrap()];
    for _ in 0..LEVELS {
        way.push(bed.mkdir(&way[way.len() - 1].clone(), "d"));
    }
    way[1..].iter().for_each(|above| drop(bed.make(above, "beside")));
    // Of the processor's, however busy the machine is.
    let now = || Duration::try_from(rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime)).unwrap();
    let began = now();
    for level in 0..LEVELS / 2 {
        for above in [LEVELS / 2 - level, LEVELS / 2 + level + 1] {
            bed.follow(way[above].id, "beside");
        }
    }
    let took = now().saturating_sub(began);
    assert!(took < Duration::from_secs(2), "{took:?}");
    let mut at = rustix::fs::open(bed.tree.path(), OFlags::RDONLY, Mode::empty()).unwrap();
    for level in 1..=LEVELS {
        at = rustix::fs::openat(&at, "d", OFlags::RDONLY, Mode::empty()).unwrap();
        assert!(rustix::fs::statat(&at, "beside", AtFlags::empty()).is_ok(), "{level}");
    }
}

/// Regression: a directory whose old place was not open was made anew, and the stale one took its place later, without what had come since.
#[test]
fn a_directory_that_moves_from_what_is_not_open_is_taken_from_there() {
    let mut bed = Bed::new();
    let root = bed.catalog.root().clone();
    let far = bed.mkdir(&root, "far");
    let above = bed.mkdir(&far, "above");
    bed.mkdir(&above, "moved");
    let other = bed.mkdir(&root, "other");
    let number = bed.number("far/above/moved");
    // What it stands in has moved as well, and is not where it belongs yet.
    bed.rename(&far, &other, "above");
    bed.rename(&above, &root, "moved");
    bed.follower.trees[0].directories = super::Kept::default();
    bed.follow(ROOT, "moved");
    assert_eq!(bed.number("moved"), number, "it was built anew");
    // What it stands in waits in limbo.
    bed.rename(&root, &above, "moved");
    bed.follow(above.id, "moved");
    bed.rename(&other, &far, "above");
    bed.follow(other.id, "above");
    bed.rename(&above, &root, "moved");
    bed.follower.trees[0].directories = super::Kept::default();
    bed.follow(ROOT, "moved");
    assert_eq!(bed.number("moved"), number, "it was built anew");
    assert_eq!(bed.follower.failures, 0);
}

/// Regression: the other names of a pipe kept owner, permissions and times of before when these were changed.
#[test]
fn every_name_of_a_pipe_shows_what_it_is() {
    let mut bed = Bed::new();
    let root = bed.catalog.root().clone();
    let pipe = bed.make_of(Kind::Fifo, &root, "pipe");
    bed.catalog.link(&pipe, &root, b"other", NOW).unwrap();
    bed.follow(ROOT, "pipe");
    bed.follow(ROOT, "other");
    let change = |record: &mut ullage_catalog::Record| {
        record.mode = 0o604;
        Ok(())
    };
    bed.catalog.update(&pipe, change).unwrap();
    bed.follower.follow(&Change::Attributes(pipe.id), &mut |_| {});
    for name in ["pipe", "other"] {
        assert_eq!(bed.tree.path().join(name).metadata().unwrap().mode() & 0o7777, 0o604, "{name}");
    }
}

/// Regression: the mask of an ACL was shown as what the group may do, where there is no ACL that says otherwise.
#[test]
fn the_group_of_what_has_an_acl_gets_no_more_in_the_tree() {
    let mut bed = Bed::new();
    let root = bed.catalog.root().clone();
    let dir = bed.make(&root, "dir");
    let entry = |tag: u16, permissions: u16, id: u32| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let none = u32::MAX;
    let entries = [entry(1, 7, none), entry(2, 6, 1234), entry(4, 1, none), entry(16, 6, none), entry(32, 0, none)];
    let acl = [2u32.to_le_bytes().to_vec(), entries.concat()].concat();
    let mode = ullage_catalog::XattrMode::Any;
    bed.catalog.set_xattr(&dir, b"system.posix_acl_access", &acl, mode, NOW, |record| record.mode = 0o1760).unwrap();
    bed.follower.follow(&Change::Attributes(dir.id), &mut |_| {});
    assert_eq!(bed.tree.path().join("dir").metadata().unwrap().mode() & 0o7777, 0o1700);
}

/// Regression: what was left of a directory with something foreign in it, once it was purged in vain, was taken for all of it when it had a place again.
#[test]
fn what_was_purged_in_vain_is_filled_again_where_it_has_a_place() {
    let mut bed = Bed::new();
    let root = bed.catalog.root().clone();
    let moved = bed.mkdir(&root, "moved");
    bed.mkdir(&moved, "below");
    let other = bed.mkdir(&root, "other");
    let foreign = |path: &str| std::fs::create_dir(bed.tree.path().join(path)).unwrap();
    foreign("moved/theirs");
    foreign("other/moved");
    bed.rename(&root, &other, "moved");
    // Something foreign stands where it belongs.
    bed.follow(ROOT, "moved");
    bed.follow(other.id, "moved");
    bed.follower.finish(&mut |_| {});
    assert!(!bed.tree.path().join("moved").exists());
    std::fs::remove_dir(bed.tree.path().join("other/moved")).unwrap();
    let mut more = Vec::new();
    bed.follower.follow(&Change::Name(other.id, b"moved".as_slice().into()), &mut |change| more.push(change));
    for change in more {
        bed.follower.follow(&change, &mut |_| {});
    }
    assert!(bed.tree.path().join("other/moved/theirs").is_dir());
    assert!(bed.tree.path().join("other/moved/below").is_dir(), "it is not filled");
}
