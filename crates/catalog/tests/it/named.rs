//! One test a bug that was found, or a rule that generated operations seldom meet.

use crate::bed::{Bed, at};
use crate::memory::MemoryKv;
use crate::world::Random;
use std::collections::BTreeSet;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use ullage_catalog::{Backing, Brought, Catalog, Error, Inode, New, verify};
use ullage_types::{Class, Kind, PoolId};

pub fn new(catalog: &Catalog, kind: Kind) -> New {
    let (id, generation) = catalog.numbers().pair();
    New {
        id,
        kind,
        class: Class::Persistent,
        mode: 0o700,
        uid: 5,
        gid: 5,
        rdev: 0,
        target: if kind == Kind::Symlink { (*b"t").into() } else { Box::default() },
        backing: (kind == Kind::Regular).then(|| Backing { pool: PoolId(0), generation, locator: (*b"l").into() }),
        xattrs: Vec::new(),
        brought: None,
    }
}

fn make(catalog: &Catalog, parent: &Arc<Inode>, name: &[u8], kind: Kind) -> Arc<Inode> {
    catalog.create(parent, name, new(catalog, kind), at(1)).unwrap()
}

fn clean(bed: &Bed) {
    bed.catalog().sync().unwrap();
    assert_eq!(verify(bed.kv()).unwrap().findings, []);
}

/// `rm -r` of a directory while a file in it is open: the file's charge was left with a directory that did not exist, and
/// neither a change nor the removal of the file was possible.
#[test]
fn an_open_file_outlives_its_directory() {
    let bed = Bed::memory();
    let catalog = bed.catalog();
    let root = catalog.root().clone();
    let outer = make(&catalog, &root, b"outer", Kind::Directory);
    let inner = make(&catalog, &outer, b"inner", Kind::Directory);
    let file = make(&catalog, &inner, b"file", Kind::Regular);
    catalog.unlink(&inner, b"file", at(2)).unwrap();
    catalog.rmdir(&outer, b"inner", at(3)).unwrap();
    catalog.rmdir(&root, b"outer", at(4)).unwrap();
    for directory in [inner, outer] {
        assert!(catalog.remove(&directory).unwrap().is_none());
    }
    clean(&bed);
    catalog
        .update(&file, |record| {
            record.blocks = 80;
            Ok(())
        })
        .unwrap();
    clean(&bed);
    assert_eq!(root.totals().now().actual[Class::Persistent].bytes.0, 3 * 4096 + 80 * 512);
    assert!(catalog.remove(&file).unwrap().is_some());
    clean(&bed);
    assert_eq!(verify(bed.kv()).unwrap().files, 1);
    assert_eq!(root.totals().now().actual[Class::Persistent].inodes, 1);
}

/// A file made with O_TMPFILE in a directory that went, and then linked elsewhere.
#[test]
fn a_link_lets_a_removed_directory_go() {
    let bed = Bed::memory();
    let catalog = bed.catalog();
    let root = catalog.root().clone();
    let directory = make(&catalog, &root, b"d", Kind::Directory);
    let file = catalog.create_unnamed(&directory, new(&catalog, Kind::Regular), at(1)).unwrap();
    catalog.rmdir(&root, b"d", at(2)).unwrap();
    assert!(catalog.remove(&directory).unwrap().is_none());
    catalog.link(&file, &root, b"f", at(3)).unwrap();
    clean(&bed);
    assert_eq!(catalog.orphans().unwrap(), []);
    assert_eq!(verify(bed.kv()).unwrap().files, 2);
}

