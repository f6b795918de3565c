//! Limits over time: set beside open files, kept over ends of the daemon, seen by ordinary users.

use super::bed::{Below, assert_filled, is_full, limit, limited, set, until_full};
use super::lend::{GIB, held, lending, lent, spacious};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::process::Command;
use std::time::Duration;
use ullage_mount_tests::run::{eventually, run, ullage};
use ullage_mount_tests::space::Space;

const ROOM: u64 = 1 << 20;

#[test]
fn limits_outlive_the_daemon() {
    let space = Below::Ext4.space();
    let dir = limited(&space, "box", ROOM);
    fs::write(dir.join("file"), vec![1; 600_000]).unwrap();
    space.down_and_check();
    space.up();
    assert!(is_full(&fs::write(dir.join("more"), vec![1; 600_000])));
    assert_filled(&dir, ROOM, Below::Ext4.slack(), "after a new start");
    fs::remove_file(dir.join("more")).unwrap();
    space.kill();
    space.up();
    assert!(is_full(&fs::write(dir.join("more"), vec![1; 600_000])));
    assert_filled(&dir, ROOM, Below::Ext4.slack(), "after a kill");
    // A limit goes with its directory.
    fs::remove_dir_all(&dir).unwrap();
    space.sync();
    let all = ullage(["limit".as_ref(), space.mount.as_os_str(), "--json".as_ref()]).json();
    assert_eq!(all["limits"].as_array().map(Vec::len), Some(0), "{all}");
    space.down_and_check();
}

#[test]
fn a_limit_below_use_stops_growth_only() {
    let space = Below::Tmpfs.space();
    let dir = space.path("box");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("file"), vec![1; 1 << 20]).unwrap();
    limit(&["100K"], &dir);
    let file = OpenOptions::new().write(true).open(dir.join("file")).unwrap();
    file.write_all_at(&vec![2; 65536], 0).unwrap();
    assert!(is_full(&file.write_all_at(&[2; 4096], 2 << 20)));
    assert!(is_full(&fs::create_dir(dir.join("dir"))));
    fs::write(dir.join("empty"), "").unwrap();
    fs::rename(dir.join("file"), dir.join("renamed")).unwrap();
    file.set_len(50_000).unwrap();
    until_full(|n| file.write_all_at(&[3; 4096], 65536 + n * 4096));
    assert_filled(&dir, 96 << 10, 0, "below use");
    limit(&["none"], &dir);
    file.write_all_at(&vec![4; 1 << 20], 0).unwrap();
    drop(file);
    space.compare_du(&space.mount);
    space.down_and_check();
}

