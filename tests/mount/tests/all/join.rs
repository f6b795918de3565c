//! A pool is added to a space while everybody works on.

use crate::drain::{STRANGER, for_all};
use crate::pools::{add, pool_of};
use crate::rebuild::rebuild;
use crate::stuck::Ends;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use ullage_mount_tests::ground::{Ground, has_btrfs};
use ullage_mount_tests::run::{eventually, program, unmount};
use ullage_mount_tests::space::Space;
use ullage_mount_tests::watchdog::is_mounted;

/// A space that is up, on an ext4 of 256 MiB, and a directory on another one.
fn bed() -> (Space, PathBuf) {
    let mut ground = Ground::new();
    let (first, second) = (ground.ext4("first", 256), ground.ext4("second", 512));
    let place = second.join("pool");
    fs::create_dir(&place).unwrap();
    let mut space = Space::on(ground, &first);
    space.state = second.join("state");
    space.up();
    (space, place)
}

fn named(place: &Path) -> String {
    format!("more={}", place.display())
}

fn settings(at: &Path) -> String {
    fs::read_to_string(at.join("space.toml")).unwrap()
}

fn free(space: &Space) -> u64 {
    let stat = rustix::fs::statvfs(&space.mount).unwrap();
    stat.f_bavail * stat.f_frsize
}

static PIECE: [u8; 1 << 20] = [7; 1 << 20];

#[test]
fn a_disk_that_is_full_gets_another_beside_it_while_the_space_is_in_use() {
    let (space, place) = bed();
    let open = OpenOptions::new().append(true).create(true).open(space.path("log")).unwrap();
    (&open).write_all(b"before").unwrap();
    let filled = (0..300).take_while(|n| fs::write(space.path(format!("{n}")), &PIECE[..]).is_ok()).count();
    assert!(filled < 256 && free(&space) < 1 << 20, "it is not full: nothing was tested");
    let said = add(&space, &named(&place)).ok();
    assert!(said.contains("the space has 2 pools now"), "{said}");
    assert!(free(&space) > 256 << 20, "{} are free", free(&space));
    for n in 0..100 {
        fs::write(space.path(format!("more {n}")), &PIECE[..]).unwrap();
    }
    assert_eq!(pool_of(&space, &space.path("more 99")), "more");
    // What was full goes on: in the other pool, once nobody has it open in the kernel.
    drop(open);
    eventually("who opens it again writes on", Duration::from_secs(20), || {
        let file = OpenOptions::new().append(true).open(space.path("log")).unwrap();
        (&file).write_all(&PIECE).is_ok()
    });
    space.compare_du(&space.mount);
    add(&space, &named(&place)).refused("two pools are called 'more'");
    let listed = space.pool_command("list", &["--json"]).json();
    assert_eq!(listed["pools"].as_array().unwrap().len(), 2);
    space.down_and_check();
    // Each has a copy of the catalog that knows both.
    for pool in [&space.pool(), &place] {
        assert!(settings(&pool.join(".ullage-mirror")).contains("\"more\""), "{}", pool.display());
        assert_eq!(fs::read(pool.join(".ullage-turns")).unwrap(), fs::read(space.state.join("turns")).unwrap());
    }
    space.up();
    for n in 0..100 {
        assert!(fs::read(space.path(format!("more {n}"))).unwrap() == PIECE[..], "{n}");
    }
    space.down_and_check();
}

