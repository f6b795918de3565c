//! A pool is emptied and taken out of its space, while everybody works on.

use crate::pools::pool_of;
use crate::stuck::Ends;
use rustix::mm::{MapFlags, ProtFlags};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use ullage_mount_tests::binary;
use ullage_mount_tests::ground::{Ground, has_btrfs};
use ullage_mount_tests::run::{Outcome, copy_program, eventually, program, ullage};
use ullage_mount_tests::space::Space;

fn pool(space: &Space, what: &[&str]) -> Outcome {
    let (action, rest) = what.split_first().unwrap();
    space.pool_command(action, rest)
}

fn draining(space: &Space, name: &str) -> serde_json::Value {
    let listed = pool(space, &["list", "--json"]).json();
    let pools = listed["pools"].as_array().unwrap();
    pools.iter().find(|pool| pool["name"] == name).unwrap()["draining"].clone()
}

pub const STRANGER: [&str; 3] = ["--reuid=12345", "--regid=12345", "--clear-groups"];

/// The program where everybody can run it.
pub fn for_all(space: &Space) -> PathBuf {
    let binary = space.ground.join("ullage-for-all");
    copy_program(binary::path().to_str().unwrap(), &binary);
    binary
}

fn settings(space: &Space) -> String {
    fs::read_to_string(space.state.join("space.toml")).unwrap()
}

/// A space with the pools `old` and `new`, to which files go in turns.
fn two(ground: Ground, [old, new]: [PathBuf; 2], more: &str) -> Space {
    let disk = ground.directory("disk");
    let mut space = Space::on(ground, &disk);
    space.pools = vec![format!("old={}{more}", old.display()), format!("new={}{more}", new.display())];
    space.flags = vec!["--spread".into(), "round-robin".into()];
    space.up();
    space.flags.clear();
    space
}

fn plain() -> Space {
    let ground = Ground::new();
    let places = ["old", "new"].map(|name| ground.directory(name));
    two(ground, places, "")
}

fn content(n: usize) -> Vec<u8> {
    format!("content {n}\n").repeat(1 + n * 37 % 2000).into_bytes()
}

fn fill(space: &Space, count: usize) {
    for n in 0..count {
        fs::write(space.path(format!("file-{n}")), content(n)).unwrap();
    }
}

fn compare(space: &Space, count: usize) {
    for n in 0..count {
        assert!(fs::read(space.path(format!("file-{n}"))).unwrap() == content(n), "file-{n}");
    }
}

fn is_gone(space: &Space, place: &Path) {
    assert!(!settings(space).contains("\"old\""), "{}", settings(space));
    assert_eq!(fs::read_dir(place).unwrap().count(), 0, "{}", place.display());
}

/// Regression: the copies of the settings still named it, and a rebuild asked for it, or for its files to be given up.
#[test]
fn a_rebuild_asks_for_no_pool_that_has_left_the_space() {
    for is_up in [true, false] {
        let space = plain();
        fill(&space, 2);
        pool(&space, &["remove", "old"]).ok();
        if is_up {
            space.down();
        } else {
            pool(&space, &["remove", "old", "--cancel"]).ok();
            space.down();
            pool(&space, &["remove", "old"]).ok();
        }
        assert!(!settings(&space).contains("\"old\""));
        fs::remove_dir_all(&space.state).unwrap();
        let new = &space.pools[1];
        let words = ["rebuild".as_ref(), space.mount.as_os_str(), "--state".as_ref(), space.state.as_os_str()];
        ullage(words.into_iter().chain(["--pool".as_ref(), new.as_ref()])).ok();
        space.up();
        compare(&space, 2);
        space.down_and_check();
    }
}

