//! Limits: never passed, whoever comes at the same time, and never in the way of what does not grow.

use crate::bed::{Bed, at};
use crate::named::new;
use crate::world::Random;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use ullage_catalog::{Catalog, Error, Inode, Limit, New, Subject, verify};
use ullage_types::{FileId, Kind, ROOT};

fn bytes(most: u64) -> Limit {
    Limit { bytes: Some(most), inodes: None }
}

fn file(catalog: &Arc<Catalog>, parent: &Arc<Inode>, name: &[u8]) -> Arc<Inode> {
    catalog.create(parent, name, new(catalog, Kind::Regular), at(1)).unwrap()
}

fn directory(catalog: &Arc<Catalog>, parent: &Arc<Inode>, name: &[u8]) -> Arc<Inode> {
    catalog.create(parent, name, new(catalog, Kind::Directory), at(1)).unwrap()
}

fn blocks(catalog: &Catalog, file: &Arc<Inode>, release: u64, blocks: u64) {
    catalog
        .record_measured(file, release, |record| {
            record.blocks = blocks;
            Ok(())
        })
        .unwrap();
}

/// Nobody needs a file's directory while the file is used: what was held for it was forgotten with the directory, and to let go of it ended the mount.
#[test]
fn what_is_held_is_remembered_of_directories_that_nobody_uses() {
    let bed = Bed::disk();
    let catalog = bed.catalog();
    let root = catalog.root().clone();
    let (deep, held) = (directory(&catalog, &directory(&catalog, &root, b"above"), b"deep"), 40960);
    let inode = file(&catalog, &deep, b"file");
    let id = deep.id;
    catalog.hold(&inode, held).unwrap();
    let weak = Arc::downgrade(&deep);
    drop(deep);
    for _ in 0..2 {
        bed.checkpoint().unwrap();
        assert_eq!(catalog.get(id).unwrap().totals().held(), held);
    }
    catalog.rename((&catalog.get(id).unwrap(), b"file"), (&root, b"file"), false, at(2)).unwrap();
    bed.checkpoint().unwrap();
    assert!(weak.upgrade().is_none(), "it stays in memory for nothing");
    blocks(&catalog, &inode, held, 8);
    assert_eq!((catalog.held(&inode), root.totals().held()), (0, 0));
}

#[test]
fn what_is_held_follows_the_file() {
    let mut bed = Bed::disk();
    let catalog = bed.catalog();
    let root = catalog.root().clone();
    let (a, b) = (directory(&catalog, &root, b"a"), directory(&catalog, &root, b"b"));
    let (deep, held) = (directory(&catalog, &a, b"deep"), 40960);
    let inode = file(&catalog, &deep, b"file");
    for (directory, most) in [(&a, 3 * 4096 + held), (&b, 2 * 4096 + held)] {
        catalog.set_limit(Subject::Directory(directory.id), bytes(most)).unwrap();
    }
    catalog.hold(&inode, held).unwrap();
    assert!(matches!(catalog.hold(&inode, 4097), Err(Error::OverDirectoryLimit)));
    assert_eq!((a.totals().held(), a.totals().room().0), (held, Some(4096)));
    // The file by itself, its directory, and its owner: what is held goes along, and is asked for.
    catalog.rename((&deep, b"file"), (&b, b"file"), false, at(2)).unwrap();
    assert_eq!((a.totals().held(), b.totals().held()), (0, held));
    catalog.rename((&b, b"file"), (&deep, b"file"), false, at(3)).unwrap();
    catalog.rename((&a, b"deep"), (&b, b"deep"), false, at(4)).unwrap();
    assert_eq!((a.totals().held(), b.totals().held(), b.totals().room().0), (0, held, Some(0)));
    catalog.set_limit(Subject::User(7), bytes(held - 1)).unwrap();
    let own = |record: &mut ullage_catalog::Record| {
        record.uid = 7;
        Ok(())
    };
    assert!(matches!(catalog.update(&inode, own), Err(Error::OverUserLimit)));
    catalog.set_limit(Subject::User(7), bytes(held)).unwrap();
    catalog.update(&inode, own).unwrap();
    assert!(matches!(catalog.create(&b, b"d", new(&catalog, Kind::Directory), at(5)), Err(Error::OverDirectoryLimit)));
    // Written, less than was held; the totals count what is used, and at a cut nothing else.
    blocks(&catalog, &inode, held, 16);
    assert_eq!((catalog.held(&inode), b.totals().held(), b.totals().room().0), (0, 0, Some(held - 8192)));
    catalog.hold(&inode, 4096).unwrap();
    catalog.sync().unwrap();
    assert_eq!(verify(bed.kv()).unwrap().findings, []);
    // A file that is removed takes along what it held.
    let gone = catalog.unlink(&deep, b"file", at(6)).unwrap();
    catalog.remove(&gone.file).unwrap();
    assert_eq!((b.totals().held(), catalog.user(7).actual.0[0].bytes.0), (0, 0));
    let listed = catalog.limits().unwrap();
    assert_eq!(
        listed.iter().map(|now| (now.subject, now.held)).collect::<Vec<_>>(),
        [(Subject::User(7), 0), (Subject::Directory(a.id), 0), (Subject::Directory(b.id), 0),]
    );
    drop((gone, inode, deep, a, b, root, catalog));
    bed.reopen();
    let catalog = bed.catalog();
    assert_eq!(catalog.limit(Subject::User(7)), Some(bytes(held)));
    let b = catalog.lookup(catalog.root(), b"b").unwrap().unwrap();
    assert_eq!(b.totals().room().0, Some(held));
    assert!(matches!(catalog.set_limit(Subject::User(1), bytes(1 << 63)), Err(Error::Invalid)));
}