/// The record of a removed file came back with any later change, such as the last measure of its data.
#[test]
fn what_is_removed_stays_removed() {
    let bed = Bed::memory();
    let catalog = bed.catalog();
    let file = make(&catalog, catalog.root(), b"f", Kind::Regular);
    catalog.unlink(catalog.root(), b"f", at(2)).unwrap();
    catalog.remove(&file).unwrap();
    let changed = catalog.update(&file, |record| {
        record.size = 7;
        Ok(())
    });
    assert!(matches!(changed, Err(Error::NotFound)));
    assert!(matches!(catalog.link(&file, catalog.root(), b"g", at(3)), Err(Error::NotFound)));
    assert!(matches!(catalog.get(file.id), Ok(_) | Err(Error::NotFound)));
    drop(file);
    clean(&bed);
    assert_eq!(verify(bed.kv()).unwrap().files, 1);
}

/// The file was locked twice.
#[test]
fn a_file_linked_into_itself_is_refused() {
    let bed = Bed::memory();
    let catalog = bed.catalog();
    let file = make(&catalog, catalog.root(), b"f", Kind::Regular);
    assert!(matches!(catalog.link(&file, &file, b"x", at(2)), Err(Error::NotDirectory)));
}

/// Loading and letting go of a directory went one stack frame deeper for each of its ancestors.
#[test]
fn a_tree_may_be_deeper_than_a_stack() {
    const DEPTH: usize = 20_000;
    let mut bed = Bed::machine();
    let catalog = bed.catalog();
    let root = catalog.root().clone();
    let deepest = make(&catalog, &root, b"top", Kind::Directory).id;
    // Grown at the top, since a change far down touches every ancestor.
    for _ in 1..DEPTH {
        let above = make(&catalog, &root, b"new", Kind::Directory);
        catalog.rename((&root, b"top"), (&above, b"d"), false, at(2)).unwrap();
        catalog.rename((&root, b"new"), (&root, b"top"), false, at(2)).unwrap();
    }
    assert_eq!(root.totals().now().actual[Class::Persistent].inodes as usize, DEPTH + 1);
    catalog.sync().unwrap();
    drop((root, catalog));
    bed.reopen();
    let catalog = bed.catalog();
    let inode = catalog.get(deepest).unwrap();
    assert_eq!(inode.totals().now().actual[Class::Persistent].inodes, 1);
    drop(inode);
    assert_eq!(catalog.get(deepest).unwrap().id, deepest);
}

#[test]
fn a_directory_is_never_moved_below_itself() {
    let bed = Bed::memory();
    let catalog = bed.catalog();
    let root = catalog.root().clone();
    let a = make(&catalog, &root, b"a", Kind::Directory);
    let b = make(&catalog, &a, b"b", Kind::Directory);
    let c = make(&catalog, &b, b"c", Kind::Directory);
    for to in [&a, &b, &c] {
        assert!(matches!(catalog.rename((&root, b"a"), (to, b"x"), false, at(2)), Err(Error::Invalid)));
    }
    assert!(matches!(catalog.exchange((&root, b"a"), (&b, b"c"), at(2)), Err(Error::Invalid)));
    assert!(matches!(catalog.exchange((&b, b"c"), (&root, b"a"), at(2)), Err(Error::Invalid)));
    clean(&bed);
}

#[test]
fn a_file_has_at_most_65000_links() {
    let bed = Bed::memory();
    let catalog = bed.catalog();
    let root = catalog.root().clone();
    let file = make(&catalog, &root, b"0", Kind::Regular);
    for n in 1..65_000 {
        catalog.link(&file, &root, n.to_string().as_bytes(), at(2)).unwrap();
    }
    assert!(matches!(catalog.link(&file, &root, b"more", at(2)), Err(Error::TooManyLinks)));
    assert_eq!((file.record().nlink, root.totals().now().linked), (65_000, 65_000));
    catalog.unlink(&root, b"0", at(3)).unwrap();
    assert_eq!(*file.record().name, *b"1");
    clean(&bed);
}

