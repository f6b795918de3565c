//! Stores on file systems of their own, which fail, are full, or count in a way of their own.

use crate::cluster;
use crate::disk::{self, Mounted, Store, can_mount, name, open, put};
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};
use ullage_journal::Durability;
use ullage_store::chunk::OpError;

/// Fills a file system with one file.
fn fill(path: &Path) {
    let mut file = fs::File::create(path).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
}

/// What `work` gives once there is room: of a file that was removed a child has a copy that another test is just starting, for a moment.
fn with_room<T>(work: impl Fn() -> Result<T, OpError<&'static str>>) -> Result<T, OpError<&'static str>> {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        match work() {
            Err(OpError::NoSpace) if Instant::now() < until => std::thread::sleep(Duration::from_millis(10)),
            outcome => return outcome,
        }
    }
}

/// xfs had given it blocks beyond its end when it was measured: two to three times as much.
#[test]
fn a_chunk_on_xfs_is_charged_what_it_occupies() {
    if !can_mount(&["mkfs.xfs"]) {
        return;
    }
    let ground = tempfile::tempdir().unwrap();
    let disk = Mounted::image(&ground.path().join("disk"), &ground.path().join("image"), "xfs", 320);
    let store = open(disk.path(), i64::MAX / 2, Durability::Disk);
    for size in [4096, 48 << 10, 100_000, 1 << 20, 5 << 20, 8 << 20, 16 << 20] {
        for round in 0..2 {
            let charged = put(&store, &format!("alice/{size}"), &vec![1; size]).unwrap();
            assert_eq!(charged, (size as u64).next_multiple_of(4096) + 4096, "{size} bytes, put {round} times before");
        }
    }
}

/// What was there of a copy stayed where it had found no room, and nobody could write any more.
#[test]
fn a_refused_write_on_a_full_disk_takes_no_room() {
    if !can_mount(&[]) {
        return;
    }
    let ground = tempfile::tempdir().unwrap();
    let disk = Mounted::tmpfs(&ground.path().join("disk"), 48);
    let whole = (8 << 20) + 4096;
    let store = open(disk.path(), whole + (16 << 10), Durability::Process);
    put(&store, "alice/large", &vec![1; 8 << 20]).unwrap();
    let filler = disk.path().join("filler");
    fill(&filler);
    let left = fs::metadata(&filler).unwrap().len() - (2 << 20);
    fs::File::options().write(true).open(&filler).unwrap().set_len(left).unwrap();
    let data = vec![1; 32 << 10];
    for offset in [9 << 20, 10 << 20] {
        let owner = "alice".into();
        let refused = with_room(|| store.write_at(&name("alice/large"), "alice", &owner, offset, &data, &()));
        assert!(matches!(refused, Err(OpError::Refused("over the limit"))), "{refused:?}");
        assert_eq!(fs::read_dir(disk.path().join("new")).unwrap().count(), 0);
    }
    with_room(|| put(&store, "alice/small", &[1; 4096])).unwrap();
}

/// Regression: what a refused write had reserved in a hole is given back by a copy, for which there was no room at the next start either: the
/// store did not start, and nothing could be read or removed.
#[test]
fn what_a_refused_write_has_reserved_keeps_no_store_from_starting() {
    if !can_mount(&[]) {
        return;
    }
    let ground = tempfile::tempdir().unwrap();
    let disk = Mounted::tmpfs(&ground.path().join("disk"), 48);
    let start = || open(disk.path(), (8 << 20) + 4096 + (16 << 10), Durability::Process);
    let store = start();
    let data = vec![1; 8 << 20];
    put(&store, "alice/large", &data).unwrap();
    store.truncate(&name("alice/large"), "alice", &"alice".into(), 16 << 20, &()).unwrap();
    let filler = disk.path().join("filler");
    fill(&filler);
    let left = fs::metadata(&filler).unwrap().len() - (2 << 20);
    fs::File::options().write(true).open(&filler).unwrap().set_len(left).unwrap();
    let owner = "alice".into();
    let refused = with_room(|| store.write_at(&name("alice/large"), "alice", &owner, 12 << 20, &data[..32 << 10], &()));
    assert!(matches!(refused, Err(OpError::Refused("over the limit"))), "{refused:?}");
    drop(store);
    let store = start();
    assert_eq!(store.recount().uncharged_bytes, 32 << 10);
    assert_eq!(fs::read_dir(disk.path().join("new")).unwrap().count(), 0);
    assert_eq!(store.read(&name("alice/large"), "alice", 0, 8 << 20).unwrap().0, data);
    drop(store);
    fs::remove_file(&filler).unwrap();
    assert_eq!(start().recount().trimmed, 1);
}

