//! A file whose pool is full goes on in another one.

use crate::rebuild::{generations, rebuild};
use crate::stuck::Frozen;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::map::Map;
use ullage_mount_tests::run::{eventually, ullage};
use ullage_mount_tests::space::Space;

const MIB: usize = 1 << 20;

/// A small pool that gets every new file while it has room, and a large one.
fn bed_on(mut ground: Ground, small: &Path, layout: &str) -> Space {
    let large = ground.ext4("large", 256);
    let disk = ground.directory("disk");
    let mut space = Space::on(ground, &disk);
    space.pools = [("small", small), ("large", &large)]
        .map(|(name, path)| format!("{name}={}{layout}", path.join("pool").display()))
        .to_vec();
    for path in [small, &large] {
        fs::create_dir(path.join("pool")).unwrap();
    }
    space.flags = vec!["--spread".into(), "first-fit".into()];
    space.up();
    space.flags.clear();
    space
}

fn bed() -> Space {
    let mut ground = Ground::new();
    let small = ground.tmpfs("small", 8192);
    bed_on(ground, &small, "")
}

/// Somebody else fills a disk.
fn full_but_for(disk: &Path, left: u64) {
    let free = rustix::fs::statvfs(disk).unwrap();
    let take = (free.f_bavail * free.f_frsize).saturating_sub(left);
    rustix::fs::fallocate(File::create(disk.join("filler")).unwrap(), rustix::fs::FallocateFlags::empty(), 0, take)
        .unwrap();
}

/// Somebody else takes what is left.
fn full_up(disk: &Path) {
    let mut filler = File::create(disk.join("rest")).unwrap();
    for piece in [MIB, 4096] {
        while filler.write(&vec![1; piece]).is_ok_and(|count| count > 0) {}
    }
    filler.sync_all().unwrap();
}

/// The same, where the small one is an ext4 with so much left.
fn nearly_full(megabytes: u64, left: u64) -> Space {
    let mut ground = Ground::new();
    let small = ground.ext4("small", megabytes);
    let space = bed_on(ground, &small, "");
    full_but_for(&small, left);
    space
}

fn pool_of(space: &Space, name: impl AsRef<Path>) -> String {
    space.stat(&space.path(name))["pool"].as_str().unwrap().to_owned()
}

/// Bytes that differ from place to place.
fn data(length: usize) -> Vec<u8> {
    (0..length as u32 / 4).flat_map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

/// What is free where a file was comes back.
fn eventually_free(space: &Space, bytes: u64) {
    let small = space.ground.join("small");
    eventually("the room of what went elsewhere is free", Duration::from_secs(20), || {
        let stat = rustix::fs::statvfs(&small).unwrap();
        stat.f_bavail * stat.f_frsize >= bytes
    });
}

fn writes_through(space: &Space) {
    let path = space.path("grows");
    let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all(&data(4 * MIB)).unwrap();
    assert_eq!(pool_of(space, "grows"), "small");
    file.write_all(&data(28 * MIB)).unwrap();
    assert_eq!(pool_of(space, "grows"), "large");
    let expected = [data(4 * MIB), data(28 * MIB)].concat();
    let mut read = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut read).unwrap();
    assert!(read == expected);
    file.sync_all().unwrap();
    drop(file);
    assert!(fs::read(&path).unwrap() == expected);
    space.compare_du(&space.mount);
    space.down();
    space.up();
    assert!(fs::read(&path).unwrap() == expected);
    assert_eq!(pool_of(space, "grows"), "large");
}

/// It stayed where it was, and whoever wrote to it was refused while the other pool was empty.
#[test]
fn a_file_whose_pool_is_full_goes_on_in_another() {
    let space = bed();
    writes_through(&space);
    eventually_free(&space, 7 << 20);
    space.down_and_check();
}

#[test]
fn a_file_whose_pool_is_full_goes_on_in_another_from_xfs() {
    let mut ground = Ground::new();
    let small = ground.image("small", 320, "mkfs.xfs", &["-q", "-f"], "");
    let space = bed_on(ground, &small, "");
    full_but_for(&small, 12 << 20);
    writes_through(&space);
    space.down_and_check();
}