#[test]
fn a_pool_is_emptied_and_leaves_the_space() {
    for kind in ["ext4", "xfs", "btrfs", "tmpfs"] {
        if kind == "btrfs" && !has_btrfs() {
            continue;
        }
        let mut ground = Ground::new();
        let places = ["old", "new"].map(|name| match kind {
            "ext4" => ground.ext4(name, 256),
            "xfs" => ground.xfs(name, 320),
            "btrfs" => ground.btrfs(name, 256),
            _ => ground.tmpfs(name, 256 << 10),
        });
        let place = places[0].join("pool");
        fs::create_dir(&place).unwrap();
        let space = two(ground, [place.clone(), places[1].clone()], "");
        fill(&space, 200);
        // What is not only its bytes: a hole, room for more, times, a second name.
        let sparse = File::create(space.path("sparse")).unwrap();
        sparse.write_all_at(b"end", 10 << 20).unwrap();
        drop(sparse);
        fs::hard_link(space.path("file-0"), space.path("again")).unwrap();
        fs::hard_link(space.path("file-1"), space.path("again-1")).unwrap();
        let before: Vec<_> = (0..200).map(|n| fs::metadata(space.path(format!("file-{n}"))).unwrap()).collect();
        let said = pool(&space, &["remove", "old"]).ok();
        assert!(said.contains("is empty: it leaves the space with the next `ullage down"), "{said}");
        for (n, before) in before.iter().enumerate() {
            let path = space.path(format!("file-{n}"));
            let now = fs::metadata(&path).unwrap();
            assert_eq!((now.modified().unwrap(), now.len()), (before.modified().unwrap(), before.len()), "{kind}: {n}");
            assert_eq!(pool_of(&space, &path), "new");
        }
        compare(&space, 200);
        space.compare_du(&space.mount);
        if kind != "btrfs" {
            // What is free in the one counts no more, what is used in it does.
            let [there, other] = [&space.mount, &places[1]].map(|path| rustix::fs::statvfs(path).unwrap());
            let [there, other] = [there, other].map(|stat| stat.f_bavail * stat.f_frsize);
            assert!(there.abs_diff(other) < 1 << 20, "{kind}: {there} {other}");
        }
        space.down_and_check();
        is_gone(&space, &place);
        space.up();
        compare(&space, 200);
        assert_eq!(fs::metadata(space.path("sparse")).unwrap().len(), (10 << 20) + 3);
        assert!(fs::read(space.path("again-1")).unwrap() == content(1));
        space.down_and_check();
        // The number of one that is gone is given to no other.
        pool(&space, &["add", &format!("next={}", place.display())]).ok();
        assert!(settings(&space).contains("id = 2"), "{}", settings(&space));
        space.up();
        fill(&space, 20);
        space.down_and_check();
    }
}

/// Such a file was given its times first, which changed it a moment ago, and so each was waited for until what changes it later would show.
#[test]
fn a_file_whose_times_were_set_goes_with_them_at_once() {
    let space = plain();
    fill(&space, 20);
    let files: Vec<PathBuf> = (0..20).map(|n| space.path(format!("file-{n}"))).collect();
    let files: Vec<PathBuf> = files.into_iter().filter(|file| pool_of(&space, file) == "old").collect();
    // Until what was open is closed.
    std::thread::sleep(Duration::from_secs(3));
    let time = |seconds| std::time::UNIX_EPOCH + Duration::from_secs(seconds);
    for file in &files {
        let times = ["-a".as_ref(), "-d".as_ref(), "2001-02-03 UTC".as_ref(), file.as_os_str()];
        program("touch", times).ok();
        program("touch", ["-m", "-d", "2002-03-04 UTC"].map(AsRef::as_ref).into_iter().chain([file.as_os_str()])).ok();
    }
    let by_path =
        |file: &PathBuf| OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(space.backing(file)).unwrap();
    let places: Vec<File> = files.iter().map(by_path).collect();
    let before: Vec<fs::Metadata> = places.iter().map(|place| place.metadata().unwrap()).collect();
    pool(&space, &["remove", "old"]).ok();
    for (file, (place, before)) in files.iter().zip(places.iter().zip(before)) {
        let now = place.metadata().unwrap();
        // It stays for some seconds.
        let is_there = now.nlink() > 0 && now.len() == before.len();
        assert!(!is_there || now.ctime_nsec() == before.ctime_nsec(), "{}: it was changed", file.display());
        for path in [file, &space.backing(file)] {
            let now = fs::metadata(path).unwrap();
            assert_eq!((now.accessed().unwrap(), now.modified().unwrap()), (time(981_158_400), time(1_015_200_000)));
        }
        assert_eq!(pool_of(&space, file), "new");
    }
    compare(&space, 20);
    space.down_and_check();
}

