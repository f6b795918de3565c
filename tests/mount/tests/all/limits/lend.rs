//! Files below a limit with plenty of room: they are written in the kernel, and stop at the limit all the same.

use super::bed::{Below, assert_filled, in_pool, is_full, limit, until_full};
use super::growth::{WAYS, source};
use super::writers::{Spinners, Told};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, chown, fchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::map::Map;
use ullage_mount_tests::recount::counted;
use ullage_mount_tests::ring_write;
use ullage_mount_tests::run::{eventually, ullage};
use ullage_mount_tests::space::Space;

pub const GIB: u64 = 1 << 30;
static PIECE: [u8; 65536] = [2; 65536];
const SOON: Duration = Duration::from_secs(10);
/// How much room is left at most when a call of 64 KiB or less is refused as a whole.
pub const CALL: u64 = 70_001 + 2 * 4096;

/// On a file system with more room than the machine has.
pub fn spacious(below: Below) -> Space {
    spacious_with(below, &[])
}

fn spacious_with(below: Below, flags: &[&str]) -> Space {
    let mut ground = Ground::new();
    let pool = match below {
        Below::Tmpfs => ground.tmpfs("disk", 100 << 20),
        Below::Ext4 => ground.ext4("disk", 100 << 10),
        Below::Xfs => ground.xfs("disk", 100 << 10),
        Below::Btrfs => ground.btrfs("disk", 100 << 10),
    };
    over(ground, &pool, flags)
}

fn over(ground: Ground, pool: &Path, flags: &[&str]) -> Space {
    let state = ground.directory("plain");
    let mut space = Space::on(ground, pool);
    space.state = state.join("state");
    space.flags = flags.iter().map(Into::into).collect();
    space.up();
    space.limit(Duration::from_secs(150));
    space
}

pub fn held(space: &Space) -> u64 {
    let all = ullage(["limit".as_ref(), space.mount.as_os_str(), "--json".as_ref()]).json();
    all["limits"].as_array().unwrap().iter().map(|limit| limit["held"].as_u64().unwrap()).sum()
}

/// A limited directory, where handles that only write are known to be lent room.
pub fn lending(space: &Space, name: &str, room: u64) -> PathBuf {
    let dir = space.path(name);
    fs::create_dir(&dir).unwrap();
    limit(&[&format!("{}B", room + 4096)], &dir);
    let path = dir.join("first");
    if space.uses_passthrough() {
        eventually("room is lent", SOON, || {
            let _file = File::create(&path).unwrap();
            held(space) > 2 * GIB
        });
        fs::remove_file(path).unwrap();
        eventually("nothing is held", SOON, || held(space) == 0);
    }
    dir
}

pub fn lent(path: &Path) -> File {
    OpenOptions::new().write(true).create(true).truncate(false).open(path).unwrap()
}

/// Takes all room but so much.
pub fn leave(dir: &Path, room: u64, left: u64) {
    let other = OpenOptions::new().read(true).write(true).create_new(true).open(dir.join("other")).unwrap();
    // Its map may take some blocks too: what is left is made exact by the limit.
    fallocate(&other, FallocateFlags::empty(), 0, room - left - (512 << 20)).unwrap();
    let used = dir.join("other").metadata().unwrap().blocks() * 512;
    limit(&[&format!("{}B", used + left + 4096)], dir);
}

