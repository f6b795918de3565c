//! Files that are mapped since before a limit bounded them, or since before the daemon was killed: they go on being written in the kernel.

use super::bed::{Below, in_pool, is_full, limit, limited, set};
use super::lend::spacious;
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, fallocate, linkat};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use ullage_mount_tests::map::Map;
use ullage_mount_tests::recount::counted;
use ullage_mount_tests::run::{LIMIT, eventually};
use ullage_mount_tests::space::Space;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// So many stores at least.
const ENOUGH: u64 = 2000;

fn both(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// A directory without a limit, and a file of so many bytes in it that is mapped and that nobody has open any more.
fn mapped(space: &Space, bytes: u64) -> (PathBuf, PathBuf, Map) {
    let dir = space.path("box");
    fs::create_dir(&dir).unwrap();
    let path = dir.join("file");
    let file = both(&path);
    fallocate(&file, FallocateFlags::empty(), 0, bytes).unwrap();
    file.sync_all().unwrap();
    let map = Map::new(&file, bytes as usize).unwrap();
    (dir, path, map)
}

/// Stores into page after page all over the mapping while `work` is done, and looks whether all of that is there afterwards.
#[track_caller]
fn stores_beside(map: &mut Map, bytes: u64, work: impl FnOnce()) {
    let pages = bytes / PAGE;
    let over = AtomicBool::new(false);
    let stored = std::thread::scope(|scope| {
        let stores = scope.spawn(|| {
            let mut stored = 0;
            while stored < pages && !(over.load(Relaxed) && stored >= ENOUGH) {
                // Pages that jump about, each of them once.
                map.store((stored * 7919 % pages * PAGE) as usize, stored + 1);
                stored += 1;
                if stored % 32 == 0 {
                    std::thread::sleep(Duration::from_micros(100));
                }
            }
            stored
        });
        work();
        over.store(true, Relaxed);
        stores.join().unwrap()
    });
    let lost = (0..stored).filter(|n| map.load((n * 7919 % pages * PAGE) as usize) != n + 1).count();
    assert_eq!(lost, 0, "of {stored} pages that were stored into so many are lost");
}

/// The last one of a handle may be on its way.
fn settles() {
    std::thread::sleep(Duration::from_millis(50));
}

/// A handle that came after the limit had pages of its own: neither saw what the other wrote, and who wrote last took the other's away.
#[test]
fn a_mapping_from_before_a_limit_and_a_handle_of_after_it_show_the_same() {
    for below in Below::all() {
        let space = below.space();
        if !space.uses_passthrough() {
            return;
        }
        let (dir, path, mut map) = mapped(&space, MIB);
        settles();
        let told = set(&["16M", "--json"], &dir).json();
        assert_eq!(told["unbound"], 1, "{below:?}: {told}");
        for round in 0..2u64 {
            let file = both(&path);
            map.store(PAGE as usize, 7 + round);
            let mut bytes = [0; 8];
            file.read_exact_at(&mut bytes, PAGE).unwrap();
            assert_eq!(u64::from_ne_bytes(bytes), 7 + round, "{below:?}: a store is read");
            file.write_all_at(&(70 + round).to_ne_bytes(), PAGE).unwrap();
            assert_eq!(map.load(PAGE as usize), 70 + round, "{below:?}: a write is mapped");
            let mut later = Map::new(&file, MIB as usize).unwrap();
            later.store(2 * PAGE as usize, 8 + round);
            assert_eq!(map.load(2 * PAGE as usize), 8 + round, "{below:?}: a store into another mapping");
            map.store(2 * PAGE as usize + 8, 9 + round);
            later.sync().unwrap();
            assert_eq!(map.load(2 * PAGE as usize + 8), 9 + round, "{below:?}: what the other mapping wrote back");
        }
        // It goes on being written unseen, whoever came since.
        let other = limited(&space, "other", 16 * MIB);
        let file = both(&path);
        let moved = fs::rename(&path, other.join("file")).map_err(|error| error.raw_os_error());
        assert_eq!(moved, Err(Some(libc::EXDEV)), "{below:?}");
        drop((map, file));
        // Then a limit bounds it as any other.
        eventually("nobody has it mapped", LIMIT, || {
            settles();
            fs::rename(&path, other.join("file")).is_ok()
        });
        limit(&["64K"], &other);
        let file = both(&other.join("file"));
        assert!(file.write_all_at(&[1; 4096], 32 * MIB).is_err(), "{below:?}");
        drop(file);
        space.compare_du(&space.mount);
        space.down_and_check();
    }
}

/// Nobody writes to it any more, and somebody reads it: it was taken for one that is written since before the limit.
#[test]
fn who_only_reads_a_file_that_was_written_before_a_limit_leaves_it_bound() {
    for below in Below::all() {
        let space = below.space();
        if !space.uses_passthrough() {
            return;
        }
        let dir = space.path("box");
        fs::create_dir(&dir).unwrap();
        let path = dir.join("file");
        let writer = both(&path);
        writer.set_len(MIB / 2).unwrap();
        writer.write_all_at(&[1; 4096], 0).unwrap();
        let reader = File::open(&path).unwrap();
        limit(&["1M"], &dir);
        drop(writer);
        let seen = Map::for_reading(&reader, MIB as usize / 2).unwrap();
        drop(reader);
        settles();
        let file = both(&path);
        let mut map = Map::new(&file, MIB as usize / 2).unwrap();
        (0..MIB / 2).step_by(4096).for_each(|at| map.store(at as usize, 3));
        assert_eq!(seen.load(4096), 3, "{below:?}");
        assert!(counted(&dir).bytes > MIB / 2, "{below:?}: its holes were filled before");
        assert!(file.set_len(8 * MIB).is_err(), "{below:?}");
        drop((map, seen, file));
        space.compare_du(&space.mount);
        space.down_and_check();
    }
}

/// What had been allocated was filled with zeros at the limit, and what others stored there meanwhile was gone.
#[test]
fn what_is_stored_since_before_a_limit_outlives_writes_at_the_limit() {
    const SIZE: u64 = 160 * MIB;
    let space = Below::Ext4.space();
    if !space.uses_passthrough() {
        return;
    }
    let (dir, path, mut map) = mapped(&space, SIZE);
    settles();
    limit(&[&format!("{}B", counted(&dir).bytes)], &dir);
    let writer = both(&path);
    stores_beside(&mut map, SIZE, || {
        for n in 0..20 {
            // The limit may refuse what needs a larger map.
            let _ = writer.write_all_at(&[0xff; 8], (SIZE / 40) * (2 * n + 1) + 2048);
        }
    });
    drop((writer, map));
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// It was not known of such a file that others write to it: it was filled with zeros, `ullage limit` said that there is none, and it was
/// moved below a limit.
#[test]
fn what_is_stored_since_before_a_kill_outlives_writes_at_a_limit() {
    const SIZE: u64 = 160 * MIB;
    let space = Below::Ext4.space();
    if !space.uses_passthrough() {
        return;
    }
    let (dir, path, mut map) = mapped(&space, SIZE);
    space.sync();
    space.kill();
    space.up();
    let told = set(&[&format!("{}B", counted(&dir).bytes), "--json"], &dir).json();
    assert_eq!(told["unbound"], 1, "{told}");
    let other = limited(&space, "other", 200 * MIB);
    let moved = fs::rename(&path, other.join("file")).map_err(|error| error.raw_os_error());
    assert_eq!(moved, Err(Some(libc::EXDEV)));
    for writes in [OpenOptions::new().write(true), OpenOptions::new().read(true).write(true)] {
        let writer = writes.open(&path).unwrap();
        stores_beside(&mut map, SIZE, || {
            for n in 0..20 {
                let _ = writer.write_all_at(&[0xff; 8], (SIZE / 40) * (2 * n + 1) + 2048);
            }
        });
        drop(writer);
        settles();
    }
    drop(map);
    eventually("nobody has it mapped", LIMIT, || {
        settles();
        fs::rename(&path, other.join("file")).is_ok()
    });
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// Of such a file it was not known how large its blocks are before it was measured, and the first write to it ended the mount.
#[test]
fn who_writes_right_after_a_kill_to_what_others_still_have_mapped_is_counted() {
    let space = Below::Ext4.space();
    if !space.uses_passthrough() {
        return;
    }
    let (dir, path, map) = mapped(&space, MIB);
    limit(&["8M"], &dir);
    let pid = space.pid();
    space.sync();
    space.kill();
    space.up();
    assert_ne!(space.pid(), pid);
    let restarted = space.pid();
    let writer = OpenOptions::new().write(true).open(&path).unwrap();
    writer.write_all_at(&vec![1; 65536], 2 * MIB).unwrap();
    assert_eq!(space.pid(), restarted);
    assert!(path.metadata().unwrap().blocks() * 512 >= MIB + 65536);
    assert!(in_pool(&space) <= 8 * MIB);
    drop((writer, map));
    space.compare_du(&space.mount);
    space.down_and_check();
}

static PIECE: [u8; 65536] = [1; 65536];

/// What is left when much of it was taken at once, and the whole limit.
const ROOM: u64 = 16 * MIB;
const ALL: u64 = 8 << 30;

/// Who has a file open since before a limit bounds it, and has not written for a while, is looked at seldom where much is left: he stops at it also
/// where another takes all but a little of that at once.
#[track_caller]
fn stops_after(file: &mut File, bounds: impl FnOnce(), takes: impl FnOnce() -> File) {
    file.write_all(&[1; 4096]).unwrap();
    bounds();
    std::thread::sleep(Duration::from_secs(1));
    let other = takes();
    let outcome = (0..2 * ROOM / 65536).try_for_each(|_| file.write_all(&PIECE));
    // What xfs allocates ahead of it goes when it is closed.
    let taken = file.metadata().unwrap().len() + other.metadata().unwrap().blocks() * 512;
    assert!(taken <= ALL, "{} bytes past the limit ({outcome:?})", taken - ALL);
    assert!(is_full(&outcome), "{outcome:?}");
}

#[test]
fn who_rests_since_before_a_limit_stops_at_it_when_another_allocates_what_is_left() {
    let space = spacious(Below::Xfs);
    for _ in 0..5 {
        let dir = space.path("box");
        fs::create_dir(&dir).unwrap();
        let bounds = || limit(&[&format!("{}B", ALL + PAGE)], &dir);
        stops_after(&mut File::create(dir.join("file")).unwrap(), bounds, || {
            let other = both(&dir.join("other"));
            // Beside each piece there has to be room for its map.
            let rest = 512 * MIB;
            fallocate(&other, FallocateFlags::empty(), 0, ALL - rest).unwrap();
            fallocate(&other, FallocateFlags::empty(), ALL - rest, rest - ROOM).unwrap();
            other
        });
        fs::remove_dir_all(&dir).unwrap();
    }
    space.down_and_check();
}

/// A file of nearly as much as a limit, which none bounds yet.
fn large(space: &Space) -> PathBuf {
    let path = space.path("large");
    fallocate(both(&path), FallocateFlags::empty(), 0, ALL - ROOM).unwrap();
    path
}

#[test]
fn who_rests_since_before_a_limit_stops_at_it_when_another_moves_a_large_file_there() {
    let space = spacious(Below::Xfs);
    for _ in 0..5 {
        let dir = space.path("box");
        fs::create_dir(&dir).unwrap();
        let large = large(&space);
        let bounds = || limit(&[&format!("{}B", ALL + PAGE)], &dir);
        stops_after(&mut File::create(dir.join("file")).unwrap(), bounds, || {
            fs::rename(&large, dir.join("large")).unwrap();
            File::open(dir.join("large")).unwrap()
        });
        fs::remove_dir_all(&dir).unwrap();
    }
    space.down_and_check();
}

#[test]
fn who_rests_since_before_a_limit_stops_at_it_when_another_gives_a_large_file_its_first_name_there() {
    let space = spacious(Below::Xfs);
    let wide = space.path("wide");
    fs::create_dir(&wide).unwrap();
    limit(&["64G"], &wide);
    let unnamed = OFlags::TMPFILE | OFlags::WRONLY;
    for _ in 0..5 {
        let dir = space.path("box");
        fs::create_dir(&dir).unwrap();
        let file = rustix::fs::open(&wide, unnamed, Mode::from_raw_mode(0o600)).unwrap();
        fallocate(&file, FallocateFlags::empty(), 0, ALL - ROOM).unwrap();
        let itself = |file: &dyn AsRawFd| format!("/proc/self/fd/{}", file.as_raw_fd());
        let reader = File::open(itself(&file)).unwrap();
        drop(file);
        let bounds = || limit(&[&format!("{}B", ALL + PAGE)], &dir);
        stops_after(&mut File::create(dir.join("file")).unwrap(), bounds, || {
            linkat(CWD, itself(&reader), CWD, dir.join("large"), AtFlags::SYMLINK_FOLLOW).unwrap();
            reader
        });
        fs::remove_dir_all(&dir).unwrap();
    }
    space.down_and_check();
}

#[test]
fn who_rests_since_before_a_limit_stops_at_it_when_a_large_file_is_given_to_him() {
    const USER: u32 = 4711;
    let space = spacious(Below::Xfs);
    for _ in 0..5 {
        let path = space.path("file");
        let mut file = File::create(&path).unwrap();
        chown(&path, Some(USER), None).unwrap();
        let large = large(&space);
        let bounds = || limit(&["--user", &USER.to_string(), &format!("{ALL}B")], &space.mount);
        stops_after(&mut file, bounds, || {
            chown(&large, Some(USER), None).unwrap();
            File::open(&large).unwrap()
        });
        drop(file);
        limit(&["--user", &USER.to_string(), "none"], &space.mount);
        fs::remove_file(&large).unwrap();
        fs::remove_file(&path).unwrap();
    }
    space.down_and_check();
}

/// Who is looked at before something is taken may be who takes it: the kernel has his file locked for that.
#[test]
fn who_takes_much_for_a_file_from_before_a_limit_does_not_wait_for_himself() {
    let space = spacious(Below::Ext4);
    let dir = space.path("box");
    fs::create_dir(&dir).unwrap();
    let mut file = File::create(dir.join("file")).unwrap();
    file.write_all(&[1; 4096]).unwrap();
    limit(&["2G"], &dir);
    let began = std::time::Instant::now();
    for n in 0..10 {
        fallocate(&file, FallocateFlags::empty(), n * 100 * MIB, 100 * MIB).unwrap();
    }
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    drop(file);
    space.down_and_check();
}

/// How many pages are written in a moment, over and over the same ones, while something is done again and again.
fn written_beside(file: &File, beside: impl Fn() + Sync) -> u64 {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                beside();
            }
        });
        let until = std::time::Instant::now() + Duration::from_millis(700);
        let mut written = 0;
        while std::time::Instant::now() < until {
            file.write_all_at(&PIECE[..4096], written % 2000 * PAGE).unwrap();
            written += 1;
        }
        over.store(true, Relaxed);
        written
    })
}