/// In a file that somebody has had open in the kernel since before, he writes on, and others who open it write there too.
#[test]
fn what_has_been_open_is_waited_for_and_told_by_name() {
    let space = plain();
    let binary = for_all(&space);
    fill(&space, 40);
    let mut writer = OpenOptions::new().append(true).open(space.path("file-0")).unwrap();
    let reader = File::open(space.path("file-2")).unwrap();
    fs::remove_file(space.path("file-2")).unwrap();
    assert_eq!(pool_of(&space, &space.path("file-0")), "old");
    pool(&space, &["remove", "old", "--no-wait"]).ok();
    eventually("all others are moved", Duration::from_secs(20), || {
        let now = draining(&space, "old");
        now["left"]["files"] == 2 && now["in_use"] == 2
    });
    let list = |by: &[&str]| {
        let tail = ["pool", "list", space.mount.to_str().unwrap(), "--state", space.state.to_str().unwrap()];
        program("setpriv", by.iter().copied().chain([binary.to_str().unwrap()]).chain(tail)).ok()
    };
    let listed = list(&STRANGER);
    assert!(listed.contains("waiting for 2 files that are in use\n"), "{listed}");
    let listed = list(&["--reuid=0"]);
    assert!(listed.contains("old: is being emptied: 2 files"), "{listed}");
    let named = listed.split("waiting for 2 files that are in use: ").nth(1).and_then(|rest| rest.lines().next());
    assert!(matches!(named, Some("file-0, file-2 (deleted)" | "file-2 (deleted), file-0")), "{listed}");
    writer.write_all(b"more").unwrap();
    fs::OpenOptions::new().append(true).open(space.path("file-0")).unwrap().write_all(b" and more").unwrap();
    drop(writer);
    let mut kept = Vec::new();
    (&reader).read_to_end(&mut kept).unwrap();
    assert!(kept == content(2));
    drop(reader);
    pool(&space, &["remove", "old"]).ok();
    let all = [content(0), b"more and more".to_vec()].concat();
    assert!(fs::read(space.path("file-0")).unwrap() == all);
    fs::write(space.path("file-0"), content(0)).unwrap();
    fs::write(space.path("file-2"), content(2)).unwrap();
    compare(&space, 40);
    let place = space.ground.join("old");
    space.down_and_check();
    is_gone(&space, &place);
}