/// Numbers each file that it makes, and reads some again.
fn at_work(directory: &Path, made: &AtomicU64, over: &AtomicBool) {
    for n in 0.. {
        if over.load(Relaxed) {
            return;
        }
        let file = File::create(directory.join(n.to_string())).unwrap();
        file.write_all_at(&vec![n as u8; 1 + n * 977 % 60_000], 0).unwrap();
        fs::read(directory.join((n / 2).to_string())).unwrap();
        made.store(n as u64, Relaxed);
        // However fast the machine, both disks have room for that.
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn compare(directory: &Path, made: u64) {
    for n in 0..=made as usize {
        let is = fs::read(directory.join(n.to_string())).unwrap();
        assert!(is == vec![n as u8; 1 + n * 977 % 60_000], "{n}");
    }
}

/// One disk takes the place of another, and nobody stops working.
#[test]
fn a_disk_is_exchanged_for_another_while_everybody_works_on() {
    let (mut space, place) = bed();
    let (over, made) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 2]);
    let directories = ["one", "other"].map(|name| space.path(name));
    for directory in &directories {
        fs::create_dir(directory).unwrap();
    }
    std::thread::scope(|scope| {
        for (directory, made) in directories.iter().zip(&made) {
            let over = &over;
            scope.spawn(move || at_work(directory, made, over));
        }
        let ends = Ends(&over);
        std::thread::sleep(Duration::from_millis(500));
        add(&space, &named(&place)).ok();
        std::thread::sleep(Duration::from_millis(500));
        space.pool_command("remove", &["main", "--no-wait"]).ok();
        std::thread::sleep(Duration::from_millis(500));
        drop(ends);
    });
    space.pool_command("remove", &["main"]).ok();
    let made = made.map(AtomicU64::into_inner);
    directories.iter().zip(made).for_each(|(directory, made)| compare(directory, made));
    space.compare_du(&space.mount);
    let old = space.pool();
    space.down_and_check();
    assert_eq!(fs::read_dir(&old).unwrap().count(), 0, "{}", old.display());
    space.pools = vec![named(&place)];
    space.up();
    directories.iter().zip(made).for_each(|(directory, made)| compare(directory, made));
    space.down_and_check();
}

fn compare_all(files: &[PathBuf]) {
    for file in files {
        assert!(fs::read(file).unwrap() == PIECE[..20_000], "{}", file.display());
    }
}

#[test]
fn who_is_killed_after_a_pool_was_added_has_it_with_the_next_start() {
    let (mut space, place) = bed();
    fs::write(space.path("before"), "content").unwrap();
    add(&space, &named(&place)).ok();
    let names: Vec<PathBuf> = (0..50).map(|n| space.path(format!("file-{n}"))).collect();
    for name in &names {
        let mut file = File::create(name).unwrap();
        file.write_all(&PIECE[..20_000]).unwrap();
        file.sync_all().unwrap();
    }
    File::open(&space.mount).unwrap().sync_all().unwrap();
    space.kill();
    space.up();
    assert!(names.iter().any(|name| pool_of(&space, name) == "more"), "none lies there: nothing was tested");
    compare_all(&names);
    // From what is in the pools alone, which know of each other.
    space.down_and_check();
    space.pools.push(named(&place));
    rebuild(&mut space, &[]);
    compare_all(&names);
    space.down_and_check();
}

#[test]
fn a_pool_is_added_to_a_space_in_use_by_root_and_who_mounted_it() {
    let (space, place) = bed();
    let (binary, pool) = (for_all(&space), named(&place));
    let tail = ["pool", "add", space.mount.to_str().unwrap(), &pool, "--state", space.state.to_str().unwrap()];
    let stranger = STRANGER.into_iter().chain([binary.to_str().unwrap()]).chain(tail);
    let before = settings(&space.state);
    program("setpriv", stranger).refused("only root and who mounted the space may add pools");
    add(&space, &format!("{},layout=mirror", named(&place))).refused("add it while the space is down");
    assert_eq!(settings(&space.state), before);
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
    let outcome = space.pool_command("add", &[&pool, "--json"]);
    assert_eq!(outcome.json()["pools"].as_array().unwrap().len(), 2);
    space.down_and_check();
}

