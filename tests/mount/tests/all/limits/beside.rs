//! Limited files that are open in several ways at once: for reading only, for writing only, for both, mapped.

use super::bed::{Below, assert_filled, both, is_full, limited, used};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use ullage_mount_tests::map::Map;
use ullage_mount_tests::recount::counted;
use ullage_mount_tests::run::{LIMIT, eventually, ullage};
use ullage_mount_tests::space::Space;

const ROOM: u64 = 1 << 20;

/// A handle that has a file open in the kernel: one that reads, but on tmpfs, where holes could be filled through that.
fn in_kernel(below: Below, path: &Path) -> File {
    OpenOptions::new().read(below != Below::Tmpfs).write(below == Below::Tmpfs).open(path).unwrap()
}

/// A file of so many bytes, all hole.
fn hollow(path: &Path, bytes: u64) {
    File::create(path).unwrap().set_len(bytes).unwrap();
}

/// Stores a byte into every page.
fn store_all(map: &mut Map, bytes: u64, value: u64) {
    for page in 0..bytes as usize / 4096 {
        map.store(page * 4096, value);
    }
}

/// A child has the files of its program open until it begins another one: the file was taken for one that others have open too, and got all its
/// blocks.
#[test]
fn a_file_that_is_closed_and_opened_again_keeps_its_holes_while_children_are_started() {
    let space = Below::Ext4.space();
    let dir = limited(&space, "box", 16 * ROOM);
    let over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !over.load(Relaxed) {
                Command::new("true").status().unwrap();
            }
        });
        let filled = (0..300).find(|number| {
            let path = dir.join(format!("file-{number}"));
            hollow(&path, 4 * ROOM);
            both(&path).and_then(|file| file.metadata()).unwrap().blocks() > 0
        });
        over.store(true, Relaxed);
        assert_eq!(filled, None);
    });
    space.down_and_check();
}

/// Stores into such a mapping are seen by nobody: there must be no hole that they could fill beyond the limit.
#[test]
fn stores_beside_a_reader_fill_no_hole_beyond_the_limit() {
    for below in Below::all() {
        let space = below.space();
        let dir = limited(&space, "box", ROOM);
        let path = dir.join("file");
        hollow(&path, ROOM / 2);
        let before = path.metadata().unwrap();
        let reader = in_kernel(below, &path);
        let file = both(&path).unwrap();
        let after = path.metadata().unwrap();
        assert_eq!((before.mtime_nsec(), before.ctime_nsec()), (after.mtime_nsec(), after.ctime_nsec()), "{below:?}");
        assert!(used(&dir) >= ROOM / 2, "{below:?}: {} are charged", used(&dir));
        let mut map = Map::new(&file, ROOM as usize / 2).unwrap();
        store_all(&mut map, ROOM / 2, 1);
        map.sync().and_then(|()| file.sync_all()).unwrap_or_else(|error| panic!("{below:?}: {error}"));
        // What would make a hole takes its blocks, or is refused.
        assert!(is_full(&file.set_len(4 * ROOM)), "{below:?}");
        assert_eq!(path.metadata().unwrap().len(), ROOM / 2, "{below:?}");
        assert!(is_full(&file.write_all_at(&[1], 3 * ROOM)), "{below:?}");
        let writer = OpenOptions::new().write(true).open(&path).unwrap();
        writer.write_all_at(&[2; 4096], ROOM / 2 + ROOM / 8).unwrap();
        assert!(used(&dir) >= ROOM / 2 + ROOM / 8 + 4096, "{below:?}: {} with a gap", used(&dir));
        let length = ROOM / 2 + ROOM / 8 + 4096;
        let mut longer = Map::new(&file, length as usize).unwrap();
        store_all(&mut longer, length, 3);
        longer.sync().unwrap();
        for (mode, at) in
            [(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0), (FallocateFlags::ZERO_RANGE, 8192)]
        {
            match fallocate(&file, mode, at, ROOM / 4) {
                Ok(()) => assert_eq!(longer.load(at as usize + 4096), 0, "{below:?}"),
                Err(error) => assert_eq!((error, below), (rustix::io::Errno::OPNOTSUPP, Below::Tmpfs)),
            }
        }
        let taken = used(&dir);
        // Somebody else takes the rest; then everything is stored into again.
        let other = File::create(dir.join("other")).unwrap();
        super::bed::until_full(|n| other.write_all_at(&[4; 4096], n * 4096));
        store_all(&mut longer, length, 5);
        longer.sync().unwrap();
        file.sync_all().unwrap();
        assert!(used(&dir) <= ROOM, "{below:?}: {} bytes past the limit, {taken} before", used(&dir) - ROOM);
        drop((reader, file, writer, map, longer, other));
        space.compare_du(&space.mount);
        space.down_and_check();
    }
}