/// Threads that work on files of their own until they are told to end, and then compare these with what they know.
fn at_work(space: &Space, over: &AtomicBool) {
    let path = |name: &str| space.path(name);
    std::thread::scope(|scope| {
        // Line after line, by a handle each.
        scope.spawn(move || {
            let mut lines = String::new();
            for n in 0.. {
                let line = format!("{n}\n");
                OpenOptions::new()
                    .append(true)
                    .create(true)
                    .open(path("lines"))
                    .unwrap()
                    .write_all(line.as_bytes())
                    .unwrap();
                lines.push_str(&line);
                if over.load(Relaxed) {
                    break;
                }
            }
            assert!(fs::read_to_string(path("lines")).unwrap() == lines);
        });
        // Anywhere in a file that stays open, through write(2) and a mapping.
        scope.spawn(move || {
            const LENGTH: usize = 3 << 20;
            let mut known = vec![0; LENGTH];
            let file =
                OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path("open")).unwrap();
            file.set_len(LENGTH as u64).unwrap();
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a new mapping at an address that the kernel chooses; nothing else refers to it.
            let mapped = unsafe {
                rustix::mm::mmap(std::ptr::null_mut(), LENGTH, protection, MapFlags::SHARED, &file, 0)
                    .unwrap()
                    .cast::<u8>()
            };
            for n in 0_usize.. {
                let at = n.wrapping_mul(7919) % (LENGTH - 100);
                let byte = n as u8;
                if n.is_multiple_of(2) {
                    file.write_all_at(&[byte; 100], at as u64).unwrap();
                    known[at..at + 100].fill(byte);
                } else {
                    // SAFETY: within the mapping, which lasts until the end of this thread.
                    unsafe { mapped.add(at).write_volatile(byte) };
                    known[at] = byte;
                }
                if over.load(Relaxed) {
                    break;
                }
            }
            let mut found = vec![0; LENGTH];
            file.read_exact_at(&mut found, 0).unwrap();
            assert!(found == known, "by read(2)");
            // SAFETY: the mapping of above, whose end this is.
            unsafe { rustix::mm::munmap(mapped.cast(), LENGTH).unwrap() };
            drop(file);
            assert!(fs::read(path("open")).unwrap() == known, "later");
        });
        // Made, renamed, cut, read, removed.
        for worker in 0..2 {
            scope.spawn(move || {
                for n in 0_usize.. {
                    let (one, other) = (path(&format!("{worker}-{}", n % 20)), path(&format!("{worker}-to-{}", n % 7)));
                    let bytes = vec![n as u8; n * 997 % 70_000];
                    fs::write(&one, &bytes).unwrap();
                    fs::rename(&one, &other).unwrap();
                    let length = bytes.len() / 2;
                    OpenOptions::new().write(true).open(&other).unwrap().set_len(length as u64).unwrap();
                    assert!(fs::read(&other).unwrap() == bytes[..length]);
                    if n.is_multiple_of(3) {
                        fs::remove_file(&other).unwrap();
                    }
                    if over.load(Relaxed) {
                        break;
                    }
                }
            });
        }
        // One of those that lie there, rewritten in place.
        scope.spawn(move || {
            for n in 0.. {
                let n = n % 100;
                let file = OpenOptions::new().write(true).open(path(&format!("file-{n}"))).unwrap();
                file.write_all_at(&content(n), 0).unwrap();
                file.sync_all().unwrap();
                if over.load(Relaxed) {
                    break;
                }
            }
        });
    });
}

fn while_at_work(space: &Space, place: &Path) {
    fill(space, 300);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let working = scope.spawn(|| at_work(space, &over));
        let _ends = Ends(&over);
        std::thread::sleep(Duration::from_millis(200));
        pool(space, &["remove", "old", "--no-wait"]).ok();
        let mut now = serde_json::Value::Null;
        let began = Instant::now();
        while now["moved"]["files"].as_u64() <= Some(100) || now["left"]["files"].as_u64() > Some(3) {
            now = draining(space, "old");
            assert!(began.elapsed() < Duration::from_secs(60), "what is not open is not moved: {now}");
            std::thread::sleep(Duration::from_millis(50));
        }
        over.store(true, Relaxed);
        working.join().unwrap();
    });
    pool(space, &["remove", "old"]).ok();
    compare(space, 300);
    space.compare_du(&space.mount);
    space.down_and_check();
    is_gone(space, place);
    space.up();
    compare(space, 300);
    space.down_and_check();
}

#[test]
fn a_pool_is_emptied_while_everybody_works_on() {
    let space = plain();
    let place = space.ground.join("old");
    while_at_work(&space, &place);
}

#[test]
fn a_pool_is_emptied_below_a_limit_while_everybody_works_on() {
    for size in ["1G", "200G"] {
        let space = plain();
        let place = space.ground.join("old");
        ullage(["limit".as_ref(), space.mount.as_os_str(), size.as_ref()]).ok();
        while_at_work(&space, &place);
    }
}

#[test]
fn a_pool_is_emptied_where_the_server_moves_all_data() {
    let mut space = plain();
    space.down();
    space.flags = vec!["--no-passthrough".into()];
    space.up();
    let place = space.ground.join("old");
    while_at_work(&space, &place);
}

