//! Every way in which a file grows, up to the limit of its directory and of its owner.

use super::bed::{Below, assert_filled, in_files, in_pool, is_full, limit, limited, until_full};
use rustix::fs::{FallocateFlags, copy_file_range, fallocate, sendfile};
use rustix::pipe::{SpliceFlags, splice};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use ullage_mount_tests::ground::listing;
use ullage_mount_tests::map::Map;
use ullage_mount_tests::recount::counted;
use ullage_mount_tests::run::{LIMIT, eventually};
use ullage_mount_tests::space::Space;
use ullage_mount_tests::{ring_write, write_as_32_bit_program};

const ROOM: u64 = 1 << 20;
const OWNER: u32 = 4242;

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn short(count: usize, wanted: usize) -> io::Result<()> {
    if count < wanted { Err(io::Error::from_raw_os_error(libc::ENOSPC)) } else { Ok(()) }
}

pub type Way = (&'static str, fn(&File, &File));

/// Each grows one file until it is refused. The second file has plenty of data and no limit.
pub const WAYS: [Way; 14] = [
    ("write", |file, _| {
        until_full(|n| file.write_all_at(&[1; 4096], n * 4096));
    }),
    ("odd pwrite", |file, _| {
        until_full(|n| file.write_all_at(&[2; 70_001], n * 70_001));
    }),
    ("32-bit pwrite", |file, _| {
        let data = vec![3; 100_000];
        until_full(|n| short(write_as_32_bit_program(file, &data, n * 100_000)?, data.len()));
        until_full(|n| write_as_32_bit_program(file, &[4; 4096], 2 * ROOM + n * 4096).map(drop));
    }),
    ("append", |file, _| {
        let mut file = OpenOptions::new().append(true).open(format!("/proc/self/fd/{}", fd(file))).unwrap();
        until_full(|_| file.write_all(&[3; 5000]));
    }),
    ("direct", |file, _| {
        let page = Box::new(Page([4; 8192]));
        let file = direct(file);
        until_full(|n| file.write_all_at(&page.0, n * 8192));
        // The last block, where one is left.
        let _ = file.write_all_at(&page.0[..4096], ROOM);
    }),
    ("truncate up, then fill", |file, _| {
        let downwards = extended(file, 4 * ROOM);
        until_full(|n| file.write_all_at(&[5; 16384], if downwards { 3 * ROOM - n * 16384 } else { n * 16384 }));
    }),
    ("every other hole", |file, _| {
        let step = if extended(file, 8 * ROOM) { 8192 } else { 4096 };
        until_full(|n| file.write_all_at(&[6], n * step));
    }),
    ("fallocate", |file, _| {
        until_full(|n| Ok(fallocate(file, FallocateFlags::empty(), n * 65536, 65536)?));
        until_full(|n| Ok(fallocate(file, FallocateFlags::KEEP_SIZE, 32 * ROOM + n * 4096, 4096)?));
    }),
    ("zero range", |file, _| {
        let step = |n: u64| Ok(fallocate(file, FallocateFlags::ZERO_RANGE, n * 16384, 16384)?);
        if step(0).is_err_and(|error: io::Error| error.raw_os_error() == Some(libc::EOPNOTSUPP)) {
            until_full(|n| file.write_all_at(&[6; 16384], n * 16384));
        } else {
            until_full(step);
        }
        until_full(|n| file.write_all_at(&[7; 4096], 32 * ROOM + n * 4096));
    }),
    ("copy_file_range", |file, source| {
        until_full(|n| {
            let (mut from, mut to) = (0, n * 65536);
            let count = copy_file_range(source, Some(&mut from), file, Some(&mut to), 65536)?;
            short(count, 65536)
        });
    }),
    ("sendfile", |file, source| {
        until_full(|_| {
            let mut from = 0;
            short(sendfile(file, source, Some(&mut from), 65536)?, 65536)
        });
    }),
    ("splice", |file, _| {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        until_full(|_| {
            let mut left = rustix::io::write(&writer, &[8; 16384])?;
            while left > 0 {
                left -= splice(&reader, None, file, None, left, SpliceFlags::empty())?;
            }
            Ok(())
        });
    }),
    ("io_uring", |file, _| {
        until_full(|n| short(ring_write(file, &[9; 32768], n * 32768)?, 32768));
    }),
    // A short count of this kind was an I/O error.
    ("direct io_uring", |file, _| {
        let page = Box::new(Page([4; 8192]));
        let file = direct(file);
        file.write_all_at(&page.0[..4096], 0).unwrap();
        until_full(|n| short(ring_write(&file, &page.0, 4096 + n * 8192)?, 8192));
    }),
];

#[repr(align(4096))]
struct Page([u8; 8192]);

fn direct(file: &File) -> File {
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(libc::O_DIRECT);
    options.open(format!("/proc/self/fd/{}", fd(file))).unwrap()
}

/// Whether a file could be made so long, all hole. One that may be mapped in the kernel takes its blocks for it.
fn extended(file: &File, bytes: u64) -> bool {
    let outcome = file.set_len(bytes);
    assert!(outcome.is_ok() || is_full(&outcome), "{outcome:?}");
    outcome.is_ok()
}

type Opening = fn(&Path) -> (File, Option<File>);

/// How the file is open that grows: its pages are the server's, it is written here and read in the kernel, or it may be mapped there.
const OPENINGS: [(&str, Opening); 3] = [
    ("for both", |path| (open(path), None)),
    ("for writing", |path| (OpenOptions::new().write(true).create(true).truncate(false).open(path).unwrap(), None)),
    ("beside a reader", |path| {
        drop(open(path));
        let reader = File::open(path).unwrap();
        (open(path), Some(reader))
    }),
];

fn fd(file: &File) -> i32 {
    std::os::fd::AsRawFd::as_raw_fd(file)
}

/// A file outside every limit, and one of the owner in a limited place.
pub fn source(space: &Space) -> File {
    let source = open(&space.path("source"));
    source.write_all_at(&vec![7; 4 << 20], 0).unwrap();
    source
}

fn every_way(below: Below) {
    let mut space = below.space();
    space.limit(std::time::Duration::from_secs(200));
    let source = source(&space);
    for ((how, way), (manner, opening)) in WAYS.iter().flat_map(|way| OPENINGS.map(|opening| (*way, opening))) {
        let how = &format!("{how} {manner}");
        let dir = limited(&space, how, ROOM);
        let path = dir.join("file");
        let (file, reader) = opening(&path);
        way(&file, &source);
        // What a mapping may add to the file's map is held back.
        let map = if reader.is_some() && below.slack() > 0 { (ROOM / 4096 / 32 + 8) * 4096 } else { 0 };
        let slack = below.slack() + map + 4096;
        assert_filled(&dir, ROOM, slack, how);
        drop((file, reader));
        // What is there can be written again, and what is taken away can be filled again.
        let file = open(&path);
        file.set_len(ROOM / 4).unwrap();
        let again = until_full(|n| file.write_all_at(&[1; 4096], ROOM / 4 + n * 4096));
        assert!(again * 4096 + ROOM / 16 >= ROOM / 2, "{how}: only {again} blocks after truncation");
        drop(file);
        assert_filled(&dir, ROOM, slack, how);
    }
    mapped(below, &space);
    moved(below, &space);
    owned(below, &space);
    drop(source);
    space.compare_du(&space.mount);
    // All files are settled before the last of what was written to them is on the disk.
    std::thread::sleep(std::time::Duration::from_secs(5));
    rustix::fs::sync();
    space.sync();
    eventually("what is charged is what the pool has", LIMIT, || in_pool(&space) == in_files(&space));
    space.down_and_check();
}

/// Stores into a mapping are refused where they are written back.
fn mapped(below: Below, space: &Space) {
    let dir = limited(space, "mapped", ROOM);
    let file = open(&dir.join("file"));
    file.set_len(4 * ROOM).unwrap();
    let mut map = Map::new(&file, 4 << 20).unwrap();
    for page in 0..1024 {
        map.store(page * 4096, 1);
    }
    let outcome = map.sync().and_then(|()| file.sync_all());
    assert!(outcome.is_err(), "what found no room is told");
    drop(map);
    drop(file);
    assert_filled(&dir, ROOM, below.slack() + 4096, "mapped");
}

/// Files that move in, and names and attributes that cost blocks.
fn moved(below: Below, space: &Space) {
    let dir = limited(space, "moved", ROOM);
    until_full(|n| {
        let name = space.path("outside");
        fs::write(&name, vec![1; 60_000])?;
        fs::rename(&name, dir.join(format!("file-{n}")))
    });
    fs::remove_file(space.path("outside")).unwrap();
    until_full(|n| fs::create_dir(dir.join(format!("dir-{n}"))));
    assert_filled(&dir, ROOM, 4095, "moved");
    assert!(is_full(&std::os::unix::fs::symlink("t".repeat(300), dir.join("long"))));
    std::os::unix::fs::symlink("short", dir.join("short")).unwrap();
    // Within the directory everything moves as before.
    fs::rename(dir.join("file-0"), dir.join("dir-0/file-0")).unwrap();
    let outside = fs::hard_link(dir.join("file-1"), space.path("link")).unwrap_err();
    assert_eq!(outside.raw_os_error(), Some(libc::EXDEV));
    fs::hard_link(dir.join("file-1"), dir.join("dir-0/link")).unwrap();
    let tree = fs::rename(dir.join("dir-0"), space.path("tree")).unwrap_err();
    assert_eq!(tree.raw_os_error(), Some(libc::EXDEV), "a name of a file with several would leave");
    fs::remove_file(dir.join("dir-0/link")).unwrap();
    fs::rename(dir.join("dir-0"), space.path("tree")).unwrap();
    fs::remove_dir_all(space.path("tree")).unwrap();
    let _ = below;
}

/// What a user may have, whoever writes it and whoever gives it.
fn owned(below: Below, space: &Space) {
    limit(&["--user", &OWNER.to_string(), "1M", "--inodes", "20"], &space.mount);
    let dir = space.path("owned");
    fs::create_dir(&dir).unwrap();
    let path = dir.join("file");
    let give = |path: &Path| std::os::unix::fs::chown(path, Some(OWNER), None);
    drop(open(&path));
    give(&path).unwrap();
    let file = open(&path);
    let wrote = until_full(|n| file.write_all_at(&[1; 4096], n * 4096)) * 4096;
    assert!(wrote <= ROOM && wrote + below.slack() >= ROOM, "{wrote}");
    assert_eq!(file.write_all_at(&[1; 4096], 64 << 20).unwrap_err().raw_os_error(), Some(libc::EDQUOT));
    fs::write(dir.join("gift"), vec![1; 60_000]).unwrap();
    assert_eq!(give(&dir.join("gift")).unwrap_err().raw_os_error(), Some(libc::EDQUOT));
    file.set_len(0).unwrap();
    give(&dir.join("gift")).unwrap();
    drop(file);
    let made = until_full(|n| {
        let path = dir.join(format!("small-{n}"));
        fs::write(&path, "")?;
        give(&path).inspect_err(|_| fs::remove_file(&path).unwrap())
    });
    assert_eq!(made, 18);
}

#[test]
fn no_way_to_grow_passes_a_limit_on_tmpfs() {
    every_way(Below::Tmpfs);
}

#[test]
fn no_way_to_grow_passes_a_limit_on_ext4() {
    every_way(Below::Ext4);
}

#[test]
fn no_way_to_grow_passes_a_limit_on_xfs() {
    every_way(Below::Xfs);
}

#[test]
fn no_way_to_grow_passes_a_limit_on_btrfs() {
    if Below::Btrfs.is_had() {
        every_way(Below::Btrfs);
    }
}

#[test]
fn what_was_allocated_can_be_written_at_the_limit() {
    for below in [Below::Tmpfs, Below::Ext4] {
        let space = below.space();
        let dir = limited(&space, "box", ROOM);
        let file = open(&dir.join("file"));
        let steps = until_full(|n| Ok(fallocate(&file, FallocateFlags::empty(), n * 4096, 4096)?));
        drop(file);
        let file = open(&dir.join("file"));
        for n in 0..steps {
            file.write_all_at(&[1; 4096], n * 4096).unwrap_or_else(|error| panic!("{below:?}, block {n}: {error}"));
        }
        assert_filled(&dir, ROOM, below.slack(), "allocated");
        drop(file);
        space.down_and_check();
    }
}

/// Where blocks are found later than the data is written, what is freed before that must stay free.
#[test]
fn what_is_freed_right_after_it_was_written_takes_no_room() {
    let space = Below::Ext4.space();
    let dir = limited(&space, "box", 16 << 20);
    let write = |name: &str| {
        let file = open(&dir.join(name));
        for n in 0..256 {
            file.write_all_at(&[1; 4096], n * 4096).unwrap();
        }
        file
    };
    let used = |file: &File| file.metadata().unwrap().blocks() * 512;
    let punched = write("punched");
    fallocate(&punched, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 1 << 19, 1 << 19).unwrap();
    assert_eq!(used(&punched), 1 << 19);
    let cut = write("cut");
    cut.set_len(8192).unwrap();
    assert_eq!(used(&cut), 8192);
    let emptied = write("emptied");
    emptied.set_len(0).unwrap();
    emptied.write_all_at(&[1; 4096], 1 << 20).unwrap();
    assert_eq!(used(&emptied), 4096);
    drop((punched, cut, emptied));
    assert_eq!(counted(&dir).bytes - 4096, (1 << 19) + 8192 + 4096);
    space.down_and_check();
}

/// The map of a file's extents grows when its blocks are found, which may be long after the write.
#[test]
fn a_full_directory_is_no_fuller_once_everything_is_on_the_disk() {
    for below in [Below::Ext4, Below::Xfs] {
        let space = below.space();
        let dir = limited(&space, "box", ROOM);
        let files: Vec<File> = (0..16).map(|n| open(&dir.join(format!("{n}")))).collect();
        // In turns, with gaps: as many extents as can be.
        until_full(|n| files[n as usize % files.len()].write_all_at(&[7; 4096], n / 16 * 12288));
        assert_filled(&dir, ROOM, below.slack(), "in turns");
        drop(files);
        rustix::fs::sync();
        let used = in_pool(&space);
        assert!(used <= ROOM, "{below:?}: {} bytes past the limit on the disk", used - ROOM);
        assert_filled(&dir, ROOM, below.slack(), "on the disk");
        space.down_and_check();
    }
}

/// To give a file the blocks that it was written without is not a change of the file.
#[test]
fn times_stay_as_the_last_write_left_them() {
    for below in Below::all() {
        let space = below.space();
        let dir = limited(&space, "box", 16 << 20);
        let (small, large) = (dir.join("small"), dir.join("large"));
        let times = || [&small, &large].map(|path| path.metadata().map(|m| (m.mtime_nsec(), m.ctime_nsec())).unwrap());
        let write = |bytes: u64| {
            for (path, steps) in [(&small, 1), (&large, 100)] {
                let file = open(path);
                (0..steps).for_each(|n| file.write_all_at(&[1; 4000], bytes + n * 8000).unwrap());
            }
            times()
        };
        for (from, wait) in [(0, 50), (2 << 20, 4000)] {
            let written = write(from);
            std::thread::sleep(std::time::Duration::from_millis(wait));
            assert_eq!(times(), written, "{below:?}");
            File::open(&large).unwrap().sync_all().unwrap();
            assert_eq!(times(), written, "{below:?}, synced");
        }
        let length = large.metadata().unwrap().len();
        let (backing, _) = listing(&space.pool()).into_iter().find(|(_, other)| *other == length).unwrap();
        assert_eq!(backing.metadata().unwrap().mtime_nsec(), times()[1].0, "{below:?}, in the pool");
        let before = times();
        space.down_and_check();
        space.up();
        assert_eq!(times(), before, "{below:?}, after a restart");
    }
}
