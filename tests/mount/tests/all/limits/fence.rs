//! Files below a limit that can be mapped, in a pool whose file system has project quotas: they are written in the kernel, and its own
//! quota stops them. Skipped where the kernel has none; `vm.rs` runs them on one that has.

use super::bed::{assert_filled, limit, until_full};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::map::Map;
use ullage_mount_tests::run::{eventually, program, ullage, unmount};
use ullage_mount_tests::space::Space;
use ullage_posix_tests::check::{User, as_user};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
const ROOM: u64 = 8 * GIB;
const SOON: Duration = Duration::from_secs(20);
/// The blocks of maps, and what the file system below asks for beside the data of a call.
const SLACK: u64 = 48 * 4096;
/// The map of what was stored and lies nowhere yet besides, and the last part that holes are given.
const MAPPED: u64 = SLACK + 100 * 4096;
static PIECE: [u8; 65536] = [2; 65536];
const ROOT: User = User { uid: 0, gid: 0, groups: &[] };
const SOMEBODY: User = User { uid: 65534, gid: 65534, groups: &[] };

/// A space over a file system with project quotas, and who is stopped there; none where the kernel has no such quotas.
fn fenced(below: &str) -> Option<(Space, User)> {
    let mut ground = Ground::new();
    let (flags, user): (&[&str], _) = match below {
        "xfs" => (&["-q", "-f"], ROOT),
        _ => (&["-q", "-F", "-J", "size=8", "-O", "project,quota", "-E", "quotatype=prjquota"], SOMEBODY),
    };
    let image = ground.join("disk.img");
    File::create(&image).and_then(|file| file.set_len(20 * GIB)).unwrap();
    program(&format!("mkfs.{below}"), flags.iter().map(AsRef::as_ref).chain([image.as_os_str()])).ok();
    let pool = match ground.try_mount("disk", &image, "loop,prjquota") {
        Ok(pool) => pool,
        Err(why) => {
            eprintln!("skipped: {why}");
            return None;
        }
    };
    let state = ground.directory("plain");
    let mut space = Space::on(ground, &pool);
    space.state = state.join("state");
    space.up();
    space.limit(Duration::from_secs(300));
    let list = ullage(["pool".as_ref(), "list".as_ref(), space.mount.as_os_str()]).ok();
    if space.uses_passthrough() && !list.contains("quota stops what is stored") {
        // Without them the limits of such files are another test's.
        eprintln!("skipped: {list}");
        return None;
    }
    Some((space, user))
}

fn held(space: &Space) -> u64 {
    let all = ullage(["limit".as_ref(), space.mount.as_os_str(), "--json".as_ref()]).json();
    all["limits"].as_array().unwrap().iter().map(|limit| limit["held"].as_u64().unwrap()).sum()
}

/// A limited directory of everybody's.
fn limited(space: &Space) -> PathBuf {
    let dir = space.path("limited");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
    limit(&[&format!("{}B", ROOM + 4096)], &dir);
    dir
}