/// Beside a plain tree, whose names follow.
#[test]
fn a_mirror_pool_is_emptied() {
    let ground = Ground::new();
    let places = ["old", "new"].map(|name| ground.directory(name));
    let space = two(ground, places.clone(), ",layout=mirror");
    fs::create_dir(space.path("directory")).unwrap();
    for n in 0..50 {
        fs::write(space.path(format!("directory/{n}")), content(n)).unwrap();
    }
    pool(&space, &["remove", "old"]).ok();
    eventually("the plain trees follow", Duration::from_secs(20), || {
        let there = |place: &Path| fs::read_dir(place.join("directory")).map_or(0, Iterator::count);
        (there(&places[0]), there(&places[1])) == (0, 50)
    });
    space.down_and_check();
    assert!(!places[0].join(".ullage/.ullage-pool.toml").exists());
    assert_eq!(fs::read_dir(places[0].join(".ullage")).unwrap().count(), 0);
    space.up();
    for n in 0..50 {
        assert!(fs::read(space.path(format!("directory/{n}"))).unwrap() == content(n));
        assert!(fs::read(places[1].join(format!("directory/{n}"))).unwrap() == content(n));
    }
    space.down_and_check();
}

#[test]
fn who_is_killed_while_a_pool_is_emptied_goes_on_with_the_next_start() {
    let space = plain();
    let place = space.ground.join("old");
    fill(&space, 1500);
    space.sync();
    pool(&space, &["remove", "old", "--no-wait"]).ok();
    for round in 0..6_u64 {
        let before = draining(&space, "old")["left"]["files"].as_u64();
        std::thread::sleep(Duration::from_millis(17 * (round + 1)));
        space.kill();
        space.up();
        compare(&space, 1500);
        let left = draining(&space, "old")["left"]["files"].as_u64();
        assert!(round < 5 || left < Some(750), "nothing was moved in any round: {before:?}, {left:?}");
    }
    pool(&space, &["remove", "old"]).ok();
    compare(&space, 1500);
    space.compare_du(&space.mount);
    space.down_and_check();
    is_gone(&space, &place);
}

