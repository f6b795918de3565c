//! Files below a limit whose writes take blocks when they are written out: what is held for them, and who waits for that.

use super::bed::{Below, in_pool, is_full, limit, limited, until_full};
use super::lend::{GIB, held, lending, lent, spacious};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, fallocate};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, chown};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;
use ullage_mount_tests::crash::cache::CachingDisk;
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::map::Map;
use ullage_mount_tests::run::eventually;
use ullage_mount_tests::space::Space;

const MIB: u64 = 1 << 20;

fn both(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// A worker had the file's lock as long as the disk took, and who looked the file up waited for it on the thread that answers everybody.
#[test]
fn nobody_waits_for_a_file_that_is_being_written_out() {
    let mut ground = Ground::new();
    let (disk, pool) = CachingDisk::mounted(&mut ground, 256, "mkfs.ext4", &["-q", "-F"]);
    let state = ground.directory("plain").join("state");
    let mut space = Space::on(ground, &pool);
    space.state = state;
    space.up();
    let dir = limited(&space, "dir", 100 * MIB);
    let path = dir.join("file");
    let file = both(&path);
    fallocate(&file, FallocateFlags::empty(), 0, 8 * MIB).unwrap();
    file.sync_all().unwrap();
    file.write_all_at(&vec![1; MIB as usize], 0).unwrap();
    std::thread::scope(|scope| {
        let hanging = disk.hang();
        scope.spawn(|| fallocate(&file, FallocateFlags::KEEP_SIZE, 16 * MIB, MIB).unwrap());
        std::thread::sleep(Duration::from_millis(500));
        let (told, tells) = mpsc::channel();
        for n in 0..8 {
            let (told, path, other) = (told.clone(), path.clone(), dir.join(format!("other{n}")));
            std::thread::spawn(move || {
                let length = path.metadata().map(|meta| meta.len());
                let other = other.symlink_metadata().map_err(|error| error.kind());
                told.send((length.ok(), other.map(drop))).unwrap();
            });
        }
        for _ in 0..8 {
            let answer = tells.recv_timeout(Duration::from_secs(20)).expect("somebody waits for the disk");
            assert_eq!(answer, (Some(8 * MIB), Err(std::io::ErrorKind::NotFound)));
        }
        drop(hanging);
    });
    drop(file);
    space.down_and_check();
}

/// What its holes were filled with when it came to be mapped was taken for written once nobody had it open.
#[test]
fn what_a_mapping_needed_and_nobody_wrote_grows_no_map_past_the_limit() {
    const SIZE: u64 = 64 * MIB;
    let space = Below::Ext4.space();
    let dir = limited(&space, "dir", SIZE + 3 * MIB);
    let path = dir.join("file");
    File::create(&path).and_then(|file| file.set_len(SIZE)).unwrap();
    let reader = File::open(&path).unwrap();
    drop((both(&path), reader));
    std::thread::sleep(Duration::from_millis(300));
    let mut other = File::create(dir.join("other")).unwrap();
    let refused = fallocate(&other, FallocateFlags::empty(), 0, 100 * MIB).map_err(std::io::Error::from);
    assert!(is_full(&refused), "{refused:?}");
    let file = both(&path);
    for at in (0..SIZE).step_by(8192) {
        file.write_all_at(&[1; 4096], at).unwrap();
    }
    let piece = vec![2; 65536];
    until_full(|_| other.write_all(&piece));
    until_full(|_| other.write_all(&[2; 4096]));
    rustix::fs::sync();
    let used = in_pool(&space);
    assert!(used <= SIZE + 3 * MIB, "{} bytes past the limit", used.saturating_sub(SIZE + 3 * MIB));
    drop((file, other));
    space.down_and_check();
}

/// xfs gives nothing where less is free than a file is long, though all of it is there: what the file might owe for its map stayed held.
#[test]
fn what_a_file_owed_is_given_back_on_a_disk_that_is_nearly_full() {
    let mut ground = Ground::new();
    let pool = ground.xfs("disk", 1024);
    let state = ground.directory("plain").join("state");
    let mut space = Space::on(ground, &pool);
    space.state = state;
    space.up();
    let dir = lending(&space, "dir", 8 * GIB);
    let mut file = lent(&dir.join("file"));
    let piece = vec![1; MIB as usize];
    (0..560).for_each(|_| file.write_all(&piece).unwrap());
    drop(file);
    eventually("nothing is held", Duration::from_secs(30), || held(&space) == 0);
    space.down_and_check();
}

/// What was set aside for writes stayed so until the file was closed, and each fdatasync(2) took the long way.
#[test]
fn nothing_is_set_aside_for_what_was_synced() {
    for below in [Below::Ext4, Below::Xfs] {
        let space = below.space();
        let file = both(&limited(&space, "dir", 100 * MIB).join("file"));
        fallocate(&file, FallocateFlags::empty(), 0, MIB).unwrap();
        for at in [0, 65536, 131_072] {
            file.write_all_at(&[1; 4096], at).unwrap();
            file.sync_data().unwrap();
            assert_eq!(held(&space), 0, "{below:?}");
        }
        drop(file);
        space.down_and_check();
    }
}

/// The kernel forgot the directory, and with it what was held for the file; to let go of that ended the mount.
#[test]
fn what_is_held_for_a_file_outlives_its_directory_in_memory() {
    let space = Below::Ext4.space();
    let dir = limited(&space, "dir", 2 * GIB);
    let below = dir.join("below");
    fs::create_dir(&below).unwrap();
    let path = below.join("file");
    let file = both(&path);
    fallocate(&file, FallocateFlags::empty(), 0, 20 * MIB).unwrap();
    for n in 0..200 {
        file.write_all_at(&[1; 4096], n * 65536).unwrap();
    }
    drop(file);
    for _ in 0..30 {
        fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
        space.sync();
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(path.metadata().unwrap().len(), 20 * MIB);
    eventually("nothing is held", Duration::from_secs(10), || held(&space) == 0);
    space.down_and_check();
}

/// It was written to the disk as a whole every two seconds as long as it was mapped, also where nothing is limited.
#[test]
fn a_closed_file_that_is_mapped_is_not_written_out_again_and_again() {
    const SIZE: usize = 16 << 20;
    let space = Below::Ext4.space();
    let path = space.path("file");
    let file = both(&path);
    fallocate(&file, FallocateFlags::empty(), 0, 80 * MIB).unwrap();
    file.sync_all().unwrap();
    let mut map = Map::new(&file, SIZE).unwrap();
    drop(file);
    let device = space.pool().metadata().unwrap().dev();
    let counters = format!("/sys/dev/block/{}:{}/stat", rustix::fs::major(device), rustix::fs::minor(device));
    let written = || {
        let text = fs::read_to_string(&counters).unwrap();
        text.split_whitespace().nth(6).unwrap().parse::<u64>().unwrap() * 512
    };
    // Whoever calls sync(2) meanwhile has all written, too: one time without is enough.
    let quiet = (0..8).any(|round| {
        let before = written();
        for n in 0..9 {
            (0..SIZE).step_by(4096).for_each(|at| map.store(at, round * 9 + n));
            std::thread::sleep(Duration::from_millis(300));
        }
        written() - before < SIZE as u64 / 4
    });
    assert!(quiet, "it is written every time");
    drop(map);
    space.down_and_check();
}

/// What is held for the map of a file while its data is written out came along, and was no more than its old limit had: there was no room for it
/// under the new one.
#[test]
fn what_comes_under_another_limit_brings_no_more_than_it_has() {
    const USER: u32 = 4712;
    for below in [Below::Ext4, Below::Xfs] {
        let space = spacious(below);
        let from = limited(&space, "from", 8 * GIB);
        let file = |way: &str| {
            let path = from.join(way);
            fallocate(both(&path), FallocateFlags::empty(), 0, GIB).unwrap();
            path
        };
        let bytes = file("first").metadata().unwrap().blocks() * 512 + 65536;
        let to = |name: &str| limited(&space, name, bytes);
        fs::rename(from.join("first"), to("by itself").join("file")).unwrap();

        let tree = from.join("tree");
        fs::create_dir_all(tree.join("deep")).unwrap();
        fs::rename(file("second"), tree.join("deep/file")).unwrap();
        fs::rename(&tree, to("in a directory").join("tree")).unwrap();

        let other = to("exchanged").join("file");
        File::create(&other).unwrap();
        rustix::fs::renameat_with(CWD, file("third"), CWD, &other, RenameFlags::EXCHANGE).unwrap();

        let unnamed = rustix::fs::open(&from, OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR).unwrap();
        fallocate(&unnamed, FallocateFlags::empty(), 0, GIB).unwrap();
        let itself = format!("/proc/self/fd/{}", unnamed.as_raw_fd());
        rustix::fs::linkat(CWD, itself, CWD, to("by its first name").join("file"), AtFlags::SYMLINK_FOLLOW).unwrap();
        drop(unnamed);

        limit(&["--user", &USER.to_string(), &format!("{bytes}B")], &space.mount);
        chown(file("fourth"), Some(USER), None).unwrap();
        space.compare_du(&space.mount);
        space.down_and_check();
    }
}