fn both(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// Opens files until one that is read and written is lent room: at first it is not known whether that can be done.
fn lent(space: &Space, user: User, path: &Path) -> File {
    let until = Instant::now() + SOON;
    loop {
        let file = as_user(user, || Ok(both(path))).unwrap();
        if !space.uses_passthrough() || held(space) > 2 * GIB {
            return file;
        }
        assert!(Instant::now() < until, "a file that can be mapped is lent no room");
        drop(file);
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Takes all room but so much. Gives back how much there may be then.
fn leave(dir: &Path, left: u64) -> u64 {
    let path = dir.join("other");
    let other = File::create_new(&path).unwrap();
    // What others are lent is asked back for that; an emulated machine may take longer than is waited for it.
    eventually("there is room", SOON, || {
        fallocate(&other, FallocateFlags::empty(), 0, ROOM - left - (512 << 20)).is_ok()
    });
    drop(other);
    let all = used(dir) + left;
    limit(&[&format!("{}B", all + 4096)], dir);
    all
}

fn used(dir: &Path) -> u64 {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap().blocks() * 512).sum()
}

/// Stores a page wherever that is not refused for good.
fn fill(map: &Map, memory: &File, pages: std::ops::Range<u64>) -> u64 {
    let mut stored = 0;
    for page in pages {
        let store = || map.store_through(memory, page as usize * 4096, &[7; 4096]).is_ok();
        // What holes take is held a part at a time.
        if (0..20).any(|n| {
            store()
                || (n > 0 && {
                    std::thread::sleep(Duration::from_millis(100));
                    false
                })
        }) {
            stored += 1;
        } else {
            break;
        }
    }
    stored
}

fn stores_stop(below: &str) {
    let Some((space, user)) = fenced(below) else { return };
    let dir = limited(&space);
    let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem").unwrap();
    let file = lent(&space, user, &dir.join("file"));
    let map = as_user(user, || {
        file.write_all_at(&[1; 4096], 0).unwrap();
        file.set_len(64 * MIB).unwrap();
        let map = Map::new(&file, 64 << 20).unwrap();
        assert_eq!(fill(&map, &memory, 1..257), 256, "there is plenty of room");
        Ok(map)
    })
    .unwrap();
    let left = 8 * MIB;
    let all = leave(&dir, left);
    as_user(user, || {
        let stored = fill(&map, &memory, 257..64 * 256);
        assert!(stored < 64 * 256 - 257, "more was stored than there is room for");
        Ok(())
    })
    .unwrap();
    assert_filled(&dir, all, MAPPED, "stores");
    as_user(user, || {
        // Calls find what holes are not given.
        until_full(|n| file.write_all_at(&PIECE, 256 * MIB + n * 65536));
        until_full(|n| file.write_all_at(&[1; 4096], 512 * MIB + n * 4096));
        assert!(fill(&map, &memory, 61 * 256..64 * 256) < 768, "went on after there was no room");
        // What has its blocks can be written.
        assert!(map.store_through(&memory, 5000, b"still").is_ok());
        file.write_all_at(b"still", 70_000).unwrap();
        Ok(())
    })
    .unwrap();
    assert_filled(&dir, all, MAPPED, "stores and writes");
    // Room that comes free is found.
    fs::remove_file(dir.join("other")).unwrap();
    as_user(user, || {
        assert_eq!(fill(&map, &memory, 60 * 256..61 * 256), 256, "there is room again");
        file.write_all_at(&PIECE, 256 * MIB).unwrap();
        Ok(())
    })
    .unwrap();
    drop((file, map));
    space.compare_du(&space.mount);
    space.down_and_check();
}

#[test]
fn stores_into_mappings_stop_at_a_fence_on_xfs() {
    stores_stop("xfs");
}

#[test]
fn stores_into_mappings_stop_at_a_fence_on_ext4() {
    stores_stop("ext4");
}

#[test]
fn calls_through_a_handle_that_reads_too_stop_at_the_limit_on_xfs() {
    let Some((space, _)) = fenced("xfs") else { return };
    let dir = limited(&space);
    let file = lent(&space, ROOT, &dir.join("file"));
    file.write_all_at(&PIECE, 0).unwrap();
    let left = 4 * MIB;
    let all = leave(&dir, left);
    until_full(|n| file.write_all_at(&PIECE, (n + 1) * 65536));
    until_full(|n| file.write_all_at(&[2; 4096], 256 * MIB + n * 4096));
    assert_filled(&dir, all, SLACK, "calls");
    let mut byte = [0];
    file.read_exact_at(&mut byte, 65536).unwrap();
    assert_eq!(byte, [2]);
    drop(file);
    eventually("nothing is held", SOON, || held(&space) == 0);
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// The fence stayed as wide as before, and what was cut off was given to others.
#[test]
fn what_was_cut_off_is_not_stored_again_once_others_have_that_room_on_xfs() {
    let Some((space, user)) = fenced("xfs") else { return };
    let dir = limited(&space);
    let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem").unwrap();
    let file = lent(&space, user, &dir.join("file"));
    file.write_all_at(&vec![1; 64 << 20], 0).unwrap();
    file.sync_all().unwrap();
    let all = leave(&dir, 2 * MIB);
    let map = Map::new(&file, 64 << 20).unwrap();
    file.set_len(0).unwrap();
    let other = File::create_new(dir.join("next")).unwrap();
    eventually("what was cut off is there", SOON, || fallocate(&other, FallocateFlags::empty(), 0, 60 * MIB).is_ok());
    until_full(|n| other.write_all_at(&PIECE, 64 * MIB + n * 65536));
    until_full(|n| other.write_all_at(&[2; 4096], 256 * MIB + n * 4096));
    file.set_len(64 * MIB).unwrap();
    fill(&map, &memory, 0..64 * 256);
    file.sync_all().unwrap();
    assert!(used(&dir) <= all, "{} bytes past the limit", used(&dir) - all);
    drop((file, map, other));
    space.compare_du(&space.mount);
    space.down_and_check();
}

fn project(file: &File) -> u32 {
    ullage_mount_tests::project(file).unwrap()
}

fn what_is_mapped_stays_lent(below: &str) {
    let Some((space, user)) = fenced(below) else { return };
    let dir = limited(&space);
    let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem").unwrap();
    let path = dir.join("file");
    let file = lent(&space, user, &path);
    file.set_len(16 * MIB).unwrap();
    let map = Map::new(&file, 16 << 20).unwrap();
    drop(file);
    let backing = File::open(space.backing(&path)).unwrap();
    if space.uses_passthrough() {
        assert_ne!(project(&backing), 0, "it is in a fence");
    }
    // Longer than a file stays open after its last handle.
    std::thread::sleep(Duration::from_secs(5));
    as_user(user, || {
        assert_eq!(fill(&map, &memory, 0..2048), 2048, "its descriptor is closed, and there is room");
        Ok(())
    })
    .unwrap();
    drop(map);
    eventually("nothing is held", SOON, || held(&space) == 0);
    eventually("it is in no fence", SOON, || project(&backing) == 0);
    drop(backing);
    assert!(fs::read(&path).unwrap()[..2048 * 4096].iter().all(|byte| *byte == 7));
    space.compare_du(&space.mount);
    space.down_and_check();
}

#[test]
fn what_is_mapped_stays_lent_room_after_its_last_descriptor_on_xfs() {
    what_is_mapped_stays_lent("xfs");
}

#[test]
fn what_is_mapped_stays_lent_room_after_its_last_descriptor_on_ext4() {
    what_is_mapped_stays_lent("ext4");
}

#[test]
fn a_limit_that_is_gone_stops_nobody() {
    let Some((space, _)) = fenced("xfs") else { return };
    let dir = limited(&space);
    let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem").unwrap();
    let file = lent(&space, ROOT, &dir.join("file"));
    file.set_len(64 * MIB).unwrap();
    let map = Map::new(&file, 64 << 20).unwrap();
    leave(&dir, 4 * MIB);
    assert!(fill(&map, &memory, 0..4096) < 4096);
    limit(&["none"], &dir);
    assert_eq!(fill(&map, &memory, 4096..8192), 4096);
    until_written(&file);
    drop(file);
    let file = both(&dir.join("file"));
    until_written(&file);
    drop((file, map));
    space.compare_du(&space.mount);
    space.down_and_check();
}

fn until_written(file: &File) {
    for n in 0..256 {
        file.write_all_at(&PIECE, 64 * MIB + n * 65536).unwrap();
    }
}

/// By a handle that reads too, 4 KiB at a time: without a limit, in a fence, and through the server, where little room is left.
#[test]
#[ignore = "measures, and proves nothing"]
fn what_writing_costs_in_a_fence() {
    let Some((space, _)) = fenced("xfs") else { return };
    let dir = limited(&space);
    drop(lent(&space, ROOT, &dir.join("first")));
    let below = |name: &str, size: &str| {
        let dir = space.path(name);
        fs::create_dir(&dir).unwrap();
        limit(&[size], &dir);
        dir
    };
    let places = [space.mount.clone(), below("fenced", "8G"), below("near", "3G")];
    let each = || {
        places.each_ref().map(|dir| {
            let file = both(&dir.join("file"));
            file.set_len(0).unwrap();
            let began = Instant::now();
            for n in 0..2000 {
                file.write_all_at(&PIECE[..4096], n * 4096).unwrap();
            }
            let took = began.elapsed().as_nanos() as u64 / 2000;
            drop(file);
            // What was lent comes back.
            std::thread::sleep(Duration::from_secs(3));
            took
        })
    };
    let mut rounds: Vec<[u64; 3]> = (0..7).map(|_| each()).collect();
    let medians = [0, 1, 2].map(|n| {
        rounds.sort_by_key(|round| round[n]);
        rounds[3][n]
    });
    println!("ns a write without a limit, in a fence, through the server: {medians:?} of {rounds:?}");
    space.down_and_check();
}

#[test]
fn several_handles_that_read_and_write_see_the_same_and_stop_at_the_limit() {
    let Some((space, _)) = fenced("xfs") else { return };
    let dir = limited(&space);
    let memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem").unwrap();
    let path = dir.join("file");
    let first = lent(&space, ROOT, &path);
    first.write_all_at(&PIECE, 0).unwrap();
    first.set_len(32 * MIB).unwrap();
    let map = Map::new(&first, 32 << 20).unwrap();
    let second = both(&path);
    second.write_all_at(b"second", 4096).unwrap();
    let mut seen = [0; 6];
    first.read_exact_at(&mut seen, 4096).unwrap();
    assert_eq!(&seen, b"second");
    assert!(map.store_through(&memory, 8192, b"mapped").is_ok());
    second.read_exact_at(&mut seen, 8192).unwrap();
    assert_eq!(&seen, b"mapped");
    let left = 4 * MIB;
    let all = leave(&dir, left);
    fill(&map, &memory, 0..8192);
    let written = until_full(|n| second.write_all_at(&PIECE, 32 * MIB + n * 65536));
    until_full(|n| first.write_all_at(&[2; 4096], 32 * MIB + written * 65536 + n * 4096));
    // The map of the holes that were filled for the second is kept too while it may be mapped.
    assert_filled(&dir, all, MAPPED + (32 * MIB) / 32, "two handles");
    drop((first, second, map));
    eventually("nothing is held", SOON, || held(&space) == 0);
    space.compare_du(&space.mount);
    space.down_and_check();
}

#[test]
fn after_a_kill_a_fence_still_stands_and_the_next_start_takes_it_away() {
    let Some((space, _)) = fenced("xfs") else { return };
    let dir = limited(&space);
    let path = dir.join("file");
    let file = lent(&space, ROOT, &path);
    let map = Map::new(&file, 4096).unwrap();
    file.write_all_at(&PIECE, 0).unwrap();
    let backing = File::open(space.backing(&path)).unwrap();
    let fenced = project(&backing);
    space.kill();
    drop((file, map));
    space.up();
    if space.uses_passthrough() {
        assert_ne!(fenced, 0);
        eventually("it is in no fence", SOON, || project(&backing) == 0);
    }
    drop(backing);
    limit(&["none"], &dir);
    until_written(&both(&path));
    space.compare_du(&space.mount);
    space.down_and_check();
}

#[test]
fn a_file_on_xfs_that_takes_more_than_is_written_is_lent_room_in_a_fence() {
    let Some((space, _)) = fenced("xfs") else { return };
    let dir = space.path("limited");
    fs::create_dir(&dir).unwrap();
    let path = dir.join("file");
    fs::write(&path, vec![1; 1 << 20]).unwrap();
    limit(&[&format!("{}B", ROOM + 4096)], &dir);
    let grow = |file: &File, n: u64| -> io::Result<()> { file.write_all_at(&PIECE, (n + 16) * 65536) };
    let until = Instant::now() + SOON;
    let file = loop {
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        if !space.uses_passthrough() || held(&space) > 2 * GIB {
            break file;
        }
        assert!(Instant::now() < until, "it is lent no room");
        drop(file);
        std::thread::sleep(Duration::from_millis(200));
    };
    for n in 0..64 {
        grow(&file, n).unwrap();
    }
    let left = 4 * MIB;
    let all = leave(&dir, left);
    until_full(|n| grow(&file, n + 64));
    until_full(|n| file.write_all_at(&[2; 4096], 256 * MIB + n * 4096));
    let now = used(&dir);
    assert!(now <= all, "{} bytes past the limit", now - all);
    drop(file);
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// An ext4 as it is usually made was to be mounted with an option that it refuses; one whose quotas only count was said to stop nobody.
#[test]
fn what_pool_list_tells_to_do_for_project_quotas_on_ext4_is_enough() {
    let mut ground = Ground::new();
    let disk = ground.ext4("disk", 256);
    let (image, plain) = (ground.join("disk.img"), ground.directory("plain"));
    let mut space = Space::on(ground, &disk);
    space.state = plain.join("state");
    space.up();
    let listed = |space: &Space| ullage(["pool".as_ref(), "list".as_ref(), space.mount.as_os_str()]).ok();
    let list = listed(&space);
    if !space.uses_passthrough() || list.contains("this kernel has no project quotas") {
        eprintln!("skipped: {list}");
        return;
    }
    let command = list.split('\'').find(|part| part.starts_with("tune2fs ")).expect(&list);
    space.down();
    unmount(&disk);
    let words = command.split(' ').map(AsRef::as_ref).chain([image.as_os_str()]);
    program("tune2fs", words.skip(1)).ok();
    for (options, said) in
        [("loop", "stop nobody (mount it with prjquota)"), ("loop,prjquota", "quota stops what is stored")]
    {
        if let Err(why) = space.ground.try_mount("disk", &image, options) {
            eprintln!("skipped: this kernel has no such quotas: {why}");
            return;
        }
        space.up();
        let list = listed(&space);
        assert!(list.contains(said), "{options}: {list}");
        space.down();
        unmount(&disk);
    }
}