fn stopped(below: Below) {
    let space = spacious(below);
    let source = source(&space);
    let own = ["write", "odd pwrite", "sendfile", "splice", "io_uring"];
    for (how, way) in WAYS.iter().filter(|(how, _)| own.contains(how)) {
        let (room, left) = (8 * GIB, 1 << 20);
        let dir = lending(&space, &how.replace(' ', "-"), room);
        let file = lent(&dir.join("file"));
        file.write_all_at(&[1; 4096], 0).unwrap();
        if space.uses_passthrough() {
            assert!(held(&space) > 2 * GIB, "{how}");
        }
        if below == Below::Tmpfs {
            limit(&[&format!("{}B", left + 4096)], &dir);
        } else {
            leave(&dir, room, left);
        }
        let others = dir.join("other").metadata().map_or(0, |meta| meta.blocks() * 512);
        way(&file, &source);
        let slack = below.slack() + if space.uses_passthrough() { CALL } else { 0 };
        assert_filled(&dir, others + left, slack, how);
        until_full(|n| file.write_all_at(&[1; 4096], GIB + n * 4096));
        assert_filled(&dir, others + left, below.slack() + 8192, how);
        for n in 0..50 {
            let again = file.write_at(&[1; 4096], 2 * GIB + n * 4096);
            assert!(is_full(&again), "{how}: went on after it was refused: {again:?}");
        }
        assert_filled(&dir, others + left, below.slack() + 8192, how);
        file.set_len(0).unwrap();
        file.write_all_at(&vec![2; 65536], 0).unwrap();
        drop(file);
        fs::remove_dir_all(&dir).unwrap();
    }
    drop(source);
    space.compare_du(&space.mount);
    space.down_and_check();
}

#[test]
fn who_is_lent_room_stops_at_the_limit_on_ext4() {
    stopped(Below::Ext4);
}

/// Which gives a growing file more than it asks for, but not where it was told to ask for one block.
#[test]
fn who_is_lent_room_stops_at_the_limit_on_xfs() {
    stopped(Below::Xfs);
}

#[test]
fn who_is_lent_room_stops_at_the_limit_on_btrfs() {
    if Below::Btrfs.is_had() {
        stopped(Below::Btrfs);
    }
}

#[test]
fn who_is_lent_room_stops_at_the_limit_on_tmpfs() {
    stopped(Below::Tmpfs);
}