/// The kernel punches those itself, into the file below. What was charged for them was let go of, others took it, and stores filled the holes again.
#[test]
fn holes_that_are_made_by_madvise_keep_what_they_were_charged() {
    for (below, hollow_before) in Below::all().flat_map(|below| [(below, false), (below, true)]) {
        let space = below.space();
        let dir = limited(&space, "box", ROOM);
        let path = dir.join("file");
        if hollow_before {
            hollow(&path, ROOM / 2);
        } else {
            fs::write(&path, vec![1; ROOM as usize / 2]).unwrap();
        }
        let reader = in_kernel(below, &path);
        let file = both(&path).unwrap();
        let mut map = Map::new(&file, ROOM as usize / 2).unwrap();
        map.remove(0, ROOM as usize / 2).unwrap();
        assert_eq!(map.load(4096), 0, "{below:?}");
        assert!(path.metadata().unwrap().blocks() * 512 >= ROOM / 2, "{below:?}: what it is charged is shown");
        file.sync_all().unwrap();
        assert!(used(&dir) >= ROOM / 2, "{below:?}: {} are charged", used(&dir));
        // Otherwise the mapping alone is left.
        let handles = (!hollow_before).then_some((reader, file));
        let other = File::create(dir.join("other")).unwrap();
        super::bed::until_full(|n| other.write_all_at(&[4; 4096], n * 4096));
        store_all(&mut map, ROOM / 2, 5);
        map.sync().unwrap();
        other.sync_all().unwrap();
        drop((map, handles, other));
        assert!(used(&dir) <= ROOM, "{below:?}: {} bytes past the limit", used(&dir) - ROOM);
        space.compare_du(&space.mount);
        space.down_and_check();
    }
}

#[test]
fn holes_that_do_not_fit_keep_a_file_from_being_opened_for_both_beside_a_reader() {
    for below in Below::all() {
        let space = below.space();
        let dir = limited(&space, "box", ROOM);
        let path = dir.join("file");
        hollow(&path, 4 * ROOM);
        let reader = in_kernel(below, &path);
        assert!(is_full(&both(&path)), "{below:?}");
        let writer = OpenOptions::new().write(true).open(&path).unwrap();
        writer.write_all_at(&[1; 4096], 2 * ROOM).unwrap();
        drop((reader, writer));
        // Alone its pages are the server's. The end of the handles may be on its way.
        let file = both(&path).unwrap_or_else(|error| panic!("{below:?}: {error}"));
        assert!(used(&dir) < ROOM / 2, "{below:?}: {}", used(&dir));
        drop(file);
        space.compare_du(&space.mount);
        space.down_and_check();
    }
}

/// Also when it has not found its place on the disk yet.
#[test]
fn what_was_just_written_is_no_hole_to_be_paid_for() {
    for below in Below::all() {
        let space = below.space();
        let dir = limited(&space, "box", ROOM);
        let path = dir.join("file");
        let writer = File::create(&path).unwrap();
        drop(File::open(&path).unwrap());
        super::bed::until_full(|n| writer.write_all_at(&[1; 4096], n * 4096));
        let file = both(&path).unwrap_or_else(|error| panic!("{below:?}: {error}"));
        let mut map = Map::new(&file, 65536).unwrap();
        store_all(&mut map, 65536, 2);
        map.sync().unwrap();
        assert!(used(&dir) <= ROOM, "{below:?}");
        drop((writer, file, map));
        space.down_and_check();
    }
}

/// Who allocates, or takes blocks away, waits for whoever fills holes, and that one for him: neither for ever. And nothing slips
/// through between.
#[test]
fn what_makes_holes_while_a_file_comes_to_be_mapped_makes_none() {
    for below in [Below::Tmpfs, Below::Ext4] {
        let space = below.space();
        let dir = limited(&space, "box", 64 * ROOM);
        for round in 0..150u64 {
            let path = dir.join(format!("{}", round % 7));
            let writer = File::create(&path).unwrap();
            writer.write_all_at(&[1; 16384], 0).unwrap();
            let file = std::thread::scope(|scope| {
                scope.spawn(|| match round % 4 {
                    0 => writer.set_len(1 << 17).unwrap(),
                    1 => writer.write_all_at(&[2; 4096], 1 << 17).unwrap(),
                    2 => {
                        let _ = fallocate(&writer, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 8192);
                    }
                    _ => {
                        let _ = fallocate(&writer, FallocateFlags::ZERO_RANGE, 0, 1 << 17);
                        let _ = fallocate(&writer, FallocateFlags::empty(), 1 << 18, 8192);
                    }
                });
                scope.spawn(|| both(&path).unwrap()).join().unwrap()
            });
            let meta = file.metadata().unwrap();
            assert!(
                meta.blocks() * 512 >= meta.len(),
                "{below:?}, round {round}: {} of {}",
                meta.blocks() * 512,
                meta.len()
            );
        }
        space.compare_du(&space.mount);
        space.down_and_check();
    }
}