/// A large file that is removed while it is on its way is not copied to the end, and its room comes free.
#[test]
fn what_is_removed_while_it_is_being_moved_goes() {
    let mut ground = Ground::new();
    // In memory: the disk is that of other tests, too.
    let places = ["old", "new"].map(|name| ground.tmpfs(name, 800 << 10));
    let space = two(ground, places.clone(), "");
    let mut large = File::create(space.path("large")).unwrap();
    for _ in 0..600 {
        large.write_all(&vec![7; 1 << 20]).unwrap();
    }
    drop(large);
    pool(&space, &["remove", "old", "--no-wait"]).ok();
    eventually("it is on its way", Duration::from_secs(10), || draining(&space, "old")["left"].is_object());
    std::thread::sleep(Duration::from_millis(50));
    fs::remove_file(space.path("large")).unwrap();
    let began = Instant::now();
    pool(&space, &["remove", "old"]).ok();
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    for place in &places {
        eventually("the room comes free", Duration::from_secs(10), || {
            let stat = rustix::fs::statvfs(place).unwrap();
            (stat.f_blocks - stat.f_bfree) * stat.f_frsize < 100 << 20
        });
    }
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// A large file on its way does not keep a space up, and is there with its next start.
#[test]
fn an_end_does_not_wait_for_what_is_being_moved() {
    let mut ground = Ground::new();
    // In memory: the disk is that of other tests, too.
    let places = ["old", "new"].map(|name| ground.tmpfs(name, 800 << 10));
    let space = two(ground, places, "");
    let bytes = vec![7; 1 << 20];
    let mut large = File::create(space.path("large")).unwrap();
    for _ in 0..600 {
        large.write_all(&bytes).unwrap();
    }
    drop(large);
    assert_eq!(pool_of(&space, &space.path("large")), "old");
    pool(&space, &["remove", "old", "--no-wait"]).ok();
    eventually("it is on its way", Duration::from_secs(10), || draining(&space, "old")["left"].is_object());
    std::thread::sleep(Duration::from_millis(100));
    space.down_and_check();
    space.up();
    // Where the copy is faster than that, all is done.
    if settings(&space).contains("\"old\"") {
        pool(&space, &["remove", "old"]).ok();
    }
    assert_eq!(pool_of(&space, &space.path("large")), "new");
    assert!(fs::read(space.path("large")).unwrap().iter().all(|byte| *byte == 7));
    space.down_and_check();
}

#[test]
fn a_pool_whose_files_fit_nowhere_keeps_them_and_says_so() {
    let mut ground = Ground::new();
    let places = [ground.ext4("old", 256), ground.ext4("new", 64)];
    let space = two(ground, places, "");
    let piece = vec![1; 40 << 20];
    for n in 0..6 {
        // What does not fit into the small one goes on in the other.
        let _ = fs::write(space.path(format!("piece-{n}")), &piece);
    }
    let there: Vec<bool> = (0..6).map(|n| fs::read(space.path(format!("piece-{n}"))).unwrap() == piece).collect();
    assert!(there.iter().filter(|whole| **whole).count() >= 3, "{there:?}");
    let refused = pool(&space, &["remove", "old"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("are left in the pool 'old'") && refused.err.contains("--cancel"), "{}", refused.err);
    assert!(fs::write(space.path("small"), "fits").is_ok());
    assert_eq!(pool_of(&space, &space.path("small")), "new");
    pool(&space, &["remove", "old", "--cancel"]).ok();
    assert_eq!(draining(&space, "old"), serde_json::Value::Null);
    fs::write(space.path("one"), "x").unwrap();
    fs::write(space.path("two"), "x").unwrap();
    let pools = ["one", "two"].map(|name| pool_of(&space, &space.path(name)));
    assert!(pools.contains(&"old".to_owned()), "it takes files again: {pools:?}");
    for (n, whole) in there.into_iter().enumerate() {
        assert_eq!(fs::read(space.path(format!("piece-{n}"))).unwrap() == piece, whole);
    }
    assert!(settings(&space).contains("\"old\""));
    space.down_and_check();
}

/// What cannot be read stays where it is, and keeps nothing else there.
#[test]
fn a_file_that_cannot_be_moved_is_told_of_and_keeps_no_other() {
    let space = plain();
    fill(&space, 40);
    let backing = space.backing(&space.path("file-0"));
    space.down();
    let away = space.ground.join("away");
    fs::rename(&backing, &away).unwrap();
    space.up();
    let refused = pool(&space, &["remove", "old"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let why = "1 files are left in the pool 'old': 1 could not be moved (";
    assert!(refused.err.contains(why), "{}", refused.err);
    assert!(space.log().matches("stays in a pool that is to be emptied").count() == 1, "{}", space.log());
    space.down();
    assert!(settings(&space).contains("draining = true"));
    fs::rename(&away, &backing).unwrap();
    space.up();
    pool(&space, &["remove", "old"]).ok();
    compare(&space, 40);
    let place = space.ground.join("old");
    space.down_and_check();
    is_gone(&space, &place);
}

/// A disk that fails is left so by its file system as a rule: what is on it is saved.
#[test]
fn a_pool_that_has_become_read_only_is_emptied() {
    let mut ground = Ground::new();
    let old = ground.image("old", 256, "mkfs.ext4", &["-q"], "loop,errors=remount-ro");
    let new = ground.ext4("new", 256);
    let place = old.join("pool");
    fs::create_dir(&place).unwrap();
    let space = two(ground, [place, new], "");
    fill(&space, 100);
    // Nothing is open to be written any more.
    space.down();
    space.up();
    let open = File::open(space.path("file-1")).unwrap();
    let source = program("findmnt", ["-no", "SOURCE", old.to_str().unwrap()]).ok();
    let device = Path::new(source.trim()).file_name().unwrap().to_owned();
    fs::write(Path::new("/sys/fs/ext4").join(device).join("trigger_fs_error"), "1").unwrap();
    assert_eq!(File::create(old.join("file")).unwrap_err().raw_os_error(), Some(libc::EROFS));
    pool(&space, &["remove", "old", "--no-wait"]).ok();
    eventually("all that can be is moved", Duration::from_secs(20), || {
        draining(&space, "old")["left"]["files"] == 0 || draining(&space, "old")["in_use"] == 1
    });
    drop(open);
    pool(&space, &["remove", "old"]).ok();
    compare(&space, 100);
    space.down_and_check();
    assert!(!settings(&space).contains("\"old\""));
    space.up();
    compare(&space, 100);
    space.down_and_check();
}

#[test]
fn a_pool_that_cannot_be_removed_changes_nothing() {
    let space = plain();
    fill(&space, 10);
    let before = settings(&space);
    pool(&space, &["remove", "neither"]).refused("has no pool 'neither': it has old, new");
    pool(&space, &["remove", "old", "--cancel", "--no-wait"]).misused();
    let binary = for_all(&space);
    let tail = ["pool", "remove", space.mount.to_str().unwrap(), "old", "--state", space.state.to_str().unwrap()];
    let stranger = STRANGER.into_iter().chain([binary.to_str().unwrap()]).chain(tail);
    program("setpriv", stranger).refused("only root and who mounted the space");
    assert_eq!(settings(&space), before);
    pool(&space, &["remove", "old"]).ok();
    pool(&space, &["remove", "new"]).refused("the only pool of the space that takes files");
    // Down, with files in it.
    pool(&space, &["remove", "old", "--cancel"]).ok();
    space.down();
    let said = pool(&space, &["remove", "new"]).ok();
    assert!(said.contains("10 files with") && said.contains("from the next `ullage up"), "{said}");
    pool(&space, &["remove", "old"]).refused("the only pool of the space that takes files");
    pool(&space, &["remove", "new", "--cancel"]).ok();
    assert_eq!(settings(&space), before);
    // And without.
    let place = space.ground.join("old");
    fs::write(place.join("2-512/letter"), "somebody's").unwrap();
    let said = pool(&space, &["remove", "old"]).ok();
    assert!(said.contains("1 files that are none of its are left"), "{said}");
    assert_eq!(fs::read(place.join("2-512/letter")).unwrap(), b"somebody's");
    assert!(!settings(&space).contains("\"old\""));
    pool(&space, &["remove", "new"]).refused("the only pool of the space that takes files");
    space.up();
    compare(&space, 10);
    space.down_and_check();
}

/// A disk that is gone, with nothing on it that anybody needs, is no reason not to start.
#[test]
fn a_pool_that_is_gone_and_was_empty_is_removed() {
    let space = plain();
    fill(&space, 10);
    pool(&space, &["remove", "old"]).ok();
    pool(&space, &["remove", "old", "--cancel"]).ok();
    space.down();
    fs::remove_dir_all(space.ground.join("old")).unwrap();
    space.try_up().refused("does not exist");
    let said = pool(&space, &["remove", "old"]).ok();
    assert!(said.contains("the space is without the pool 'old'"), "{said}");
    space.up();
    compare(&space, 10);
    space.down_and_check();
}

/// The only copy of the catalog that was up to date went with it: a rebuild after the loss of the state was one of days before.
#[test]
fn an_empty_pool_stays_while_no_other_has_as_new_a_copy_of_the_catalog() {
    let ground = Ground::new();
    let pools = ["old", "new"].map(|name| ground.directory(name));
    let mirror = pools[1].join(".ullage-mirror");
    let space = two(ground, pools, "");
    fs::write(space.path("file"), "content").unwrap();
    space.down();
    space.up();
    let _ = fs::remove_dir_all(&mirror);
    fs::write(&mirror, "in the way").unwrap();
    pool(&space, &["remove", "old"]).ok();
    space.down();
    assert!(settings(&space).contains("name = \"old\""), "{}", space.log());
    pool(&space, &["remove", "old"]).refused("copy of the catalog as new");
    fs::remove_file(&mirror).unwrap();
    space.up();
    space.down();
    assert!(!settings(&space).contains("name = \"old\""), "{}", space.log());
    space.check();
}