/// Such a length was taken for one that does not grow, or several of them passed the largest number there is: the process ended.
#[test]
fn more_than_there_can_be_is_held_for_nobody() {
    let bed = Bed::memory();
    let catalog = bed.catalog();
    let root = catalog.root().clone();
    let inner = directory(&catalog, &root, b"inner");
    let (bounded, free) = (file(&catalog, &inner, b"bounded"), file(&catalog, &root, b"free"));
    catalog.set_limit(Subject::Directory(inner.id), bytes(1 << 20)).unwrap();
    for most in [1 << 62, 1 << 63, u64::MAX] {
        assert!(matches!(catalog.hold(&bounded, most), Err(Error::TooLarge)));
        assert!(matches!(catalog.hold(&free, most), Err(Error::TooLarge)));
    }
    let large = 1 << 60;
    assert!(matches!(catalog.hold(&bounded, large), Err(Error::OverDirectoryLimit)));
    let held = (0..100).filter(|_| catalog.hold(&free, large).is_ok()).count() as u64;
    assert!(held < 8, "held {held} times");
    assert_eq!(root.totals().held(), held * large);
    // What was measured is a fact all the same.
    blocks(&catalog, &bounded, 0, 1 << 40);
    blocks(&catalog, &free, held * large, 8);
    assert_eq!(root.totals().held(), 0);
}

/// It was taken for none: names went out of its directory, and its record stayed when that was removed.
#[test]
fn the_largest_limit_there_can_be_is_one() {
    let mut bed = Bed::disk();
    let most = i64::MAX as u64;
    {
        let catalog = bed.catalog();
        let root = catalog.root().clone();
        for (name, limit) in
            [(b"by-bytes".as_slice(), bytes(most)), (b"by-inodes", Limit { bytes: None, inodes: Some(most) })]
        {
            let inner = directory(&catalog, &root, name);
            catalog.set_limit(Subject::Directory(inner.id), limit).unwrap();
            let inside = file(&catalog, &inner, b"file");
            assert!(catalog.is_bounded(0, &inner) && inner.totals().room() != (None, None));
            assert!(matches!(catalog.link(&inside, &root, b"link", at(2)), Err(Error::CrossDomain)));
        }
        catalog.set_limit(Subject::User(7), bytes(most)).unwrap();
        assert!(catalog.is_user_bounded(7));
        catalog.sync().unwrap();
    }
    bed.reopen();
    let catalog = bed.catalog();
    let root = catalog.root().clone();
    assert!(catalog.is_user_bounded(7));
    for name in [b"by-bytes".as_slice(), b"by-inodes"] {
        let inner = catalog.lookup(&root, name).unwrap().unwrap();
        let gone = catalog.unlink(&inner, b"file", at(3)).unwrap();
        catalog.remove(&gone.file).unwrap();
        let gone = catalog.rmdir(&root, name, at(4)).unwrap();
        catalog.remove(&gone.file).unwrap();
    }
    assert_eq!(catalog.limits().unwrap().len(), 1, "that of the user");
    catalog.sync().unwrap();
    assert_eq!(verify(bed.kv()).unwrap().findings, []);
}

#[test]
fn a_limit_that_cannot_be_read_or_has_no_directory_is_found() {
    use ullage_kv::Batch;
    let bed = Bed::memory();
    let catalog = bed.catalog();
    let inode = file(&catalog, &catalog.root().clone(), b"file");
    let mut batch = Batch::new();
    let key = |id: u64| [b"ld".as_slice(), &id.to_be_bytes()].concat();
    batch.put(key(inode.id.0), [&[1][..], &[5; 16]].concat());
    batch.put(b"lu\0\0\0\x07".to_vec(), vec![1; 16]);
    batch.put(b"lx".to_vec(), [&[1][..], &[5; 16]].concat());
    bed.kv().commit(batch).unwrap();
    catalog.sync().unwrap();
    let found = verify(bed.kv()).unwrap().findings;
    assert_eq!(found.len(), 3, "{found:?}");
}

