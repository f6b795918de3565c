//! Files that were opened for writing before a limit bounded them, and are written in the kernel: they are stopped.

use super::bed::{Below, is_full, limit, set, until_full};
use super::growth::{WAYS, source};
use super::lend::CALL;
use super::writers::Spinners;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use ullage_mount_tests::process;
use ullage_mount_tests::run::{eventually, run, ullage};
use ullage_mount_tests::space::Space;

const ROOM: u64 = 1 << 20;

/// What xfs allocates beyond what is written.
fn overshoot(below: Below) -> u64 {
    u64::from(below == Below::Xfs) * ROOM
}

/// Those that go on through a handle of before.
const OLD: [&str; 6] = ["write", "odd pwrite", "32-bit pwrite", "sendfile", "splice", "io_uring"];

/// A file that is open for writing, and limited since.
fn before(space: &Space, name: &str, room: u64) -> (PathBuf, File) {
    let dir = space.path(name);
    fs::create_dir(&dir).unwrap();
    let path = dir.join("file");
    let file = OpenOptions::new().write(true).create_new(true).open(&path).unwrap();
    file.write_all_at(&[1; 4096], 0).unwrap();
    let answer = set(&[&format!("{}B", room + 4096), "--json"], &dir).json();
    assert_eq!(answer["unbound"], u64::from(space.uses_passthrough()), "{answer}");
    (path, file)
}

/// The smaller of two looks: what xfs gives its place just then is counted twice, by whoever looks between two steps.
fn used(path: &Path) -> u64 {
    let look = || path.metadata().unwrap().blocks() * 512;
    let first = look();
    thread::sleep(Duration::from_millis(2));
    first.min(look())
}

/// Writes until nothing fits, and tells how much there is then. What xfs allocated ahead counts, and may be taken back once
/// the file was refused: so there the first refusal is not the last.
fn filled(file: &File, path: &Path, below: Below) -> u64 {
    let tries = if below == Below::Xfs { 5 } else { 1 };
    for _ in 0..tries {
        let end = path.metadata().unwrap().len();
        until_full(|n| file.write_all_at(&[1; 4096], end.next_multiple_of(4096) + n * 4096));
        if used(path) + below.slack() + 8192 >= ROOM {
            return used(path);
        }
    }
    panic!("refused with {} bytes left", ROOM - used(path));
}

fn stopped(below: Below) {
    let mut space = below.space();
    space.limit(Duration::from_secs(120));
    let source = source(&space);
    for (how, way) in WAYS.iter().filter(|(how, _)| OLD.contains(how)) {
        let (path, file) = before(&space, how, ROOM);
        let mode = path.metadata().unwrap().mode() & 0o7777;
        way(&file, &source);
        let full = used(&path);
        let fits = below == Below::Xfs || full + below.slack() + CALL >= ROOM;
        assert!(fits, "{how}: refused with {} bytes left", ROOM - full);
        assert!(full <= ROOM + overshoot(below), "{how}: {} bytes past the limit", full - ROOM);
        // Less fits still, and then nothing.
        let full = filled(&file, &path, below);
        assert!(full <= ROOM + overshoot(below), "{how}: {} bytes past the limit", full - ROOM);
        for n in 0..50 {
            // What xfs allocated ahead it may take back at any time, and then there is room.
            let room = below == Below::Xfs && used(&path) < full;
            let again = file.write_at(&[1; 4096], 3 * ROOM + n * 4096);
            assert!(is_full(&again) || room, "{how}: went on after it was refused: {again:?}");
        }
        let after = used(&path);
        if below == Below::Xfs {
            assert!(after <= ROOM + overshoot(below), "{how}: {} bytes past the limit", after - ROOM);
        } else {
            assert_eq!(after, full, "{how}");
        }
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, mode);
        // What is cut off can be written again.
        file.set_len(0).unwrap();
        file.write_all_at(&vec![2; 65536], 0).unwrap();
        let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
        assert_eq!(rustix::fs::getxattr(&*name, c"security.capability", &mut [0; 64]), Err(rustix::io::Errno::NODATA));
        fs::remove_file(&path).unwrap();
    }
    drop(source);
    space.compare_du(&space.mount);
    space.down_and_check();
}

#[test]
fn who_writes_since_before_a_limit_is_stopped_on_tmpfs() {
    stopped(Below::Tmpfs);
}

#[test]
fn who_writes_since_before_a_limit_is_stopped_on_ext4() {
    stopped(Below::Ext4);
}

#[test]
fn who_writes_since_before_a_limit_is_stopped_on_xfs() {
    stopped(Below::Xfs);
}

#[test]
fn who_writes_since_before_a_limit_is_stopped_on_btrfs() {
    if Below::Btrfs.is_had() {
        stopped(Below::Btrfs);
    }
}