/// Regression: a store on whose file system others had taken all inodes served nothing after its next snapshot, and never started again.
#[test]
fn without_an_inode_chunks_are_read_and_removed_and_the_store_starts() {
    if !can_mount(&[]) {
        return;
    }
    let ground = tempfile::tempdir().unwrap();
    let disk = Mounted::tmpfs_with(&ground.path().join("disk"), "size=64m,nr_inodes=450");
    let (root, others) = (disk.path().join("store"), disk.path().join("others"));
    fs::create_dir(&others).unwrap();
    let take_all = || (0..1000).take_while(|number| fs::File::create(others.join(format!("{number}"))).is_ok()).count();
    let start = || open(&root, i64::MAX / 2, Durability::Process);
    let mut store = start();
    let full = (0..).find_map(|number| put(&store, &format!("alice/{number}"), b"data").err());
    assert!(matches!(full, Some(OpError::NoSpace)), "{full:?}");
    assert!(take_all() > 30, "a part is left for what is not a chunk");
    for round in 0..4 {
        take_all();
        assert!(store.snapshot().is_err(), "round {round}");
        assert_eq!(store.read(&name("alice/0"), "alice", 0, 4).unwrap().0, b"data", "round {round}");
        assert!(matches!(put(&store, "alice/new", b"data"), Err(OpError::NoSpace)));
        // As a kill leaves it: its segment is not empty.
        store.delete(&name(&format!("alice/{}", round + 1)), "alice", &()).unwrap();
        drop(store);
        store = start();
    }
    // Even where what was held was lost to others.
    drop(store);
    for file in fs::read_dir(root.join("journal")).unwrap().map(|file| file.unwrap().path()) {
        if file.file_name().unwrap().to_str().unwrap().starts_with("reserve") {
            fs::remove_file(file).unwrap();
        }
    }
    take_all();
    let store = start();
    assert_eq!(store.read(&name("alice/0"), "alice", 0, 4).unwrap().0, b"data");
    store.delete(&name("alice/10"), "alice", &()).unwrap();
    fs::remove_dir_all(&others).unwrap();
    store.snapshot().unwrap();
    store.hold_room();
    put(&store, "alice/new", b"data").unwrap();
}

/// What ext4 and xfs had reserved when they found no more stayed the chunk's, charged to nobody, until the next start.
#[test]
fn a_write_that_finds_no_room_keeps_nothing_of_what_it_found() {
    for (kind, megabytes) in [("ext4", 64), ("xfs", 320)] {
        if !can_mount(&[&format!("mkfs.{kind}")]) {
            return;
        }
        let ground = tempfile::tempdir().unwrap();
        let at = |name: &str| ground.path().join(name);
        let disk = Mounted::image(&at("disk"), &at("image"), kind, megabytes);
        fs::create_dir(at("journal")).unwrap();
        symlink(at("journal"), disk.path().join("journal")).unwrap();
        let store = open(disk.path(), i64::MAX / 2, Durability::Disk);
        let charged = put(&store, "alice/short", &[1; 4096]).unwrap();
        // In pieces, so that no 60 KiB lie side by side.
        for number in 0..64 {
            fs::write(disk.path().join(format!("piece{number}")), vec![1; 16 << 10]).unwrap();
        }
        store.snapshot().unwrap();
        fill(&disk.path().join("filler"));
        fs::File::open(disk.path().join("filler")).unwrap().sync_all().unwrap();
        for number in [20, 30] {
            fs::remove_file(disk.path().join(format!("piece{number}"))).unwrap();
        }
        disk::run("sync", &["-f", disk.path().to_str().unwrap()]);
        let owner = "alice".into();
        let refused = store.write_at(&name("alice/short"), "alice", &owner, 4096, &vec![2; 60 << 10], &());
        assert!(matches!(refused, Err(OpError::NoSpace)), "{kind}: {refused:?}");
        assert_eq!(cluster::on_disk(disk.path()), charged, "{kind}");
        let read = store.read(&name("alice/short"), "alice", 0, u64::MAX).unwrap().0;
        assert!(read == [1; 4096], "{kind}");
    }
}