/// Nothing is left of what was begun, and the space goes on.
#[test]
fn a_pool_that_fails_while_it_is_added_is_none() {
    let mut ground = Ground::new();
    let (disk, small) = (ground.ext4("disk", 256), ground.tmpfs("small", 64));
    let place = small.join("pool");
    fs::create_dir(&place).unwrap();
    let space = Space::on(ground, &disk);
    space.up();
    let pools = || space.pool_command("list", &["--json"]).json()["pools"].as_array().unwrap().len();
    let is_known = || settings(&space.state).contains("\"more\"");
    let full = File::create(small.join("full")).unwrap();
    let filled = (0..100).take_while(|n| full.write_all_at(&PIECE[..4096], n * 4096).is_ok()).count();
    assert!(filled < 100, "it is not full: nothing was tested");
    drop(full);
    let is_as_before = || {
        let left: Vec<_> = fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(pools() == 1 && !is_known() && left.is_empty(), "{left:?}");
    };
    let remount = |how: &str| program("mount", ["-o".as_ref(), how.as_ref(), small.as_os_str()]).ok();
    remount("remount,ro");
    add(&space, &named(&place)).refused("is on a file system that is mounted read-only");
    is_as_before();
    remount("remount,rw");
    add(&space, &named(&place)).refused("No space left on device");
    is_as_before();
    // Wherever the room ends.
    for pages in (0..filled as u64).rev() {
        OpenOptions::new().write(true).open(small.join("full")).unwrap().set_len(pages * 4096).unwrap();
        let outcome = add(&space, &named(&place));
        if outcome.code == Some(0) {
            break;
        }
        is_as_before();
    }
    fs::write(space.path("file"), "content").unwrap();
    assert!(pools() == 2 && is_known());
    space.down_and_check();
    space.up();
    assert_eq!(fs::read(space.path("file")).unwrap(), b"content");
    space.down_and_check();
}

/// Its daemon waited for itself, and so did everybody, for ever.
#[test]
fn a_pool_in_the_space_itself_is_refused_by_whatever_path() {
    let (mut space, _) = bed();
    let mount = space.mount.clone();
    fs::create_dir(space.path("empty")).unwrap();
    let bound = space.ground.directory("bound");
    program("mount", ["--bind".as_ref(), mount.as_os_str(), bound.as_os_str()]).ok();
    let outcome = add(&space, &named(&bound.join("empty")));
    unmount(&bound);
    outcome.refused("lies in the space itself");
    let mut refused = Vec::new();
    for (mkfs, within) in [("mkfs.ext4", ""), ("mkfs.btrfs", ""), ("mkfs.ext4", "inner-mkfs.ext4")] {
        if mkfs == "mkfs.btrfs" && !has_btrfs() {
            continue;
        }
        let at = if within.is_empty() { mount.clone() } else { space.ground.join(within) };
        let (name, image) = (format!("{within}inner-{mkfs}"), at.join(format!("image-{mkfs}")));
        File::create(&image).unwrap().set_len(if within.is_empty() { 128 << 20 } else { 32 << 20 }).unwrap();
        program(mkfs, ["-q".as_ref(), image.as_os_str()]).ok();
        let inner = space.ground.mount_image(&name, &image);
        refused.push((add(&space, &named(&inner)), inner));
    }
    for (outcome, inner) in refused.into_iter().rev() {
        unmount(&inner);
        outcome.refused("lies in the space itself");
    }
    fs::write(space.path("file"), "goes on").unwrap();
    space.down_and_check();
}

/// Each held files that the other did not know, and a check was never clean.
#[test]
fn a_pool_in_the_directory_of_another_or_of_the_catalog_is_refused() {
    let (space, _) = bed();
    for at in [space.pool().join("sub"), space.state.join("catalog/sub")] {
        fs::create_dir(&at).unwrap();
        add(&space, &named(&at)).refused("would lie in the");
        fs::remove_dir(&at).unwrap();
    }
    space.down_and_check();
}