/// What each write might have added to the map was given back with its end, and ext4 finds those blocks when it writes the data out.
#[test]
fn the_map_of_what_is_written_here_and_there_since_before_a_limit_is_within_it_on_ext4() {
    let space = Below::Ext4.space();
    let room = 40 << 20;
    let (path, file) = before(&space, "box", room);
    until_full(|n| file.write_all_at(&[1; 4096], (n + 1) * 8192));
    file.sync_all().unwrap();
    let full = used(&path);
    assert!(full <= room, "{} bytes past the limit", full - room);
    assert!(full + Below::Ext4.slack() + 8192 >= room, "refused with {} bytes left", room - full);
    drop(file);
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// Writes a mebibyte every two milliseconds until it is refused.
fn paced(file: &mut File) -> io::Result<()> {
    let data = vec![3; 1 << 20];
    for _ in 0..100 {
        let next = Instant::now() + Duration::from_millis(2);
        file.write_all(&data)?;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

#[test]
fn nobody_is_stopped_while_there_is_room_and_all_go_on_once_there_is_again() {
    let space = Below::Ext4.space();
    let room = 24 << 20;
    let (path, mut file) = before(&space, "box", room);
    let refused = paced(&mut file);
    if !space.uses_passthrough() {
        assert!(is_full(&refused));
        return;
    }
    assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    let full = used(&path);
    assert!(full + (1 << 20) + Below::Ext4.slack() >= room, "refused with {} bytes left", room - full);
    assert!(full <= room, "{} bytes past the limit", full - room);
    // A file beside it is bound as ever.
    let (other, place) = (path.with_file_name("other"), path.parent().unwrap());
    assert!(is_full(&fs::write(&other, vec![1; 2 << 20])));
    until_full(|_| file.write_all(&[1; 8192]));
    limit(&["200M"], place);
    paced_once(&mut file);
    limit(&["26M"], place);
    let buffers = [io::IoSlice::new(&[6; 3000]), io::IoSlice::new(&[7; 5192])];
    until_full(|_| file.write_vectored(&buffers).map(drop));
    let full = used(&path) + used(&other);
    assert!(full <= (26 << 20) - 4096, "{} bytes past the limit", full - (26 << 20) + 4096);
    limit(&["1M"], place);
    until_full(|_| file.write_all(&vec![5; 65536]));
    limit(&["none"], place);
    paced_once(&mut file);
    chown(&path, Some(1234), None).unwrap();
    drop(file);
    space.compare_du(&space.mount);
    space.down_and_check();
}

fn paced_once(file: &mut File) {
    file.write_all(&vec![4; 1 << 20]).unwrap();
}

#[test]
fn who_is_over_a_users_limit_is_told_so_and_may_cut_or_give_away() {
    let space = Below::Ext4.space();
    let path = space.path("file");
    let mut file = OpenOptions::new().append(true).create_new(true).open(&path).unwrap();
    file.write_all(&[1; 4096]).unwrap();
    chown(&path, Some(1234), Some(1234)).unwrap();
    limit(&["--user", "1234", "1M"], &space.mount);
    let refused = (0..100_000).find_map(|_| file.write_all(&vec![2; 65536]).err()).unwrap();
    assert_eq!(refused.raw_os_error(), Some(libc::EDQUOT));
    if space.uses_passthrough() {
        assert_eq!(file.write_all(&vec![2; 65536]).unwrap_err().raw_os_error(), Some(libc::EDQUOT));
        // The owner's own remedies.
        let cut = OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
        assert_eq!(path.metadata().unwrap().len(), 0);
        drop(cut);
        file.write_all(&vec![3; 65536]).unwrap();
        until_full(|_| file.write_all(&vec![4; 65536]));
    }
    chown(&path, Some(0), Some(0)).unwrap();
    file.write_all(&vec![5; 65536]).unwrap();
    drop(file);
    space.down_and_check();
}

#[test]
fn a_starved_machine_stops_who_writes_since_before_a_limit() {
    let space = Below::Ext4.space();
    let room = 16 << 20;
    let (path, mut file) = before(&space, "box", room);
    let _spinners = Spinners::new(64);
    let refused = (0..).find_map(|_| file.write_all(&vec![3; 65536]).err()).unwrap();
    assert!(is_full::<()>(&Err(refused)));
    let full = used(&path);
    assert!(full <= room, "{} bytes past the limit", full - room);
    assert!(full + CALL + Below::Ext4.slack() >= room, "refused with {} bytes left", room - full);
}

/// cp -a, tar and install give a file away while they have it open. They could not, to users with a limit.
#[test]
fn an_open_file_is_given_to_a_limited_user_and_bound_from_then_on() {
    let space = Below::Ext4.space();
    limit(&["--user", "1234", "1M"], &space.mount);
    let path = space.path("file");
    let mut file = OpenOptions::new().write(true).create_new(true).open(&path).unwrap();
    file.write_all(&vec![1; 65536]).unwrap();
    std::os::unix::fs::fchown(&file, Some(1234), Some(1234)).unwrap();
    let used_by_user = || {
        let all = ullage(["limit".as_ref(), space.mount.as_os_str(), "--json".as_ref()]).json();
        all["limits"][0]["used"].as_u64().unwrap()
    };
    assert!((65536..=65536 + Below::Ext4.slack()).contains(&used_by_user()), "{}", used_by_user());
    let written = until_full(|_| file.write_all(&[2; 16384]));
    assert!((40..64).contains(&written), "{written} pieces of 16 KiB fit");
    assert_eq!(file.write_all(&vec![2; 65536]).unwrap_err().raw_os_error(), Some(libc::EDQUOT));
    assert!(used(&path) <= 1 << 20);
    drop(file);
    // What does not fit at all is refused, and stays whose it was.
    let large = space.path("large");
    fs::write(&large, vec![1; 2 << 20]).unwrap();
    assert_eq!(chown(&large, Some(1234), None).unwrap_err().raw_os_error(), Some(libc::EDQUOT));
    assert_eq!(large.metadata().unwrap().uid(), 0);
    // As programs do it.
    limit(&["--user", "1234", "20M"], &space.mount);
    let tree = space.path("tree");
    fs::create_dir(&tree).unwrap();
    for n in 0..50 {
        fs::write(tree.join(n.to_string()), vec![n; 5000]).unwrap();
        chown(tree.join(n.to_string()), Some(1234), Some(1234)).unwrap();
    }
    run(Command::new("cp").arg("-a").arg(&tree).arg(space.path("copy"))).ok();
    run(Command::new("sh").arg("-c").arg("cd $0 && mkdir out && tar cf - tree | tar xf - -C out").arg(&space.mount))
        .ok();
    for copy in ["copy/7", "out/tree/7"] {
        assert_eq!(space.path(copy).metadata().unwrap().uid(), 1234, "{copy}");
    }
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// What makes writes ask waits for an answer of ours. Killed at that moment, a thread of the daemon kept the connection open whose end it
/// waited for, or the rings in which others' requests were, and everybody in the mount stood still for ever. Run with `enable_uring` on,
/// this is over io_uring.
#[test]
fn a_kill_while_writes_ask_leaves_nobody_waiting() {
    let mut space = Below::Ext4.space();
    space.limit(Duration::from_secs(120));
    for round in 0..12 {
        let dir = space.path(format!("box{round}"));
        fs::create_dir(&dir).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..8)
            .map(|n| {
                let file = File::create(dir.join(n.to_string())).unwrap();
                let stop = stop.clone();
                thread::spawn(move || {
                    for n in (0u64..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                        let _ = file.write_at(&[1; 4096], n * 7 % 1500 * 4096);
                        if n % 5 == 0 && file.sync_data().is_err() {
                            break;
                        }
                    }
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(100));
        limit(&["60M"], &dir);
        thread::sleep(Duration::from_millis(150 + round * 17));
        space.kill();
        stop.store(true, Ordering::Relaxed);
        eventually("nobody waits", Duration::from_secs(10), || writers.iter().all(thread::JoinHandle::is_finished));
        space.up();
    }
    space.down_and_check();
}

/// The processes that make calls in the mount for the daemon.
fn envoys(space: &Space) -> Vec<u32> {
    let child = format!("PPid:\t{}\n", space.pid());
    let is_one = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/status"))
            .is_ok_and(|status| status.starts_with("Name:\tullage-envoy\n") && status.contains(&child))
    };
    let processes = fs::read_dir("/proc").unwrap().filter_map(|it| it.unwrap().file_name().to_str()?.parse().ok());
    processes.filter(is_one).collect()
}

/// What makes writes ask may be ended by anybody who may: others are started when they are needed, and end with the daemon.
#[test]
fn who_makes_writes_ask_may_be_ended() {
    let mut space = Below::Ext4.space();
    space.limit(Duration::from_secs(120));
    if !space.uses_passthrough() {
        return;
    }
    // Each write to what may be executed needs one, and to other files none may be needed any more.
    for (round, mode) in [0o755, 0o644, 0o755, 0o644].into_iter().enumerate() {
        let (path, file) = before(&space, &format!("box{round}"), ROOM);
        file.set_permissions(Permissions::from_mode(mode)).unwrap();
        let before = envoys(&space);
        assert!(!before.is_empty(), "nobody makes writes ask");
        for pid in &before {
            process::kill(*pid);
        }
        until_full(|n| file.write_all_at(&[1; 4096], (n + 1) * 4096));
        assert!(used(&path) <= ROOM + 4096, "{} bytes are past the limit", used(&path) - ROOM - 4096);
        if mode == 0o755 {
            let after = envoys(&space);
            assert!(!after.is_empty() && after.iter().all(|pid| !before.contains(pid)), "{before:?}, then {after:?}");
        }
    }
    let left = envoys(&space);
    assert!(!left.is_empty(), "nobody makes writes ask");
    space.down_and_check();
    assert!(left.iter().all(|pid| !process::runs(*pid)), "some of {left:?} are left");
}