/// On a disk that takes nothing more, with chunks that are nowhere but in memory and in the journal, which lies elsewhere: `work` is to fail,
/// and all that was put is to be there after a restart.
fn nothing_is_lost_on_a_failing_disk(work: impl FnOnce(&Store)) {
    let ground = tempfile::tempdir().unwrap();
    let at = |name: &str| ground.path().join(name);
    // What lies in a file that gets no more room cannot be written to a disk that is made of it.
    let below = Mounted::tmpfs(&at("below"), 64);
    let image = below.path().join("image");
    let disk = Mounted::image(&at("disk"), &image, "ext4", 256);
    // Or the kernel commits by itself, and fails, before all are put.
    disk::run("mount", &["-o", "remount,commit=300", disk.path().to_str().unwrap()]);
    fs::create_dir(at("journal")).unwrap();
    symlink(at("journal"), disk.path().join("journal")).unwrap();
    let store = open(disk.path(), i64::MAX / 2, Durability::Disk);
    let filler = below.path().join("filler");
    fill(&filler);
    let chunks: Vec<String> = (0..100).map(|number| format!("alice/{number}")).collect();
    let data = vec![1; 32 << 10];
    for chunk in &chunks {
        put(&store, chunk, &data).unwrap();
    }
    work(&store);
    fs::remove_file(&filler).unwrap();
    drop(store);
    drop(disk);
    let disk = Mounted::again(&at("disk"), &image);
    let store = open(disk.path(), i64::MAX / 2, Durability::Disk);
    for chunk in &chunks {
        let read = store.read(&name(chunk), "alice", 0, u64::MAX).map(|(bytes, _)| bytes == data);
        assert!(matches!(read, Ok(true)), "{chunk}: {read:?}");
    }
}

/// One flush failed, the next one, by a descriptor that had been told of nothing, did not; and the journal, which alone had what was
/// answered, was dropped.
#[test]
fn what_cannot_be_flushed_stays_in_the_journal() {
    if can_mount(&["mkfs.ext4"]) {
        nothing_is_lost_on_a_failing_disk(|store| {
            assert!(store.snapshot().is_err(), "the disk takes nothing");
            assert!(store.snapshot().is_err() && put(store, "alice/more", b"data").is_err(), "the store has stopped");
        });
    }
}

/// A store that ended while it wrote a snapshot wrote its last one beside that: one of both was told that the disk fails, and the other dropped
/// the journal.
#[test]
fn of_two_snapshots_at_once_none_drops_the_journal_of_what_cannot_be_flushed() {
    if can_mount(&["mkfs.ext4"]) {
        nothing_is_lost_on_a_failing_disk(|store| {
            let start = Barrier::new(4);
            let snapshot = || {
                start.wait();
                store.snapshot().is_err()
            };
            thread::scope(|scope| {
                let all = [(); 4].map(|()| scope.spawn(snapshot));
                assert_eq!(all.map(|one| one.join().unwrap()), [true; 4], "the disk takes nothing");
            });
        });
    }
}