/// The settings could not be written, where room for the state is held.
#[test]
fn a_full_disk_that_has_the_state_too_gets_another_beside_it() {
    let mut ground = Ground::new();
    let (first, second) =
        (ground.image("first", 256, "mkfs.ext4", &["-q", "-F", "-m", "0"], "loop"), ground.ext4("second", 256));
    let place = second.join("pool");
    fs::create_dir(&place).unwrap();
    let space = Space::on(ground, &first);
    space.up();
    // All of it, also what pools leave to the catalog there, and what the space gives up at first.
    let fill = File::create(first.join("fill")).unwrap();
    let filled: usize = (0..4)
        .map(|round| {
            while (&fill).write(&PIECE).is_ok_and(|written| written > 0) {}
            std::thread::sleep(Duration::from_millis(500));
            let small = |n| fs::write(first.join(format!("fill-{round}-{n}")), &PIECE[..1024]).is_ok();
            (0..1000).take_while(|n| small(*n)).count()
        })
        .sum();
    assert!(filled < 1000, "it is not full: nothing was tested");
    add(&space, &named(&place)).ok();
    eventually("it takes files", Duration::from_secs(20), || fs::write(space.path("file"), &PIECE[..]).is_ok());
    assert_eq!(pool_of(&space, &space.path("file")), "more");
    fs::remove_file(first.join("fill")).unwrap();
    drop(fill);
    space.down_and_check();
    space.up();
    assert!(fs::read(space.path("file")).unwrap() == PIECE);
    space.down_and_check();
}

/// What the daemon answers to a request that comes right after the mount has gone.
fn asked_at_the_end(space: &Space, request: &str, pause: Duration) -> String {
    let mut asks = UnixStream::connect(space.state.join("control.sock")).unwrap();
    asks.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    std::thread::scope(|scope| {
        let down = scope.spawn(|| space.down());
        while is_mounted(&space.mount) {
            std::hint::spin_loop();
        }
        std::thread::sleep(pause);
        let mut answer = String::new();
        // It may have ended.
        let _ = writeln!(asks, "{request}");
        let _ = BufReader::new(&asks).read_line(&mut answer);
        down.join().unwrap();
        answer
    })
}

/// The end of the space, and who added a pool just then, wrote the settings over each other: a pool that was added was not there, or one that had left came
/// back without its directory.
#[test]
fn a_pool_that_is_added_as_the_space_ends_is_one_of_it_or_refused() {
    let (space, place) = bed();
    let parent = place.parent().unwrap();
    for n in 0..4000 {
        fs::write(space.path(format!("file-{n}")), "x").unwrap();
    }
    let mut added = 0;
    for round in 0..12 {
        let [leaves, comes] = ["leaves", "comes"].map(|name| format!("{name}{round}"));
        for name in [&leaves, &comes] {
            fs::create_dir(parent.join(name)).unwrap();
        }
        add(&space, &format!("{leaves}={}", parent.join(&leaves).display())).ok();
        space.pool_command("remove", &[&leaves]).ok();
        for n in 0..2000 {
            fs::rename(space.path(format!("file-{n}")), space.path(format!("moved-{n}"))).unwrap();
            fs::rename(space.path(format!("moved-{n}")), space.path(format!("file-{n}"))).unwrap();
        }
        let pool = serde_json::json!({ "name": comes, "id": 0, "path": parent.join(&comes), "kind": "dir", "layout": "sparse", "reserve_bytes": 0 });
        let request = serde_json::json!({ "ask": "add-pool", "pool": pool }).to_string();
        let answer = asked_at_the_end(&space, &request, Duration::from_millis(12 * round));
        println!("{round}: {answer:?}");
        let settings = settings(&space.state);
        let is_one = answer.contains("done");
        assert_eq!(is_one, settings.contains(&comes), "round {round}: {answer}: {settings}");
        assert!(is_one || answer.is_empty() || answer.contains("about to end"), "{answer}");
        assert!(!settings.contains(&leaves), "round {round}: {settings}");
        added += u32::from(is_one);
        space.up();
        if is_one {
            space.pool_command("remove", &[&comes]).ok();
        }
    }
    println!("{added} came in time");
    space.down_and_check();
}