/// The mapping is older than the handle that comes after it, and both show the same file.
#[test]
fn a_mapping_that_outlives_its_handles_stays_bound_and_in_step() {
    for below in Below::all() {
        let space = below.space();
        let dir = limited(&space, "box", ROOM);
        let path = dir.join("file");
        fs::write(&path, vec![1; 65536]).unwrap();
        let reader = in_kernel(below, &path);
        let file = both(&path).unwrap();
        let mut map = Map::new(&file, 65536).unwrap();
        drop((reader, file));
        std::thread::sleep(Duration::from_millis(50));
        assert!(is_full(&OpenOptions::new().write(true).open(&path).unwrap().set_len(8 * ROOM)), "{below:?}");
        let file = both(&path).unwrap();
        map.store(4096, 0x7777);
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, 4096).unwrap();
        assert_eq!(u64::from_ne_bytes(bytes), 0x7777, "{below:?}: a store is read");
        file.write_all_at(&0x8888u64.to_ne_bytes(), 4096).unwrap();
        assert_eq!(map.load(4096), 0x8888, "{below:?}: a write is mapped");
        drop((map, file));
        eventually("it is as any other file again", LIMIT, || {
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(8 * ROOM).is_ok()
        });
        assert!(used(&dir) < ROOM / 4, "{below:?}: {}", used(&dir));
        space.down_and_check();
    }
}

/// A mapping for reading needs no handle, and is seen by none.
#[test]
fn a_mapping_for_reading_shows_what_is_stored_through_a_later_one() {
    // The second time nothing of the file is open in the daemon any more.
    for (below, wait) in Below::all().map(|below| (below, 0)).chain([(Below::Ext4, 3000)]) {
        let space = below.space();
        let dir = limited(&space, "box", ROOM);
        let path = dir.join("file");
        fs::write(&path, vec![1; 8192]).unwrap();
        let seen = Map::for_reading(&File::open(&path).unwrap(), 8192).unwrap();
        std::thread::sleep(Duration::from_millis(wait));
        let file = both(&path).unwrap();
        let mut map = Map::new(&file, 8192).unwrap();
        map.store(4096, 0x9999);
        assert_eq!(seen.load(4096), 0x9999, "{below:?} after {wait} ms");
        // On tmpfs its pages are the server's, as long as nobody has it in the kernel.
        assert_eq!(is_full(&file.set_len(8 * ROOM)), below != Below::Tmpfs, "{below:?} after {wait} ms");
        drop((map, file, seen));
        space.down_and_check();
    }
}

/// Reads of a limited file stay in the kernel, and meet what others write at once.
#[test]
fn readers_see_at_once_what_is_written_beside_them() {
    let space = Below::Ext4.space();
    let dir = limited(&space, "box", 8 * ROOM);
    let path = dir.join("file");
    let writer = File::create(&path).unwrap();
    let reader = File::open(&path).unwrap();
    let (mut odd, mut bytes) = (0u64, [0; 100]);
    for n in 0..2000u64 {
        writer.write_all_at(&[n as u8; 100], odd).unwrap();
        reader.read_exact_at(&mut bytes, odd).unwrap();
        assert_eq!(bytes, [n as u8; 100], "piece {n}");
        assert_eq!(reader.metadata().unwrap().len(), odd + 100);
        odd += 100;
    }
    let map = Map::for_reading(&reader, odd as usize).unwrap();
    writer.write_all_at(&[9; 8], 4096).unwrap();
    assert_eq!(map.load(4096), u64::from_ne_bytes([9; 8]));
    drop((map, writer, reader));
    assert!(reads_of(&space, || assert_eq!(fs::read(&path).unwrap().len() as u64, odd)) == 0);
    space.down_and_check();
}

fn reads_of(space: &Space, work: impl FnOnce()) -> u64 {
    let status = || ullage(["status".as_ref(), space.mount.as_os_str(), "--json".as_ref()]).json();
    let count = || status()["messages"]["READ"].as_u64().unwrap_or(0);
    let before = count();
    work();
    count() - before
}