/// Each removal of the name that a file is charged at looked at all names that had been removed before: any user could keep
/// the space busy for a quarter of an hour.
#[test]
fn removing_the_names_of_a_file_in_order_costs_the_last_what_it_costs_the_first() {
    let store = Arc::new(MemoryKv::default());
    let catalog = Catalog::open(store.clone(), 0, 0, at(0)).unwrap();
    let root = catalog.root().clone();
    let file = make(&catalog, &root, b"0000", Kind::Regular);
    let name = |n: usize| format!("{n:04}").into_bytes();
    let names = 1000;
    for n in 1..names {
        catalog.link(&file, &root, &name(n), at(2)).unwrap();
    }
    catalog.sync().unwrap();
    (0..names).for_each(|n| drop(catalog.unlink(&root, &name(n), at(3)).unwrap()));
    assert!(store.passed() < 2 * names, "{} removed names were looked at", store.passed());
    catalog.sync().unwrap();
    assert_eq!(verify(&*store).unwrap().findings, []);
}

#[test]
fn numbers_are_never_given_twice() {
    let mut bed = Bed::machine();
    let mut random = Random(3);
    let mut ever = BTreeSet::new();
    for round in 0..24 {
        let catalog = bed.catalog();
        let many = if round % 8 == 7 { 70_000 } else { random.below(2000) };
        for _ in 0..many {
            assert!(ever.insert(catalog.numbers().take()), "a number came again in round {round}");
        }
        if random.below(2) == 0 {
            catalog.sync().unwrap();
        }
        drop(catalog);
        if random.below(2) == 0 { bed.cut(&mut random) } else { bed.reopen() }
    }
}

#[test]
fn numbers_are_never_given_twice_by_threads() {
    let bed = Bed::machine();
    let numbers = bed.catalog().numbers();
    let all: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..4).map(|_| scope.spawn(|| (0..50_000).map(|_| numbers.take()).collect::<Vec<_>>())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let distinct: BTreeSet<u64> = all.iter().flatten().copied().collect();
    assert_eq!(distinct.len(), 200_000);
}

#[test]
fn marks_survive_a_power_cut_once_set() {
    let mut bed = Bed::machine();
    let mut random = Random(9);
    let mut set: BTreeSet<Vec<u8>> = BTreeSet::new();
    for _ in 0..20 {
        let catalog = bed.catalog();
        let marks = catalog.marks(PoolId(3)).unwrap();
        let found: BTreeSet<Vec<u8>> = marks.marked().into_iter().map(Into::into).collect();
        assert!(found.is_superset(&set), "a mark was lost");
        assert_eq!(catalog.marks(PoolId(4)).unwrap().marked().len(), 0);
        set = found;
        for _ in 0..random.below(6) {
            let leaf = vec![b'0' + random.below(8) as u8];
            if random.below(3) == 0 {
                marks.clear(&leaf).unwrap();
                set.remove(&leaf);
            } else {
                marks.mark(&[&leaf]).unwrap();
                set.insert(leaf);
            }
        }
        drop((marks, catalog));
        bed.cut(&mut random);
    }
}

/// A file is one object in memory, whoever asks and however often it comes and goes.
#[test]
fn a_file_is_in_memory_once() {
    let bed = Bed::memory();
    let catalog = bed.catalog();
    let ids: Vec<_> = (0..4u8)
        .map(|n| make(&catalog, catalog.root(), &[b'a' + n], if n < 2 { Kind::Directory } else { Kind::Fifo }).id)
        .collect();
    catalog.sync().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 0..5000 {
                    let id = ids[n % 4];
                    let (one, other) = (catalog.get(id).unwrap(), catalog.get(id).unwrap());
                    assert!(Arc::ptr_eq(&one, &other));
                }
            });
        }
    });
}