/// What nobody can have was counted as if he took it, and what takes nothing as if it took all that it is about: all that is watched was looked at,
/// and asked before each write, again and again.
#[test]
fn who_takes_nothing_slows_nobody_who_writes_since_before_a_limit() {
    let space = spacious(Below::Ext4);
    if !space.uses_passthrough() {
        return;
    }
    let [mine, other] = ["mine", "other"].map(|name| space.path(name));
    let tree = mine.join("tree");
    for directory in [&mine, &other, &tree] {
        fs::create_dir(directory).unwrap();
    }
    let file = File::create(mine.join("file")).unwrap();
    file.write_all_at(&PIECE, 2000 * PAGE).unwrap();
    fallocate(both(&tree.join("large")), FallocateFlags::empty(), 0, 400 * MIB).unwrap();
    limit(&["900M"], &mine);
    limit(&["1M"], &other);
    let refused = both(&other.join("refused"));
    let (from, to) = (tree.join("large"), mine.join("large"));
    let compared = || {
        let usual = written_beside(&file, || drop(fs::metadata(&other)));
        let ways: [(&str, &(dyn Fn() + Sync)); 3] = [
            ("an allocation that is refused", &|| {
                assert!(fallocate(&refused, FallocateFlags::empty(), 0, 1 << 42).is_err());
            }),
            ("its owner again", &|| chown(&tree, Some(0), Some(0)).unwrap()),
            ("a move below one limit", &|| {
                fs::rename(&from, &to).unwrap();
                fs::rename(&to, &from).unwrap();
            }),
        ];
        let slow = ways.into_iter().map(|(way, does)| (way, written_beside(&file, does)));
        slow.filter(|(_, written)| written * 10 < usual).map(|slow| (slow, usual)).collect::<Vec<_>>()
    };
    let slow = (0..3).map(|_| compared()).find(Vec::is_empty);
    assert!(slow.is_some(), "{:?}", compared());
    drop((file, refused));
    space.down_and_check();
}