#[test]
fn what_else_is_known_of_a_file_stays_with_it() {
    let space = bed();
    let path = space.path("known");
    fs::create_dir(space.path("dir")).unwrap();
    let file = File::create(&path).unwrap();
    // A hole, times and another owner.
    file.write_all_at(&data(MIB), 0).unwrap();
    file.write_all_at(&data(MIB), 64 * MIB as u64).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::chown(&path, Some(1234), Some(2345)).unwrap();
    fs::hard_link(&path, space.path("dir/other")).unwrap();
    let before = file.metadata().unwrap();
    assert_eq!(pool_of(&space, "known"), "small");
    file.write_all_at(&data(16 * MIB), 2 * MIB as u64).unwrap();
    assert_eq!(pool_of(&space, "known"), "large");
    let after = fs::metadata(&path).unwrap();
    let same = |meta: &fs::Metadata| (meta.ino(), meta.uid(), meta.gid(), meta.mode(), meta.nlink(), meta.len());
    assert_eq!(same(&before), same(&after));
    assert!(after.blocks() * 512 < 24 << 20, "holes stay holes: {}", after.blocks());
    let mut piece = vec![0; MIB];
    let other = File::open(space.path("dir/other")).unwrap();
    for (at, expected) in [(0, data(MIB)), (MIB, vec![0; MIB]), (64 * MIB, data(MIB))] {
        other.read_exact_at(&mut piece, at as u64).unwrap();
        assert!(piece == expected, "at {at}");
    }
    drop((file, other));
    space.compare_du(&space.mount);
    eventually_free(&space, 7 << 20);
    space.down_and_check();
}

/// In the plain trees it stands where its data is, under all its names.
#[test]
fn a_file_that_went_elsewhere_stands_in_the_plain_tree_of_its_pool() {
    let mut ground = Ground::new();
    let small = ground.ext4("small", 16);
    let space = bed_on(ground, &small, ",layout=mirror");
    let mut file = File::create(space.path("one")).unwrap();
    file.write_all(&data(MIB)).unwrap();
    fs::create_dir(space.path("dir")).unwrap();
    fs::hard_link(space.path("one"), space.path("dir/two")).unwrap();
    assert_eq!(pool_of(&space, "one"), "small");
    file.write_all(&data(24 * MIB)).unwrap();
    drop(file);
    assert_eq!(pool_of(&space, "one"), "large");
    let tree = |pool: &str, name: &str| space.ground.join(pool).join("pool").join(name);
    eventually("the trees follow", Duration::from_secs(20), || {
        ["one", "dir/two"].iter().all(|name| !tree("small", name).exists() && tree("large", name).exists())
    });
    assert!(fs::read(tree("large", "dir/two")).unwrap() == [data(MIB), data(24 * MIB)].concat());
    space.down_and_check();
}