/// What each write that asked might have added to the map was given back with its end, and ext4 finds those blocks when it writes the data out.
#[test]
fn the_map_of_what_is_written_here_and_there_near_the_limit_is_within_it_on_ext4() {
    let space = spacious(Below::Ext4);
    let (room, left) = (8 * GIB, 40 << 20);
    let dir = lending(&space, "box", room);
    let file = lent(&dir.join("file"));
    file.write_all_at(&[1; 4096], 0).unwrap();
    leave(&dir, room, left);
    let others = dir.join("other").metadata().unwrap().blocks() * 512;
    until_full(|n| file.write_all_at(&[1; 4096], (n + 1) * 8192));
    file.sync_all().unwrap();
    assert_filled(&dir, others + left, Below::Ext4.slack() + 8192, "here and there");
    drop(file);
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// Sixteen write as fast as they can while somebody else takes what is left.
fn taken_away(below: Below, spinners: usize) {
    let space = spacious(below);
    let room = 60 * GIB;
    let dir = lending(&space, "box", room);
    let files: Vec<File> = (0..16).map(|n| lent(&dir.join(format!("file-{n}")))).collect();
    if space.uses_passthrough() {
        assert!(held(&space) > 32 * GIB);
    }
    let _spinners = Spinners::new(spinners);
    std::thread::scope(|scope| {
        let writers: Vec<_> = files
            .iter()
            .map(|file| {
                let mut file = file;
                let data = vec![7; 256 << 10];
                scope.spawn(move || {
                    // Over the same mebibytes again and again, and some more each time: the disk below is small.
                    for n in 0u64.. {
                        rustix::fs::seek(file, rustix::fs::SeekFrom::Start(n % 64 * (64 << 10) + n * 4096)).unwrap();
                        let outcome = file.write_all(&data);
                        if is_full(&outcome) {
                            return;
                        }
                        outcome.unwrap();
                    }
                })
            })
            .collect();
        let other = OpenOptions::new().read(true).write(true).create_new(true).open(dir.join("other")).unwrap();
        let (mut at, mut piece) = (0, 4 * GIB);
        while piece >= 65536 {
            match fallocate(&other, FallocateFlags::empty(), at, piece) {
                Ok(()) => at += piece,
                Err(_) => piece /= 2,
            }
            assert!(in_pool(&space) <= room, "{} bytes past the limit", in_pool(&space) - room);
        }
        for writer in writers {
            writer.join().unwrap();
        }
    });
    let mut rest = OpenOptions::new().append(true).create_new(true).open(dir.join("rest")).unwrap();
    until_full(|_| rest.write_all(&[8; 4096]));
    assert_filled(&dir, room, below.slack() + 4096, "sixteen writers");
    drop((files, rest));
    space.compare_du(&space.mount);
    fs::remove_dir_all(&dir).unwrap();
    space.sync();
    space.down_and_check();
}

#[test]
fn what_is_lent_is_asked_back_for_others_on_ext4() {
    taken_away(Below::Ext4, 0);
}

#[test]
fn what_is_lent_is_asked_back_for_others_on_xfs() {
    taken_away(Below::Xfs, 0);
}

#[test]
fn what_is_lent_is_asked_back_for_others_on_btrfs() {
    if Below::Btrfs.is_had() {
        taken_away(Below::Btrfs, 0);
    }
}

#[test]
fn what_is_lent_is_asked_back_on_a_starved_machine() {
    taken_away(Below::Ext4, 64);
}

#[test]
fn what_was_lent_is_given_back_with_the_last_handle_and_then_nothing_is_held() {
    let space = spacious(Below::Ext4);
    let dir = lending(&space, "box", 20 * GIB);
    let files: Vec<File> = (0..20).map(|n| lent(&dir.join(n.to_string()))).collect();
    let reader = File::open(dir.join("0")).unwrap();
    for mut file in &files {
        file.write_all(&vec![1; 100_000]).unwrap();
    }
    if space.uses_passthrough() {
        // The others came when no room was to be lent.
        assert!((8 * GIB..20 * GIB).contains(&held(&space)), "{}", held(&space));
    }
    // Who needs it gets it: more than what is not held.
    let large = OpenOptions::new().read(true).write(true).create_new(true).open(dir.join("large")).unwrap();
    fallocate(&large, FallocateFlags::empty(), 0, 19 * GIB).unwrap();
    fs::remove_file(dir.join("large")).unwrap();
    drop((files, large));
    eventually("what was lent is given back", SOON, || held(&space) < 16 << 20);
    eventually("nothing is held", SOON, || held(&space) == 0);
    drop(reader);
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// It was given its blocks two seconds after it was closed, and nothing is lent to a file that has some which were never written: whoever came
/// to append asked for each write.
#[test]
fn what_was_closed_a_while_ago_is_lent_room_again() {
    let space = spacious(Below::Ext4);
    if !space.uses_passthrough() {
        return;
    }
    let dir = lending(&space, "box", 8 * GIB);
    let path = dir.join("file");
    lent(&path).write_all(&vec![1; 100_000]).unwrap();
    std::thread::sleep(Duration::from_secs(5));
    assert!((4096..1 << 20).contains(&held(&space)), "{} are held for its map", held(&space));
    let file = OpenOptions::new().append(true).open(&path).unwrap();
    assert!(held(&space) > 2 * GIB, "each write asks");
    drop(file);
    // Not while others may need it.
    limit(&["3G"], &dir);
    eventually("nothing is held", SOON, || held(&space) == 0);
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// What is lent is asked back by requests to the mount itself: if all who answer those wait for whoever asks, nobody answers them.
/// It was written out at each look, by the one thread that looks at all: others that were lent room passed the limit meanwhile.
#[test]
fn what_has_allocated_space_is_lent_no_room() {
    let space = spacious(Below::Ext4);
    if !space.uses_passthrough() {
        return;
    }
    let dir = lending(&space, "allocated", 8 * GIB);
    let (path, piece) = (dir.join("file"), 16 << 20);
    let file = lent(&path);
    assert!(held(&space) > 2 * GIB);
    for n in 0..3 {
        fallocate(&file, FallocateFlags::KEEP_SIZE, n * piece, piece).unwrap();
    }
    eventually("what was lent is asked back", SOON, || held(&space) < GIB);
    for n in 0..100 {
        file.write_all_at(&[1; 4096], n * 8192).unwrap();
    }
    drop(file);
    let file = lent(&path);
    file.write_all_at(&[1; 4096], piece).unwrap();
    assert!(held(&space) < GIB, "it is lent room");
    let other = lent(&dir.join("other"));
    assert!(held(&space) > 2 * GIB, "others are not");
    drop((file, other));
    eventually("nothing is held", SOON, || held(&space) == 0);
    let mut file = lent(&path);
    assert!(held(&space) < GIB, "it is lent room later");
    file.write_all(&vec![2; 48 << 20]).unwrap();
    drop(file);
    eventually("once all of it is written it is lent room again", 2 * SOON, || {
        std::thread::sleep(Duration::from_secs(3));
        let _file = lent(&path);
        held(&space) > 2 * GIB
    });
    space.compare_du(&space.mount);
    space.down_and_check();
}

#[test]
fn the_mount_goes_on_while_somebody_gathers_all_room() {
    let space = spacious(Below::Ext4);
    let dir = lending(&space, "box", 20 * GIB);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for n in 0..6 {
            let (dir, stop) = (&dir, &stop);
            scope.spawn(move || {
                let path = dir.join(format!("both {n}"));
                let both = OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap();
                for at in (0..).take_while(|_| !stop.load(Relaxed)) {
                    both.write_all_at(&[1; 1 << 14], (at % 1024) << 14).unwrap();
                }
            });
        }
        for n in 0..2 {
            let (dir, stop) = (&dir, &stop);
            scope.spawn(move || {
                let path = dir.join(format!("lent {n}"));
                while !stop.load(Relaxed) {
                    lent(&path).write_all(&[1; 10_000]).unwrap();
                }
            });
        }
        let large = OpenOptions::new().read(true).write(true).create_new(true).open(dir.join("large")).unwrap();
        let took = (0..60).map(|_| {
            let began = Instant::now();
            let outcome = fallocate(&large, FallocateFlags::empty(), 0, 15 * GIB);
            large.set_len(0).unwrap();
            outcome.map(|()| began.elapsed())
        });
        let took: Result<Vec<Duration>, _> = took.collect();
        stop.store(true, Relaxed);
        let mut took = took.unwrap();
        took.sort();
        // One may meet a disk that others keep busy.
        assert!(took[58] < Duration::from_secs(2) && took[59] < Duration::from_secs(20), "{:?}", &took[55..]);
    });
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// What is stored into a mapping asks nobody: the file has its blocks before.
#[test]
fn a_file_that_is_lent_room_and_then_mapped_has_no_holes_to_be_filled() {
    let space = spacious(Below::Ext4);
    let dir = lending(&space, "box", 8 * GIB);
    let path = dir.join("file");
    let file = lent(&path);
    file.write_all_at(&[1; 4096], 64 << 20).unwrap();
    let both = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let used = || path.metadata().unwrap().blocks() * 512;
    if space.uses_passthrough() {
        assert!(used() >= 64 << 20, "{}", used());
    }
    limit(&[&format!("{}B", counted(&dir).bytes + (8 << 20))], &dir);
    let most = counted_most(&dir);
    let hole = file.write_at(&[1; 4096], 128 << 20);
    if space.uses_passthrough() {
        assert!(is_full(&hole), "{hole:?}");
    } else {
        assert_eq!(hole.unwrap(), 4096);
    }
    file.write_all_at(&[2; 4096], 32 << 20).unwrap();
    both.write_all_at(&[2; 4096], 32 << 20).unwrap();
    let mut map = Map::new(&both, 16 << 20).unwrap();
    map.write(0, &vec![5; 16 << 20]);
    drop(map);
    both.sync_all().unwrap();
    assert!(in_pool(&space) <= most, "{} bytes past the limit", in_pool(&space) - most);
    let mut page = [0; 4096];
    both.read_exact_at(&mut page, 32 << 20).unwrap();
    assert_eq!(page, [2; 4096]);
    drop((file, both));
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// Once somebody opened such a file for both, calls whose place was not known were refused with all room left, and so was every hole, also
/// where that open had failed.
#[test]
fn who_opens_a_file_that_is_lent_room_for_both_keeps_nobody_from_writing_it() {
    let space = spacious(Below::Ext4);
    let dir = lending(&space, "box", 8 * GIB);
    let path = dir.join("file");
    let file = lent(&path);
    file.write_all_at(&vec![1; 65536], 0).unwrap();
    let open = || OpenOptions::new().read(true).write(true).open(&path);
    let ways = |at: u64| {
        let piece = [std::io::IoSlice::new(&[2; 4096])];
        rustix::io::pwritev2(&file, &piece, at, rustix::io::ReadWriteFlags::DSYNC).unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        rustix::io::write(&writer, &[3; 4096]).unwrap();
        let mut to = at + 8192;
        rustix::pipe::splice(&reader, None, &file, Some(&mut to), 4096, rustix::pipe::SpliceFlags::empty()).unwrap();
        assert_eq!(ring_write(&file, &[4; 4096], at + 16384).unwrap(), 4096);
    };
    ways(1 << 20);
    let both = open().unwrap();
    ways(2 << 20);
    let meta = path.metadata().unwrap();
    if space.uses_passthrough() {
        assert!(meta.blocks() * 512 >= meta.len(), "holes of a file that can be mapped are filled");
    }
    drop(both);

    // What does not fit is not opened, and nothing comes of it.
    let path = dir.join("other");
    let other = lent(&path);
    other.write_all_at(&[1; 4096], 64 << 20).unwrap();
    limit(&[&format!("{}B", counted(&dir).bytes + (8 << 20))], &dir);
    let both = OpenOptions::new().read(true).write(true).open(&path);
    if space.uses_passthrough() {
        assert!(is_full(&both), "{both:?}");
    }
    other.write_all_at(&[1; 4096], 128 << 20).unwrap();
    drop((file, other, both));
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// Whatever else might be waiting to write was unknown then, and calls were refused with 2 GiB left.
#[test]
fn a_file_that_was_opened_by_a_thread_that_is_gone_is_written_to_the_limit() {
    let space = spacious(Below::Ext4);
    let dir = lending(&space, "limited", 8 * GIB);
    let path = dir.join("file");
    let file = std::thread::spawn(move || lent(&path)).join().unwrap();
    file.write_all_at(&[1; 4096], 0).unwrap();
    leave(&dir, 8 * GIB, 4 << 20);
    let others = dir.join("other").metadata().unwrap().blocks() * 512;
    // Two who have it open, and then one.
    let mut other = std::process::Command::new("sleep").arg("60").stdout(file.try_clone().unwrap()).spawn().unwrap();
    for n in 0..16 {
        file.write_all_at(&PIECE, (n + 1) * 65536).unwrap();
    }
    other.kill().unwrap();
    other.wait().unwrap();
    until_full(|n| file.write_all_at(&PIECE, (n + 20) * 65536));
    until_full(|n| file.write_all_at(&[2; 4096], GIB + n * 4096));
    assert_filled(&dir, others + (4 << 20) + 4096, Below::Ext4.slack() + 12288, "by another thread");
    drop(file);
    space.down_and_check();
}

/// What a descriptor says of where a call writes may be another thing than what the call does: with `O_APPEND` set as it began and
/// cleared since, what was thought to be written again was new, call by call.
#[test]
fn a_descriptor_that_changes_while_it_is_written_through_passes_no_limit() {
    let space = spacious(Below::Ext4);
    let dir = lending(&space, "limited", 8 * GIB);
    let path = dir.join("file");
    let file = lent(&path);
    file.write_all_at(&vec![1; 32 << 20], 0).unwrap();
    let most = file.metadata().unwrap().blocks() * 512 + (8 << 20);
    limit(&[&format!("{}B", most + 4096)], &dir);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let told = Told(&done);
        scope.spawn(|| {
            while !done.load(Relaxed) {
                for flags in [rustix::fs::OFlags::APPEND, rustix::fs::OFlags::empty()] {
                    rustix::fs::fcntl_setfl(&file, flags).unwrap();
                }
            }
        });
        let data = vec![3; 1 << 20];
        let until = Instant::now() + Duration::from_secs(3);
        while Instant::now() < until {
            let outcome = file.write_at(&data, 0);
            assert!(outcome.is_ok() || is_full(&outcome), "{outcome:?}");
        }
        drop(told);
    });
    let used = counted(&dir).bytes - 4096;
    assert!(used <= most, "{} bytes past the limit", used - most);
    drop(file);
    space.down_and_check();
}

/// It held for itself what it then lacked, and was refused after seconds.
#[test]
fn a_file_that_is_lent_room_gets_all_there_is_by_one_call() {
    for below in Below::all().filter(|below| *below != Below::Tmpfs) {
        let space = spacious(below);
        let dir = lending(&space, "limited", 8 * GIB);
        let file = lent(&dir.join("file"));
        file.write_all_at(&[1; 4096], 0).unwrap();
        let began = Instant::now();
        fallocate(&file, FallocateFlags::empty(), 0, 7 * GIB).unwrap();
        assert!(began.elapsed() < Duration::from_secs(3), "{below:?}: {:?}", began.elapsed());
        limit(&[&format!("{}B", file.metadata().unwrap().blocks() * 512 + (1 << 20) + 4096)], &dir);
        let all = file.metadata().unwrap().blocks() * 512 + (1 << 20);
        until_full(|n| file.write_all_at(&PIECE, 7 * GIB + n * 65536));
        until_full(|n| file.write_all_at(&[2; 4096], 8 * GIB + n * 4096));
        assert_filled(&dir, all, below.slack() + 8192, "after fallocate");
        drop(file);
        space.down_and_check();
    }
}

/// Each of them could be looked at too seldom.
#[test]
fn no_more_files_are_lent_room_than_can_be_looked_at() {
    const FILES: u64 = 600;
    let mut ground = Ground::new();
    let pool = ground.tmpfs("disk", 4 << 30);
    let space = over(ground, &pool, &[]);
    if !space.uses_passthrough() {
        return;
    }
    let dir = lending(&space, "dir", 3 << 40);
    let files: Vec<File> = (0..FILES).map(|n| lent(&dir.join(n.to_string()))).collect();
    let each = held(&space) / 512;
    assert!((5 * GIB / 2..3 * GIB).contains(&each), "{each}");
    for file in &files {
        file.write_all_at(&[1; 4096], 0).unwrap();
    }
    drop(files);
    eventually("nothing is held", SOON, || held(&space) == 0);
    space.compare_du(&space.mount);
    // Room is lent again when others are done.
    let _file = lent(&dir.join("0"));
    assert!(held(&space) > 2 * GIB);
}

/// What the limit of a directory allows to lie in it.
fn counted_most(dir: &Path) -> u64 {
    let all = ullage(["limit".as_ref(), dir.as_os_str(), "--json".as_ref()]).json();
    all["limits"][0]["limit"].as_u64().unwrap()
}

#[test]
fn a_file_that_is_lent_room_is_bound_by_its_new_owners_limit() {
    let space = spacious(Below::Ext4);
    limit(&["--user", "1234", "1M"], &space.mount);
    let dir = lending(&space, "box", 8 * GIB);
    let path = dir.join("file");
    let file = lent(&path);
    file.write_all_at(&vec![1; 65536], 0).unwrap();
    fchown(&file, Some(1234), Some(1234)).unwrap();
    let written = until_full(|n| file.write_all_at(&[2; 16384], (1 + n) * 65536));
    assert!((40..64).contains(&written), "{written} pieces of 16 KiB fit");
    assert!(path.metadata().unwrap().blocks() * 512 <= 1 << 20);
    chown(&path, Some(0), Some(0)).unwrap();
    file.write_all_at(&vec![3; 4 << 20], 8 << 20).unwrap();
    drop(file);
    space.compare_du(&space.mount);
    space.down_and_check();
}

#[test]
fn who_wrote_much_by_one_call_or_is_gone_leaves_nothing_held() {
    // What a closed file owes is held for fifteen times as long.
    let space = spacious_with(Below::Ext4, &["--linger-ms", "200"]);
    let dir = lending(&space, "box", 8 * GIB);
    let began = Instant::now();
    let mut count = 0;
    // As mail and news do: made, written, and gone or given another name at once.
    while began.elapsed() < Duration::from_secs(2) {
        let (path, other) = (dir.join("draft"), dir.join(format!("{}", count % 50)));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).unwrap();
        file.write_all(&vec![3; 40_000]).unwrap();
        match count % 3 {
            0 => fs::rename(&path, &other).unwrap(),
            1 => fs::remove_file(&path).unwrap(),
            _ => {
                drop(file);
                fs::rename(&path, &other).unwrap();
            }
        }
        count += 1;
    }
    assert!(count > 100);
    eventually("nothing is held", SOON, || held(&space) == 0);
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// Nobody is left who could stop them; what they wrote is counted afterwards.
#[test]
fn what_a_descriptor_that_was_lent_room_writes_after_a_kill_is_counted() {
    let space = spacious(Below::Ext4);
    let dir = lending(&space, "box", 8 * GIB);
    let file = lent(&dir.join("file"));
    file.write_all_at(&vec![1; 1 << 20], 0).unwrap();
    file.sync_all().unwrap();
    let unseen = space.uses_passthrough();
    space.kill();
    let after = file.write_all_at(&vec![2; 1 << 20], 1 << 20);
    assert_eq!(after.is_ok(), unseen, "{after:?}");
    drop(file);
    space.up();
    let used = dir.join("file").metadata().unwrap().blocks() * 512;
    assert!(used >= if after.is_ok() { 2 << 20 } else { 1 << 20 }, "{used}");
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// xfs gives such a file more than is written to it, and is told otherwise only of one without any blocks.
#[test]
fn what_xfs_gives_more_than_it_needs_is_lent_no_room() {
    let space = spacious(Below::Xfs);
    if !space.uses_passthrough() {
        return;
    }
    let dir = lending(&space, "box", 8 * GIB);
    let path = dir.join("file");
    fs::write(space.path("file"), vec![1; 100_000]).unwrap();
    fs::rename(space.path("file"), &path).unwrap();
    // Whoever has been open in the kernel is not lent to for other reasons.
    std::thread::sleep(Duration::from_secs(3));
    let mut file = lent(&path);
    assert!(held(&space) < GIB, "lent to a file that takes more than it needs");
    file.write_all(&vec![2; 200_000]).unwrap();
    assert_eq!(counted(&dir).bytes, 4096 + 200_704);
    drop(file);
    File::create(&path).unwrap();
    eventually("room is lent to one that is empty", SOON, || {
        let _file = lent(&path);
        held(&space) > 2 * GIB
    });
    let mut file = lent(&path);
    for _ in 0..1000 {
        file.write_all(&[3; 10_000]).unwrap();
        assert!(file.metadata().unwrap().blocks() * 512 <= file.metadata().unwrap().len().next_multiple_of(4096));
    }
    drop(file);
    space.compare_du(&space.mount);
    space.down_and_check();
}