struct Worker {
    catalog: Arc<Catalog>,
    random: Random,
    places: Vec<Arc<Inode>>,
}

impl Worker {
    fn place(&mut self) -> Arc<Inode> {
        let index = self.random.below(self.places.len());
        self.places[index].clone()
    }

    fn step(&mut self) -> Result<(), Error> {
        let (catalog, from, to) = (self.catalog.clone(), self.place(), self.place());
        let name = [b'a' + self.random.below(12) as u8];
        let file = catalog.lookup(&from, &name)?.filter(|file| file.kind == Kind::Regular);
        match (self.random.below(8), file) {
            (0, _) => catalog.create(&from, &name, new(&catalog, Kind::Directory), at(1)).map(drop),
            (1 | 2, None) => {
                let uid = self.random.below(3) as u32;
                catalog.create(&from, &name, New { uid, ..new(&catalog, Kind::Regular) }, at(1)).map(drop)
            }
            (1..4, Some(file)) => {
                let more = 1 + self.random.below(8) as u64;
                catalog.hold(&file, more * 4096)?;
                let took = self.random.below(more as usize + 1) as u64;
                catalog.record_measured(&file, more * 4096, |record| {
                    record.blocks += took * 8;
                    Ok(())
                })
            }
            (4, Some(file)) => catalog.update(&file, |record| {
                record.uid = (record.uid + 1) % 3;
                Ok(())
            }),
            (5 | 6, _) => catalog.rename((&from, &name), (&to, &name), false, at(1)).and_then(|renamed| {
                let gone = renamed.replaced.filter(|replaced| replaced.last);
                gone.map_or(Ok(()), |replaced| catalog.remove(&replaced.file).map(drop))
            }),
            (7, _) => {
                let gone = catalog.unlink(&from, &name, at(1)).or_else(|_| catalog.rmdir(&from, &name, at(1)))?;
                if gone.last { catalog.remove(&gone.file).map(drop) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }
}

fn assert_within(catalog: &Catalog) {
    for now in catalog.limits().unwrap() {
        // Read one after the other: what is held may be used by the time that use is read, so only one of them counts.
        assert!(now.limit.bytes.is_none_or(|most| now.used.bytes.0 <= most), "past a limit: {now:?}");
        assert!(now.limit.inodes.is_none_or(|most| now.used.inodes <= most), "past a limit: {now:?}");
    }
}

#[test]
fn sixteen_threads_pass_no_limit() {
    let bed = Bed::memory();
    let catalog = bed.catalog();
    let root = catalog.root().clone();
    let mut places = vec![root.clone()];
    for name in [b"A", b"B"] {
        let outer = directory(&catalog, &root, name);
        places.push(directory(&catalog, &outer, b"I"));
        places.push(outer);
    }
    for (place, most) in places.iter().zip([300_000u64, 50_000, 100_000, 40_000, 90_000]) {
        catalog.set_limit(Subject::Directory(place.id), Limit { bytes: Some(most), inodes: Some(30) }).unwrap();
    }
    for uid in 0..3 {
        catalog.set_limit(Subject::User(uid), Limit { bytes: Some(120_000), inodes: Some(25) }).unwrap();
    }
    let (stop, refused) = (AtomicBool::new(false), std::sync::atomic::AtomicU64::new(0));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..16)
            .map(|thread| {
                let mut worker =
                    Worker { catalog: catalog.clone(), random: Random(99 + thread), places: places.clone() };
                let refused = &refused;
                scope.spawn(move || {
                    for _ in 0..1500 {
                        match worker.step() {
                            Err(Error::OverUserLimit | Error::OverDirectoryLimit) => {
                                refused.fetch_add(1, Relaxed);
                            }
                            Err(error @ (Error::Damaged(_) | Error::Kv(_))) => panic!("an operation failed: {error}"),
                            _ => {}
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                assert_within(&catalog);
                std::thread::yield_now();
            }
        });
        for worker in workers {
            worker.join().unwrap();
        }
        stop.store(true, Relaxed);
    });
    assert!(refused.load(Relaxed) > 0, "the limits were met");
    assert_within(&catalog);
    assert_eq!(root.totals().held(), 0);
    catalog.sync().unwrap();
    assert_eq!(verify(bed.kv()).unwrap().findings, []);
    assert_eq!(catalog.get(FileId(ROOT.0)).unwrap().totals().now(), root.totals().now());
}
