//! What makes the kernel ask before each write to a file near its limit: nobody sees it, and it goes when there is room again.

use super::bed::{Below, in_pool, is_full, limit, until_full};
use super::lend::{GIB, leave, lending, lent, spacious};
use crate::hazards::privileges::give_capability;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, fchown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use ullage_mount_tests::run::{eventually, run};

const USER: u32 = 1234;
static PIECE: [u8; 65536] = [2; 65536];

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().mode() & 0o7777
}

/// A file of a user's below a limit with so much room, open and refused once; its place.
fn refused(space: &ullage_mount_tests::space::Space, left: u64) -> (std::path::PathBuf, File) {
    let dir = lending(space, "box", 8 * GIB);
    fs::set_permissions(&dir, Permissions::from_mode(0o777)).unwrap();
    let path = dir.join("file");
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o640).open(&path).unwrap();
    fchown(&file, Some(USER), Some(USER)).unwrap();
    file.write_all(&[1; 4096]).unwrap();
    leave(&dir, 8 * GIB, left);
    let refused = (0..10_000).find_map(|_| file.write_all(&PIECE).err());
    assert!(is_full::<()>(&Err(refused.unwrap())));
    (path, file)
}

#[test]
fn what_makes_the_kernel_ask_is_seen_by_nobody() {
    let space = spacious(Below::Ext4);
    let (path, file) = refused(&space, 4 << 20);
    let other = path.with_file_name("name");
    let listed = || {
        let out =
            run(Command::new("find").arg(path.parent().unwrap()).args(["-name", "file", "-printf", "%m %M %u %g"]));
        out.out.trim().to_owned()
    };
    for round in 0..3 {
        assert_eq!((mode(&path), file.metadata().unwrap().mode() & 0o7777), (0o640, 0o640), "round {round}");
        assert_eq!(listed(), format!("640 -rw-r----- {USER} {USER}"));
        until_full(|n| file.write_all_at(&[3; 4096], (1 << 30) + (round * 1000 + n) * 4096));
        // What is changed meanwhile is what was asked for.
        fs::set_permissions(&path, Permissions::from_mode(0o604)).unwrap();
        assert_eq!(mode(&path), 0o604);
        chown(&path, Some(USER), Some(USER + 1)).unwrap();
        assert_eq!((mode(&path), path.metadata().unwrap().gid()), (0o604, USER + 1));
        chown(&path, Some(USER), Some(USER)).unwrap();
        fs::hard_link(&path, &other).unwrap();
        assert_eq!((mode(&path), mode(&other)), (0o604, 0o604));
        fs::remove_file(&other).unwrap();
        fs::rename(&path, &other).unwrap();
        fs::rename(&other, &path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        assert!(is_full(&file.write_at(&PIECE, 2 << 30)), "round {round}");
        let copy = space.path("copy");
        run(Command::new("cp").arg("-p").args([&path, &copy])).ok();
        assert_eq!(mode(&copy), 0o640);
        fs::remove_file(&copy).unwrap();
    }
    // Nobody may run it, then or afterwards.
    let run_it = || [0, USER, USER + 2].map(|user| Command::new(&path).uid(user).gid(USER).spawn().is_ok());
    assert_eq!(run_it(), [false; 3]);
    drop(file);
    assert_eq!(run_it(), [false; 3]);
    assert_eq!(mode(&path), 0o640);
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// Their length was told as 1, and who then asked for them was refused with ERANGE.
#[test]
fn capabilities_of_a_file_whose_writes_ask_can_be_read() {
    let space = spacious(Below::Ext4);
    let (path, file) = refused(&space, 4 << 20);
    give_capability(&path);
    // It asks for the length first.
    let told = run(Command::new("getfattr").args(["-e", "hex", "-n", "security.capability"]).arg(&path)).ok();
    assert!(told.contains("security.capability=0x0100000200"), "{told}");
    assert!(is_full(&file.write_at(&PIECE, 2 << 30)), "it asks all the same");
    drop(file);
    space.down_and_check();
}

/// The kernel took no attributes of such a file that it was not told of in a SETATTR.
#[test]
fn what_an_acl_allows_counts_also_while_the_kernel_asks() {
    let space = spacious(Below::Ext4);
    let (path, file) = refused(&space, 4 << 20);
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let other = USER + 7;
    let reads = || Command::new("head").arg("-c1").arg(&path).uid(other).gid(other).stderr(Stdio::null()).output();
    assert!(!reads().unwrap().status.success());
    run(Command::new("setfacl").arg("-m").arg(format!("u:{other}:rx")).arg(&path)).ok();
    eventually("the user may read it", Duration::from_secs(5), || reads().unwrap().status.success());
    assert!(is_full(&file.write_at(&PIECE, 2 << 30)));
    assert_eq!(mode(&path), 0o650);
    run(Command::new("setfacl").arg("-b").arg(&path)).ok();
    eventually("the user may not any more", Duration::from_secs(5), || !reads().unwrap().status.success());
    drop(file);
    space.down_and_check();
}

/// Ordinary users' writes take more away from such a file than root's: each must be let go on, and stopped, like them.
#[test]
fn an_ordinary_user_is_stopped_by_the_block_as_well() {
    let space = spacious(Below::Ext4);
    let dir = lending(&space, "box", 8 * GIB);
    fs::set_permissions(&dir, Permissions::from_mode(0o777)).unwrap();
    let path = dir.join("file");
    let mut cat = Command::new("sh")
        .args(["-c", "exec cat > file"])
        .current_dir(&dir)
        .uid(USER)
        .gid(USER)
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut pipe = cat.stdin.take().unwrap();
    pipe.write_all(&[1; 4096]).unwrap();
    while path.metadata().map_or(0, |meta| meta.len()) < 4096 {
        std::thread::sleep(Duration::from_millis(5));
    }
    leave(&dir, 8 * GIB, 6 << 20);
    let most = in_pool(&space) + (6 << 20);
    while pipe.write_all(&[2; 4096]).is_ok() {}
    assert!(!cat.wait().unwrap().success());
    let used = in_pool(&space);
    assert!(used <= most, "{} bytes past the limit", used - most);
    // A pipe's fill, read at once, was refused as a whole.
    assert!(used + (128 << 10) + 8192 + Below::Ext4.slack() >= most, "refused with {} bytes left", most - used);
    assert_eq!(mode(&path) & 0o7000, 0);
    space.compare_du(&space.mount);
    space.down_and_check();
}

#[test]
fn nobody_is_asked_any_more_once_there_is_room_again() {
    let space = spacious(Below::Ext4);
    let (path, file) = refused(&space, 4 << 20);
    let dir = path.parent().unwrap();
    let pace = || {
        let began = Instant::now();
        for n in 0..2000 {
            file.write_all_at(&[4; 4096], n % 512 * 4096).unwrap();
        }
        began.elapsed()
    };
    let asked = pace();
    limit(&["none"], dir);
    let mut free = pace();
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(100));
        free = free.min(pace());
    }
    if space.uses_passthrough() {
        assert!(free * 3 < asked, "{free:?} and {asked:?} before");
    }
    let reached = lent(&path);
    reached.write_all_at(&[5; 4096], 0).unwrap();
    drop((file, reached));
    space.compare_du(&space.mount);
    space.down_and_check();
}