#[test]
fn files_open_before_a_limit_are_told_and_may_not_move_under_it() {
    let space = Space::new();
    let (inside, dir) = (space.path("box/inside"), space.path("box"));
    fs::create_dir(&dir).unwrap();
    let open = |path: &std::path::Path| OpenOptions::new().write(true).create(true).truncate(false).open(path).unwrap();
    let (before, outside) = (open(&inside), open(&space.path("outside")));
    before.write_all_at(&[1; 8192], 0).unwrap();
    outside.write_all_at(&[1; 8192], 0).unwrap();
    let answer = set(&["64K", "--json"], &dir).json();
    space.assert_passthrough();
    if !space.uses_passthrough() {
        // The server sees every write, also through handles of before.
        assert_eq!(answer["unbound"], 0, "{answer}");
        until_full(|n| before.write_all_at(&[2; 4096], 8192 + n * 4096));
        assert_filled(&dir, 60 << 10, Below::Ext4.slack() + 4096, "through an old handle");
        drop((before, outside));
        space.down_and_check();
        return;
    }
    assert_eq!(answer["unbound"], 1, "{answer}");
    let moved = fs::rename(space.path("outside"), dir.join("outside")).unwrap_err();
    assert_eq!(moved.raw_os_error(), Some(libc::EXDEV));
    fs::create_dir(space.path("tree")).unwrap();
    fs::rename(space.path("outside"), space.path("tree/file")).unwrap();
    let moved = fs::rename(space.path("tree"), dir.join("tree")).unwrap_err();
    assert_eq!(moved.raw_os_error(), Some(libc::EXDEV));
    // mv copies then, and the copy is bound.
    run(Command::new("mv").arg(space.path("tree/file")).arg(dir.join("moved"))).ok();
    // Through a new handle nothing passes the limit, beside one from before it.
    let beside = open(&inside);
    until_full(|n| beside.write_all_at(&[2; 4096], 8192 + n * 4096));
    assert_filled(&dir, 60 << 10, Below::Ext4.slack() + 4096, "beside an old handle");
    drop((before, beside, outside));
    let again = open(&inside);
    assert!(is_full(&again.write_all_at(&vec![3; 65536], 1 << 20)));
    drop(again);
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// With the handle that was lent room it counted as written by nobody unseen, though one that was opened outside went on: it moved back below
/// the limit, and passed it by whatever was written.
#[test]
fn a_file_that_was_lent_room_and_moved_out_may_not_move_back_while_it_is_open() {
    let space = spacious(Below::Ext4);
    let dir = lending(&space, "box", 8 * GIB);
    if !space.uses_passthrough() {
        return;
    }
    for n in 0..10 {
        let (inside, outside) = (dir.join(format!("file {n}")), space.path(format!("file {n}")));
        let before = lent(&inside);
        before.write_all_at(&[1; 4096], 0).unwrap();
        fs::rename(&inside, &outside).unwrap();
        let after = lent(&outside);
        drop(before);
        // The end of that handle takes a moment, and before the next look at the file.
        std::thread::sleep(Duration::from_millis(2));
        let moved = fs::rename(&outside, &inside).map_err(|error| error.raw_os_error());
        assert_eq!(moved, Err(Some(libc::EXDEV)), "file {n}");
        after.write_all_at(&[2; 4096], 0).unwrap();
    }
    eventually("nothing is held", Duration::from_secs(10), || held(&space) == 0);
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// The kernel says a moment later that it has let go of what was removed: every sixth call or so was refused, with room left.
#[test]
fn who_makes_and_removes_at_a_limit_is_never_refused() {
    let space = Below::Tmpfs.space();
    let dir = limited(&space, "box", 2 << 20);
    limit(&["--inodes", "2"], &dir);
    let path = dir.join("name");
    let data = vec![1; 3 << 19];
    for n in 0..500 {
        fs::write(&path, if n % 10 == 0 { &data[..] } else { &[] }).unwrap();
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        fs::remove_dir(&path).unwrap();
        std::os::unix::fs::symlink("target", &path).unwrap();
        fs::remove_file(&path).unwrap();
    }
    space.down_and_check();
}

/// Pages cached while a file went through the server were believed after it had been written in the kernel.
#[test]
fn limits_that_come_and_go_show_the_same_data() {
    let space = Space::new();
    let dir = space.path("box");
    fs::create_dir(&dir).unwrap();
    let path = dir.join("file");
    for round in 0..4u8 {
        limit(&[if round % 2 == 0 { "1M" } else { "none" }], &dir);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        if round > 0 {
            let mut before = [0; 8192];
            file.read_exact_at(&mut before, 0).unwrap();
            assert!(before == [round - 1; 8192], "round {round} sees {}", before[0]);
        }
        file.write_all_at(&[round; 8192], 0).unwrap();
        let mut now = [0; 8192];
        file.read_exact_at(&mut now, 0).unwrap();
        assert!(now == [round; 8192]);
    }
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// Gives a file without a name its first one.
fn name(file: &fs::File, path: &std::path::Path) -> rustix::io::Result<()> {
    let from = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
    let follow = rustix::fs::AtFlags::SYMLINK_FOLLOW;
    rustix::fs::linkat(rustix::fs::CWD, from, rustix::fs::CWD, path, follow)
}

#[test]
fn an_unnamed_file_from_outside_gets_no_name_inside_while_it_is_written() {
    let space = Space::new();
    let dir = limited(&space, "box", ROOM);
    let unnamed = |place| OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(place).unwrap();
    let outside = unnamed(&space.mount);
    outside.write_all_at(&vec![1; 2 << 20], 0).unwrap();
    space.assert_passthrough();
    // What is written unseen does not come in at all; what the server sees is too much.
    let refused = if space.uses_passthrough() { rustix::io::Errno::XDEV } else { rustix::io::Errno::NOSPC };
    assert_eq!(name(&outside, &dir.join("file")).unwrap_err(), refused);
    let inside = unnamed(&dir);
    until_full(|n| inside.write_all_at(&vec![1; 65536], n * 65536));
    name(&inside, &dir.join("file")).unwrap();
    drop((inside, outside));
    assert_filled(&dir, ROOM, Below::Ext4.slack() + 4096, "unnamed");
    space.down_and_check();
}

/// The whole file comes in with its first name: less was asked back than it needs, and it was refused every time.
#[test]
fn an_unnamed_file_gets_its_first_name_where_the_room_is_only_lent() {
    let space = spacious(Below::Ext4);
    limit(&["40G"], &space.mount);
    let dir = lending(&space, "box", 8 * GIB);
    let allocated = |options: &mut OpenOptions, path: &std::path::Path| {
        let file = options.read(true).write(true).open(path).unwrap();
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 3 * GIB).unwrap();
        file
    };
    drop(allocated(OpenOptions::new().create_new(true), &dir.join("other")));
    let unnamed = allocated(OpenOptions::new().custom_flags(libc::O_TMPFILE), &space.mount);
    let mut tries = std::iter::repeat_with(|| {
        std::thread::sleep(Duration::from_millis(50));
        lent(&dir.join("lent"))
    });
    let file = tries.find(|_| !space.uses_passthrough() || held(&space) > 2 * GIB);
    name(&unnamed, &dir.join("named")).unwrap();
    drop((file, unnamed));
    space.compare_du(&space.mount);
    space.down_and_check();
}

#[test]
fn an_ordinary_user_meets_limits_and_sees_them() {
    let space = Below::Tmpfs.space();
    let dir = space.path("shared");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
    limit(&["--user", "nobody", "256K"], &space.mount);
    let nobody = |program: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", program]);
        command
    };
    let to = format!("of={}", dir.join("file").display());
    let outcome = run(nobody("dd").args(["if=/dev/zero", "bs=4k", &to]));
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.err.contains("quota"), "{}", outcome.err);
    assert_eq!(fs::metadata(dir.join("file")).unwrap().len(), 256 << 10);
    // The block of a directory has no room any more; files of others do.
    assert_eq!(run(nobody("mkdir").arg(dir.join("dir"))).code, Some(1));
    fs::write(dir.join("root"), vec![1; 1 << 20]).unwrap();
    let binary = ullage_mount_tests::binary::path();
    space.compare_du(&space.mount);
    let own = run(nobody("env").arg(binary).arg("limit").arg(&space.mount).arg("--json")).json();
    assert_eq!(own["limits"].as_array().map(Vec::len), Some(1));
    assert_eq!((&own["limits"][0]["used"], &own["limits"][0]["limit"]), (&262_144.into(), &262_144.into()), "{own}");
    run(nobody("env").arg(binary).arg("limit").arg(&space.mount).args(["--user", "nobody", "1G"])).refused("only root");
    space.down_and_check();
}