#[test]
fn allocations_copies_and_mappings_go_on_elsewhere_too() {
    let space = bed();
    let made = |name: &str| {
        let file = File::options().read(true).write(true).create_new(true).open(space.path(name)).unwrap();
        file.write_all_at(&data(MIB), 0).unwrap();
        assert_eq!(pool_of(&space, name), "small", "{name}");
        file
    };
    let allocated = made("allocated");
    rustix::fs::fallocate(&allocated, rustix::fs::FallocateFlags::empty(), 0, 32 << 20).unwrap();
    assert_eq!((pool_of(&space, "allocated"), allocated.metadata().unwrap().len()), ("large".to_owned(), 32 << 20));
    eventually_free(&space, 7 << 20);

    let mapped = made("mapped");
    mapped.set_len(16 << 20).unwrap();
    let mut map = Map::new(&mapped, 16 << 20).unwrap();
    map.write(0, &data(16 * MIB));
    map.sync().unwrap();
    assert_eq!(pool_of(&space, "mapped"), "large");
    drop(map);
    assert!(fs::read(space.path("mapped")).unwrap() == data(16 * MIB));
    drop((allocated, mapped));
    eventually_free(&space, 7 << 20);

    // From a file to another in the same pool, and within one.
    let (source, target) = (made("source"), made("target"));
    source.write_all_at(&data(3 * MIB), 0).unwrap();
    let mut copied = 0;
    while copied < 12 << 20 {
        let (mut from, mut to) = (copied % (3 << 20), copied);
        let length = 3 * MIB - from as usize;
        let count = rustix::fs::copy_file_range(&source, Some(&mut from), &target, Some(&mut to), length).unwrap();
        assert!(count > 0);
        copied += count as u64;
    }
    assert!(fs::read(space.path("target")).unwrap() == data(3 * MIB).repeat(4));
    assert_eq!(pool_of(&space, "target"), "large");
    drop((source, target));
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// Pages of the server's showed nothing of what was stored in the mapping, and were written over it.
#[test]
fn a_file_that_is_mapped_in_the_kernel_stays_there_when_its_pool_may_run_full() {
    let space = bed();
    let large = space.ground.join("large");
    let open = || File::options().read(true).write(true).open(space.path("mapped")).unwrap();
    // What is free is looked at now and then.
    let moment = || std::thread::sleep(Duration::from_secs(1));
    full_but_for(&large, 0);
    fs::write(space.path("mapped"), data(8192)).unwrap();
    moment();
    let mut ours = Map::new(&open(), 8192).unwrap();
    fs::remove_file(large.join("filler")).unwrap();
    moment();
    let other = open();
    let mut theirs = Map::new(&other, 8192).unwrap();
    assert_eq!(ours.load(0), theirs.load(0));
    ours.store(0, 1);
    theirs.store(8, 2);
    assert_eq!((theirs.load(0), ours.load(8)), (1, 2));
    theirs.sync().unwrap();
    let mut read = [0; 16];
    other.read_exact_at(&mut read, 0).unwrap();
    assert_eq!(read, u128::to_le_bytes(1 | 2 << 64));
    drop((ours, theirs, other));
    space.down_and_check();
}

/// A temporary file of a program that sorts has no name.
#[test]
fn a_file_without_a_name_goes_elsewhere_and_leaves_nothing() {
    let space = bed();
    let mut file = File::options().read(true).write(true).create_new(true).open(space.path("gone")).unwrap();
    fs::remove_file(space.path("gone")).unwrap();
    file.write_all(&data(24 * MIB)).unwrap();
    let mut read = vec![0; 24 * MIB];
    file.read_exact_at(&mut read, 0).unwrap();
    assert!(read == data(24 * MIB));
    drop(file);
    eventually_free(&space, 7 << 20);
    space.down_and_check();
}

/// Whoever reads it meanwhile through a handle of before reads what is written now.
#[test]
fn several_write_and_read_a_file_while_it_goes_elsewhere() {
    const WRITERS: usize = 4;
    let space = bed();
    let path = space.path("shared");
    File::create(&path).unwrap();
    let write = |writer: usize| {
        let file = File::options().read(true).write(true).open(&path).unwrap();
        for round in 0..48 {
            let at = ((round * WRITERS + writer) * 128) as u64 * 1024;
            let piece = vec![(round * WRITERS + writer) as u8 ^ 0x5a; 128 << 10];
            file.write_all_at(&piece, at).unwrap();
            let mut read = vec![0; 128 << 10];
            file.read_exact_at(&mut read, at).unwrap();
            assert!(read == piece, "what was just written by {writer} in round {round}");
        }
    };
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || write(writer));
        }
    });
    assert_eq!(pool_of(&space, "shared"), "large");
    let all = fs::read(&path).unwrap();
    for (n, piece) in all.chunks(128 << 10).enumerate() {
        assert!(piece.iter().all(|byte| *byte == n as u8 ^ 0x5a), "piece {n}");
    }
    space.down_and_check();
}