/// An overlay could not have its upper layer in a space, since RENAME_WHITEOUT was refused.
#[test]
fn a_name_that_moves_can_leave_another_file_behind() {
    let bed = Bed::memory();
    let catalog = bed.catalog();
    let root = catalog.root().clone();
    let directory = make(&catalog, &root, b"d", Kind::Directory);
    let file = make(&catalog, &root, b"file", Kind::Regular);
    make(&catalog, &directory, b"old", Kind::Regular);
    let left = new(&catalog, Kind::CharDevice);
    catalog.rename_leaving((&root, b"file"), (&directory, b"old"), false, Some(&left), at(2)).unwrap();
    assert_eq!(catalog.lookup(&root, b"file").unwrap().unwrap().id, left.id);
    assert_eq!(catalog.lookup(&directory, b"old").unwrap().unwrap().id, file.id);
    let over = new(&catalog, Kind::CharDevice);
    catalog.rename_leaving((&root, b"d"), (&root, b"file"), false, Some(&over), at(3)).unwrap_err();
    catalog.rename_leaving((&root, b"d"), (&root, b"e"), false, Some(&over), at(3)).unwrap();
    let kinds = [&b"d"[..], b"e", b"file"].map(|name| catalog.lookup(&root, name).unwrap().unwrap().kind);
    assert_eq!(kinds, [Kind::CharDevice, Kind::Directory, Kind::CharDevice]);
    // The root, the directory, the file, what it replaced (nobody has removed it yet), and both that were left.
    assert_eq!(root.totals().now().actual[Class::Persistent].inodes, 6);
    catalog.unlink(&root, b"file", at(4)).unwrap();
    catalog.unlink(&root, b"d", at(4)).unwrap();
    clean(&bed);
}

/// An import made the record and gave it the file's length and times in a commit of its own: killed in between, it passed the
/// file over at the next start.
#[test]
fn what_a_file_brings_is_in_the_commit_that_makes_it() {
    let bed = Bed::memory();
    let catalog = bed.catalog();
    let brought = Brought { size: 70_000, blocks: 144, atime: at(5), mtime: at(6) };
    let of_file = New { brought: Some(brought), ..new(&catalog, Kind::Regular) };
    let file = catalog.create(catalog.root(), b"file", of_file, at(9)).unwrap();
    let record = file.record();
    assert_eq!(
        (record.size, record.blocks, record.atime, record.mtime, record.ctime),
        (70_000, 144, at(5), at(6), at(9))
    );
    let of_link = New { brought: Some(brought), ..new(&catalog, Kind::Symlink) };
    let record = catalog.create(catalog.root(), b"link", of_link, at(9)).unwrap().record();
    assert_eq!((record.size, record.blocks, record.mtime), (1, 0, at(6)), "the length of its target");
    clean(&bed);
    assert_eq!(catalog.root().totals().now().actual[Class::Persistent].bytes.0, 4096 + 144 * 512);
}

/// One of two names was removed between the look at how many there are and the search for them, and the one that stays was not among those kept
/// beside the file any more: a plain tree was never told of it.
#[test]
fn the_name_that_stays_is_visited_while_the_other_one_is_removed() {
    let store = Arc::new(MemoryKv::default());
    let catalog = Catalog::open(store.clone(), 0, 0, at(0)).unwrap();
    let root = catalog.root().clone();
    let file = make(&catalog, &root, b"goes", Kind::Regular);
    catalog.link(&file, &root, b"stays", at(2)).unwrap();
    let (removed, is_removed) = mpsc::channel();
    let (begins, begun) = mpsc::channel();
    let (other, above) = (catalog.clone(), root.clone());
    let remover = std::thread::spawn(move || {
        begun.recv().unwrap();
        other.unlink(&above, b"goes", at(3)).unwrap();
        // Nobody waits for it any more where it had to wait itself.
        let _ = removed.send(());
    });
    *store.meanwhile.lock().unwrap() = Some(Box::new(move || {
        begins.send(()).unwrap();
        let _ = is_removed.recv_timeout(Duration::from_millis(300));
    }));
    let mut names = Vec::new();
    catalog.each_name(&file, &mut |_, name| names.push(name.to_vec())).unwrap();
    remover.join().unwrap();
    assert!(names.iter().any(|name| name == b"stays"), "{names:?}");
    assert_eq!((file.record().nlink, &*file.record().name), (1, &b"stays"[..]));
}