/// Every handle of a file that is written through one that can only write, while limits hold for all of them.
#[test]
fn many_handles_of_one_file_stop_at_the_limit() {
    for below in Below::all() {
        let space = below.space();
        let dir = limited(&space, "box", ROOM);
        let path = dir.join("file");
        let start = File::create(&path).unwrap();
        let reader = File::open(&path).unwrap();
        // Who comes when the others have left little room gets none for the holes between theirs.
        let all_are_there = Barrier::new(8);
        std::thread::scope(|scope| {
            for n in 0..8u64 {
                let (path, all_are_there) = (&path, &all_are_there);
                scope.spawn(move || {
                    let file = if n % 2 == 0 { both(path) } else { OpenOptions::new().write(true).open(path) };
                    // Also who is refused, so that the others go on.
                    all_are_there.wait();
                    let file = file.unwrap();
                    super::bed::until_full(|m| file.write_all_at(&[n as u8; 4096], (m * 8 + n) * 4096));
                });
            }
        });
        drop((start, reader));
        // Threads wait for each other's blocks: some find the limit a few blocks early.
        assert_filled(&dir, ROOM, below.slack() + 16 * 4096, &format!("{below:?}"));
        space.compare_du(&space.mount);
        space.down_and_check();
    }
}

/// What is held for a mapping was given back two seconds after the last handle: others were refused meanwhile.
#[test]
fn what_was_held_for_a_mapping_that_is_gone_is_there_for_who_comes_next() {
    for below in [Below::Ext4, Below::Xfs] {
        let space = below.space();
        // A machine that is too busy to come back in time says nothing.
        let told = (0..8).any(|n| comes_soon_and_finds_room(&space, below, &format!("box{n}")));
        assert!(told, "{below:?}: whoever comes waits");
        space.compare_du(&space.mount);
        space.down_and_check();
    }
}

/// Whether it took less time than what is held is held in any case.
fn comes_soon_and_finds_room(space: &Space, below: Below, name: &str) -> bool {
    let dir = limited(space, name, 64 * ROOM);
    let path = dir.join("file");
    hollow(&path, 32 * ROOM);
    let reader = File::open(&path).unwrap();
    let file = both(&path).unwrap();
    let map = Map::new(&file, 4096).unwrap();
    let filled = used(&dir);
    assert!(filled >= 32 * ROOM, "{below:?}: it was given its blocks");
    let other = File::create(dir.join("other")).unwrap();
    let piece = vec![1; ROOM as usize / 16];
    let kept = super::bed::until_full(|n| other.write_all_at(&piece, n * piece.len() as u64));
    drop((map, file, reader));
    let began = std::time::Instant::now();
    let all = super::bed::until_full(|n| other.write_all_at(&piece, n * piece.len() as u64));
    let soon = began.elapsed() < Duration::from_millis(1500);
    assert!(all > kept, "{below:?}: refused after {all} pieces while nothing is mapped, {kept} before");
    let left = 64 * ROOM - used(&dir);
    assert!(left < ROOM / 16 + below.slack(), "{below:?}: refused with {left} bytes left");
    drop(other);
    fs::remove_dir_all(&dir).unwrap();
    soon
}

/// Regression: what it would have left empty had got its blocks by then, which took all there was, and made the file longer on tmpfs.
#[test]
fn a_write_beside_a_reader_that_is_refused_leaves_what_lies_before_it() {
    // Elsewhere what is kept for the map may be refused once that has its blocks.
    for below in [Below::Tmpfs, Below::Btrfs].into_iter().filter(|below| below.is_had()) {
        let space = below.space();
        let dir = limited(&space, "box", ROOM);
        let path = dir.join("file");
        fs::write(&path, [1; 8192]).unwrap();
        let kernel = in_kernel(below, &path);
        let file = both(&path).unwrap();
        let before = counted(&dir).bytes;
        // As much is left as lies before it; then a block more.
        for at in (0..2).map(|n| ROOM + 4096 - before + 8192 - n * 4096) {
            let outcome = file.write_at(&[2; 4096], at);
            let now = file.metadata().unwrap();
            if outcome.is_ok() {
                assert!(now.len() > at, "{below:?}, at {at}");
                break;
            }
            assert!(is_full(&outcome), "{below:?}: {outcome:?}");
            assert_eq!((now.len(), counted(&dir).bytes), (8192, before), "{below:?}, at {at}");
        }
        drop((file, kernel));
        assert_filled(&dir, ROOM, 0, &format!("{below:?}"));
        space.down_and_check();
    }
}