/// The kernel reads it by itself, from where it is: until that ends it is refused, and nothing mixes.
#[test]
fn a_file_that_the_kernel_reads_stays_in_its_pool() {
    let space = bed();
    space.assert_passthrough();
    let path = space.path("read");
    fs::write(&path, data(MIB)).unwrap();
    std::thread::sleep(Duration::from_secs(3));
    let reader = File::open(&path).unwrap();
    let mut writer = File::options().append(true).open(&path).unwrap();
    let error = writer.write_all(&data(24 * MIB)).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    let written = fs::metadata(&path).unwrap().len();
    drop((reader, writer));
    eventually("the file goes elsewhere once nobody reads it", Duration::from_secs(20), || {
        File::options().append(true).open(&path).unwrap().write_all(&data(8 * MIB)).is_ok()
    });
    assert_eq!(pool_of(&space, "read"), "large");
    let all = fs::read(&path).unwrap();
    assert!(all.len() as u64 >= written + (8 << 20) && all[..MIB] == data(MIB));
    assert!(all[all.len() - 8 * MIB..] == data(8 * MIB));
    space.down_and_check();
}

/// It is full for users, and the limit of a directory is another matter.
#[test]
fn limits_hold_for_what_goes_elsewhere() {
    let space = bed();
    let dir = space.path("dir");
    fs::create_dir(&dir).unwrap();
    ullage(["limit".as_ref(), dir.as_os_str(), "16M".as_ref()]).ok();
    let file = File::create(dir.join("grows")).unwrap();
    let mut written = 0;
    let error = loop {
        match file.write_at(&data(MIB), written) {
            Ok(count) => written += count as u64,
            Err(error) => break error,
        }
    };
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    assert_eq!(pool_of(&space, "dir/grows"), "large");
    let taken = file.metadata().unwrap().blocks() * 512;
    assert!(taken + 4096 <= 16 << 20 && taken >= 15 << 20, "{taken}");
    drop(file);
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// A pool is full for files when it is down to its reserve.
#[test]
fn a_pool_at_its_reserve_is_full_too() {
    let mut ground = Ground::new();
    let (small, large) = (ground.tmpfs("small", 65536), ground.ext4("large", 256));
    let disk = ground.directory("disk");
    let mut space = Space::on(ground, &disk);
    space.pools =
        vec![format!("small={},reserve=40M", small.display()), format!("large={}", pool_in(&large).display())];
    space.flags = vec!["--spread".into(), "first-fit".into()];
    space.up();
    space.flags.clear();
    let path = space.path("grows");
    fs::write(&path, data(40 * MIB)).unwrap();
    assert!(fs::read(&path).unwrap() == data(40 * MIB));
    assert_eq!(pool_of(&space, "grows"), "large");
    space.compare_du(&space.mount);
    space.down_and_check();
}

fn pool_in(disk: &Path) -> PathBuf {
    let pool = disk.join("pool");
    fs::create_dir(&pool).unwrap();
    pool
}

/// Whatever it was about: what was on disk before is there, and no file's data is another's.
#[test]
fn a_daemon_that_is_killed_while_files_go_elsewhere_loses_nothing() {
    let space = bed();
    for round in 0..8u64 {
        let path = space.path(format!("file-{round}"));
        let mut file = File::create(&path).unwrap();
        file.write_all(&data(3 * MIB)).unwrap();
        file.sync_all().unwrap();
        let pid = space.pid();
        let writer = std::thread::spawn(move || {
            let mut promised = 3 * MIB;
            for _ in 0..24 {
                if file.write_all(&data(MIB)).is_err() || file.sync_all().is_err() {
                    break;
                }
                promised += MIB;
            }
            promised
        });
        std::thread::sleep(Duration::from_millis(10 + 23 * round));
        ullage_mount_tests::process::kill(pid);
        let promised = writer.join().unwrap();
        space.up();
        let all = fs::read(&path).unwrap();
        assert!(all.len() >= promised, "round {round}: {} of {promised}", all.len());
        assert!(all[..3 * MIB] == data(3 * MIB), "round {round}");
        for (n, piece) in all[3 * MIB..promised].chunks(MIB).enumerate() {
            assert!(piece == data(MIB), "round {round}, piece {n}");
        }
        space.compare_du(&space.mount);
        fs::remove_file(&path).unwrap();
    }
    eventually_free(&space, 7 << 20);
    space.down_and_check();
}

/// Each write that a limit refused copied the whole file, back and forth.
#[test]
fn what_a_limit_refuses_stays_where_it_is() {
    let mut ground = Ground::new();
    let (small, other) = (ground.tmpfs("small", 51200), ground.tmpfs("other", 51200));
    let disk = ground.directory("disk");
    let mut space = Space::on(ground, &disk);
    space.pools = vec![format!("small={}", small.display()), format!("other={}", other.display())];
    space.flags = vec!["--spread".into(), "first-fit".into()];
    space.up();
    space.flags.clear();
    let dir = space.path("dir");
    fs::create_dir(&dir).unwrap();
    ullage(["limit".as_ref(), dir.as_os_str(), "16M".as_ref()]).ok();
    let file = File::create(dir.join("file")).unwrap();
    let mut written = 0;
    while let Ok(count) = file.write_at(&vec![7; 65536], written) {
        written += count as u64;
    }
    for _ in 0..20 {
        assert_eq!(file.write_at(&vec![7; 65536], written).unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    }
    assert_eq!(pool_of(&space, "dir/file"), "small");
    assert!(!space.log().contains("goes to the pool"), "{}", space.log());
    drop(file);
    space.down_and_check();
}

/// Whether writes can be refused was tried in the small pool, where none is made in the kernel: nothing was lent anywhere.
#[test]
fn a_small_pool_says_nothing_of_what_the_kernel_can_do() {
    let space = bed();
    let listed = ullage(["pool".as_ref(), "list".as_ref(), space.mount.as_os_str(), "--json".as_ref()]).json();
    for pool in listed["pools"].as_array().unwrap() {
        let ways = pool["ways"].as_array().unwrap();
        let mediated = ways.iter().find(|way| way["way"] == "mediated").unwrap();
        assert_eq!(mediated["used"], true, "{mediated}");
    }
    space.down_and_check();
}

/// Who allocates what he maps counts on it.
#[test]
fn what_was_allocated_within_a_file_goes_with_it() {
    let space = nearly_full(128, 24 << 20);
    let file = File::options().read(true).write(true).create_new(true).open(space.path("file")).unwrap();
    file.set_len(48 << 20).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 8 << 20).unwrap();
    assert_eq!(pool_of(&space, "file"), "small");
    file.write_all_at(&data(24 * MIB), 16 << 20).unwrap();
    assert_eq!(pool_of(&space, "file"), "large");
    assert!(file.metadata().unwrap().blocks() * 512 >= 32 << 20, "{}", file.metadata().unwrap().blocks());
    let read = fs::read(space.path("file")).unwrap();
    assert!(read[..16 * MIB].iter().all(|byte| *byte == 0) && read[16 * MIB..40 * MIB] == data(24 * MIB));
    drop(file);
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// What is held for it was never let go of, and who wrote waited two seconds each time.
#[test]
fn a_limited_file_with_space_that_was_never_written_goes_elsewhere_too() {
    let space = nearly_full(128, 32 << 20);
    ullage(["limit".as_ref(), space.mount.as_os_str(), "200M".as_ref()]).ok();
    let file = File::options().read(true).write(true).create_new(true).open(space.path("file")).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 8 << 20).unwrap();
    for at in (0..6 << 20).step_by(128 << 10) {
        file.write_all_at(&vec![5; 65536], at).unwrap();
    }
    file.write_all_at(&data(40 * MIB), 8 << 20).unwrap();
    assert_eq!(pool_of(&space, "file"), "large");
    let read = fs::read(space.path("file")).unwrap();
    assert!(read[8 * MIB..] == data(40 * MIB) && read[..65536] == vec![5; 65536]);
    drop(file);
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// The half-made copy had the newer number, and `rebuild` took it for the file.
#[test]
fn a_copy_that_was_not_finished_leaves_nothing() {
    let space = nearly_full(160, 100 << 20);
    let mut file = File::create(space.path("file")).unwrap();
    file.write_all(&data(90 * MIB)).unwrap();
    file.sync_all().unwrap();
    let writer = std::thread::spawn(move || file.write_all(&data(16 * MIB)).is_err());
    eventually("it goes elsewhere", Duration::from_secs(20), || space.log().contains("goes to the pool"));
    space.kill();
    writer.join().unwrap();
    space.up();
    let read = fs::read(space.path("file")).unwrap();
    assert!(read.len() >= 90 * MIB && read[..90 * MIB] == data(90 * MIB));
    space.down_and_check();
}

/// It was bound to what it had left behind, which is empty and still has its number; and the next start took its data for nobody's.
#[test]
fn a_file_that_went_elsewhere_since_the_copy_of_the_catalog_is_rebuilt_with_its_data() {
    let mut space = bed();
    let copies = |space: &Space, ending: &str| generations(&space.ground.join("large/pool"), ending).len();
    let mut file = File::create(space.path("file")).unwrap();
    file.write_all(&data(4 * MIB)).unwrap();
    file.sync_all().unwrap();
    assert_eq!(pool_of(&space, "file"), "small");
    let (left, mut attribute) = (space.backing(&space.path("file")), [0u8; 256]);
    let length = rustix::fs::getxattr(&left, "user.ullage", &mut attribute[..]).unwrap();
    eventually("the catalog's copy is in the pools", Duration::from_secs(20), || {
        space.ground.join("large/pool/.ullage-mirror").exists() && copies(&space, ".snapshot") > 0
    });
    file.write_all(&data(24 * MIB)).unwrap();
    file.sync_all().unwrap();
    assert_eq!(pool_of(&space, "file"), "large");
    eventually_free(&space, 7 << 20);
    space.kill();
    drop(file);
    assert_eq!((copies(&space, ".snapshot"), copies(&space, ".tail")), (1, 0), "the copy is newer");
    // Whether its pool used it again at once depends on what else was made there.
    if !left.exists() {
        File::create_new(&left).unwrap();
        rustix::fs::setxattr(&left, "user.ullage", &attribute[..length], rustix::fs::XattrFlags::empty()).unwrap();
    }
    let report = rebuild(&mut space, &[]);
    assert_eq!((&report["adopted"], &report["dropped"]), (&0.into(), &0.into()), "{report}");
    assert_eq!(pool_of(&space, "file"), "large");
    assert!(fs::read(space.path("file")).unwrap() == [data(4 * MIB), data(24 * MIB)].concat());
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// What was written within the second in which its copy began did not show in its times: it was answered, and gone.
#[test]
fn what_is_written_while_a_file_goes_elsewhere_is_kept_where_times_are_whole_seconds() {
    /// Those of the file that are overwritten, one after the other.
    const BLOCKS: u64 = 4096;
    let mut ground = Ground::new();
    let small = ground.image("small", 128, "mkfs.ext4", &["-q", "-F", "-I", "128", "-O", "^has_journal"], "loop");
    let space = bed_on(ground, &small, "");
    full_but_for(&small, 44 << 20);
    for round in 0..6 {
        let name = format!("file-{round}");
        let mut appends = File::create(space.path(&name)).unwrap();
        appends.write_all(&data(30 * MIB)).unwrap();
        assert_eq!(pool_of(&space, &name), "small");
        // Calls that write take turns in the kernel; what is written out of a mapping comes in between.
        let overwrites = File::options().read(true).write(true).open(space.path(&name)).unwrap();
        let mut map = Map::new(&overwrites, BLOCKS as usize * 4096).unwrap();
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (map, ended, overwrites) = (&mut map, &ended, &overwrites);
            let counts = scope.spawn(move || {
                let mut answered = 0u64;
                while !ended.load(Relaxed) {
                    let at = answered % BLOCKS * 4096;
                    map.write(at as usize, &(answered + 1).to_le_bytes());
                    // That begins to write it out.
                    rustix::fs::fadvise(overwrites, at, NonZeroU64::new(4096), rustix::fs::Advice::DontNeed).unwrap();
                    answered += 1;
                    std::thread::sleep(Duration::from_millis(3));
                }
                map.sync().unwrap();
                answered
            });
            // So that each round meets another part of a second.
            std::thread::sleep(Duration::from_millis(150 * round));
            let until = Instant::now() + Duration::from_secs(30);
            while pool_of(&space, &name) == "small" && Instant::now() < until {
                let _ = appends.write(&data(MIB));
            }
            ended.store(true, Relaxed);
            let answered = counts.join().unwrap();
            let all = fs::read(space.backing(&space.path(&name))).unwrap();
            for n in answered.saturating_sub(BLOCKS)..answered {
                let at = (n % BLOCKS) as usize * 4096;
                assert_eq!(all[at..at + 8], (n + 1).to_le_bytes(), "write {n} of {answered}, round {round}");
            }
        });
        assert_eq!(pool_of(&space, &name), "large");
        drop((appends, overwrites, map));
        fs::remove_file(space.path(&name)).unwrap();
        eventually_free(&space, 40 << 20);
    }
    space.down_and_check();
}

/// It was taken for refused by the limit, and nothing was written, though smaller writes would have been.
#[test]
fn a_write_that_a_limit_cuts_short_goes_elsewhere_as_far_as_it_may() {
    let space = nearly_full(128, 8 << 20);
    let dir = space.path("dir");
    fs::create_dir(&dir).unwrap();
    ullage(["limit".as_ref(), dir.as_os_str(), "4M".as_ref()]).ok();
    let limited = File::create(dir.join("file")).unwrap();
    limited.write_all_at(&data(MIB), 0).unwrap();
    // Until nothing is left in the pool, and half a MiB below the limit.
    let others = File::create(dir.join("others")).unwrap();
    let taken = (4 << 20) - (MIB as u64) - (512 << 10) - 2 * 4096;
    others.write_all_at(&data(taken as usize), 0).unwrap();
    others.sync_all().unwrap();
    limited.sync_all().unwrap();
    full_up(&space.ground.join("small"));
    assert_eq!(pool_of(&space, "dir/file"), "small");
    let count = limited.write_at(&data(MIB), MIB as u64).unwrap();
    assert!((448 << 10..=520 << 10).contains(&count), "{count}");
    assert_eq!(pool_of(&space, "dir/file"), "large");
    assert_eq!(fs::read(dir.join("file")).unwrap(), [data(MIB), data(MIB)[..count].to_vec()].concat());
    drop((limited, others));
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// All that went elsewhere went one after the other: behind a copy whose disk hangs nobody got on, though another pool had room.
#[test]
fn a_copy_to_a_pool_that_does_not_answer_keeps_no_other_file_from_going_elsewhere() {
    let mut ground = Ground::new();
    let pools = [
        ("small", ground.ext4("small", 640)),
        ("stuck", ground.xfs("stuck", 2048)),
        ("spare", ground.ext4("spare", 256)),
    ];
    let disk = ground.directory("disk");
    let mut space = Space::on(ground, &disk);
    space.pools = pools.iter().map(|(name, path)| format!("{name}={}", pool_in(path).display())).collect();
    space.flags = vec!["--spread".into(), "first-fit".into()];
    space.up();
    space.flags.clear();
    let [mut copied, mut other] = ["copied", "other"].map(|name| File::create(space.path(name)).unwrap());
    for _ in 0..25 {
        copied.write_all(&data(16 * MIB)).unwrap();
    }
    other.write_all(&data(MIB)).unwrap();
    full_up(&pools[0].1);
    assert_eq!((pool_of(&space, "copied"), pool_of(&space, "other")), ("small".to_owned(), "small".to_owned()));
    let writer;
    {
        let (tells, told) = mpsc::channel();
        writer = std::thread::spawn(move || copied.write_all(&data(4 * MIB)));
        eventually("it goes elsewhere", Duration::from_secs(20), || space.log().contains("goes to the pool 'stuck'"));
        let _frozen = Frozen::new(&pools[1].1);
        std::thread::sleep(Duration::from_secs(1));
        assert!(!writer.is_finished(), "it does not hang: nothing was tested");
        std::thread::spawn(move || tells.send(other.write_all(&data(4 * MIB))));
        let written = told.recv_timeout(Duration::from_secs(10)).expect("it waits for the copy");
        written.unwrap();
        assert_eq!(pool_of(&space, "other"), "spare");
    }
    writer.join().unwrap().unwrap();
    assert_eq!(pool_of(&space, "copied"), "stuck");
    assert!(fs::read(space.path("other")).unwrap() == [data(MIB), data(4 * MIB)].concat());
    assert!(fs::read(space.path("copied")).unwrap() == [data(16 * MIB).repeat(25), data(4 * MIB)].concat());
    space.down_and_check();
}
