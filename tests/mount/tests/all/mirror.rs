//! Pools in the `mirror` layout: a plain tree shows what the mount shows, whatever happens; and a directory with files in it
//! becomes a space.

use crate::rebuild::copy;
use crate::unborn::is_in_step;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, utimensat};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use ullage_mount_tests::ground::{Ground, has_btrfs};
use ullage_mount_tests::run::{eventually, program, ullage};
use ullage_mount_tests::space::Space;

/// A space with one `mirror` pool on `disk`, not yet up.
fn on(ground: Ground, disk: &Path) -> Space {
    let mut space = Space::on(ground, disk);
    space.pools = vec![format!("main={},layout=mirror", space.pool().display())];
    space
}

fn new() -> Space {
    let mut ground = Ground::new();
    let disk = ground.ext4("disk", 512);
    let space = on(ground, &disk);
    space.up();
    space
}

/// Everything below a directory by path, in words. Numbers of files become the first name that has them.
fn described(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut paths = vec![];
    let mut todo = vec![root.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().map(Result::unwrap) {
            if dir == root && (entry.file_name() == ".ullage" || entry.file_name() == "lost+found") {
                continue;
            }
            if entry.file_type().unwrap().is_dir() {
                todo.push(entry.path());
            }
            paths.push(entry.path());
        }
    }
    paths.sort();
    let mut first: BTreeMap<u64, PathBuf> = BTreeMap::new();
    let mut all = BTreeMap::new();
    for path in paths {
        // What goes while we look shows as a difference.
        let Ok(meta) = path.symlink_metadata() else { continue };
        let own = path.strip_prefix(root).unwrap().to_owned();
        let kind = meta.file_type();
        let what = if kind.is_file() {
            let sum = fs::read(&path).map(|bytes| crc32(&bytes)).unwrap_or_default();
            let same = first.entry(meta.ino()).or_insert_with(|| own.clone());
            format!("{sum:x} {} bytes, {} ns, is {}", meta.len(), nanoseconds(&meta), same.display())
        } else if kind.is_symlink() {
            format!("-> {}", fs::read_link(&path).unwrap_or_default().display())
        } else if kind.is_dir() {
            format!("directory {} ns", nanoseconds(&meta))
        } else {
            format!("fifo {} socket {} device {:x}", kind.is_fifo(), kind.is_socket(), meta.rdev())
        };
        all.insert(own, format!("{what} {}:{} {:o}", meta.uid(), meta.gid(), meta.mode()));
    }
    all
}

fn nanoseconds(meta: &fs::Metadata) -> i128 {
    i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec())
}

fn crc32(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0xedb8_8320 * (sum & 1))))
}

/// Waits until the plain tree shows what the mount shows.
#[track_caller]
fn expect_same(space: &Space, tree: &Path) {
    expect_same_but(space, tree, &str::to_owned);
}

/// The same of what `part` leaves of each description.
#[track_caller]
fn expect_same_but(space: &Space, tree: &Path, part: &dyn Fn(&str) -> String) {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let [there, here] = [&*space.mount, tree].map(|root| {
            described(root).into_iter().map(|(path, what)| (path, part(&what))).collect::<BTreeMap<_, _>>()
        });
        if there == here {
            return;
        }
        if Instant::now() > end {
            let missing: Vec<_> = there.iter().filter(|(path, what)| here.get(*path) != Some(what)).take(5).collect();
            let more: Vec<_> = here.iter().filter(|(path, what)| there.get(*path) != Some(what)).take(5).collect();
            panic!("the mount has {missing:?}, the tree has {more:?}\n{}", space.log());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Random operations on few names, so that they meet.
struct Wild {
    state: u64,
    root: PathBuf,
}

impl Wild {
    fn below(&mut self, most: u64) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % most
    }

    fn name(&mut self) -> PathBuf {
        let mut path = self.root.clone();
        for _ in 0..=self.below(3) {
            path.push(format!("n{}", self.below(5)));
        }
        path
    }

    /// One operation; it may fail as any can.
    fn step(&mut self) {
        let (name, other) = (self.name(), self.name());
        match self.below(14) {
            0..=2 => drop(fs::create_dir_all(&name)),
            3..=4 => drop(fs::write(&name, vec![b'a' + self.below(26) as u8; self.below(9000) as usize])),
            5..=7 => drop(fs::rename(&name, &other)),
            8 => drop(fs::hard_link(&name, &other)),
            9 => drop(fs::remove_file(&name).or_else(|_| fs::remove_dir(&name))),
            10 => drop(fs::remove_dir_all(&name)),
            11 => drop(symlink(other, &name)),
            12 => {
                let _ = fs::set_permissions(&name, fs::Permissions::from_mode(0o700 | self.below(64) as u32));
                let _ = chown(&name, Some(self.below(3) as u32 * 1000), None);
            }
            _ => {
                let time = std::time::UNIX_EPOCH + Duration::from_secs(self.below(1 << 30));
                let _ = fs::File::options().write(true).open(&name).and_then(|file| file.set_modified(time));
            }
        }
    }
}

#[test]
fn a_plain_tree_shows_what_the_mount_shows() {
    let space = new();
    let tree = space.pool();
    assert_eq!(tree.metadata().unwrap().mode() & 0o7777, 0o700, "others can write past the space");
    for seed in 0..6 {
        let mut wild = Wild { state: seed, root: space.mount.clone() };
        for _ in 0..1500 {
            wild.step();
        }
        expect_same(&space, &tree);
    }
    let fifo = space.path("n1/fifo");
    fs::create_dir_all(space.path("n1")).unwrap();
    program("mkfifo", ["-m", "640"].map(AsRef::as_ref).into_iter().chain([fifo.as_os_str()])).ok();
    expect_same(&space, &tree);
    space.down_and_check();
    // Ended in order, it need not be looked at again.
    assert!(space.state.join("trees-in-step").exists());
    space.up();
    expect_same(&space, &tree);
}

/// A file that had just been written to was taken for written once more when its time was shown in the tree: its time of change was
/// later than the one that it was given.
#[test]
fn a_file_in_a_plain_tree_that_is_touched_has_one_time() {
    let space = new();
    let path = space.path("file");
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    for round in 0..20 {
        fs::write(&path, "content").unwrap();
        let times = Timestamps { last_access: now, last_modification: now };
        utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
        let meta = path.metadata().unwrap();
        let changed = i128::from(meta.ctime()) * 1_000_000_000 + i128::from(meta.ctime_nsec());
        assert_eq!(nanoseconds(&meta), changed, "in round {round}");
        fs::remove_file(&path).unwrap();
    }
    fs::write(&path, "content").unwrap();
    expect_same(&space, &space.pool());
    space.down_and_check();
}

#[test]
fn a_plain_tree_is_right_again_after_the_daemon_was_killed() {
    let mut space = new();
    let tree = space.pool();
    space.limit(Duration::from_secs(100));
    for seed in 100..106 {
        let mut wild = Wild { state: seed, root: space.mount.clone() };
        let until = Instant::now() + Duration::from_millis(150 + 40 * (seed % 5));
        while Instant::now() < until {
            wild.step();
        }
        space.kill();
        space.up();
        // Times that were set and not made durable may have reached the one and not the other.
        expect_same_but(&space, &tree, &|what| what.split_once(" ns").map_or(what, |(_, rest)| rest).to_owned());
    }
    space.down_and_check();
}

#[test]
fn a_large_tree_that_moves_is_not_built_again() {
    let space = new();
    let tree = space.pool();
    for n in 0..20 {
        fs::create_dir_all(space.path(format!("big/{n}/below"))).unwrap();
        fs::write(space.path(format!("big/{n}/below/file")), "x").unwrap();
    }
    expect_same(&space, &tree);
    let before = tree.join("big/7/below").metadata().unwrap().ino();
    fs::create_dir(space.path("other")).unwrap();
    for round in 0..20 {
        fs::rename(space.path("big"), space.path("other/big")).unwrap();
        fs::write(space.path(format!("other/big/{round}/new")), "x").unwrap();
        fs::rename(space.path("other/big"), space.path("big")).unwrap();
    }
    expect_same(&space, &tree);
    assert_eq!(tree.join("big/7/below").metadata().unwrap().ino(), before, "it was built anew");
}

#[test]
fn what_others_put_into_a_plain_tree_stays() {
    let space = new();
    let tree = space.pool();
    fs::create_dir_all(space.path("dir/sub")).unwrap();
    fs::write(space.path("dir/sub/own"), "own").unwrap();
    expect_same(&space, &tree);
    fs::write(tree.join("dir/sub/theirs"), "theirs").unwrap();
    fs::create_dir(tree.join("dir/folder")).unwrap();
    fs::write(tree.join("in-the-way"), "theirs").unwrap();
    fs::write(space.path("in-the-way"), "own").unwrap();
    fs::rename(space.path("dir"), space.path("moved")).unwrap();
    space.sync();
    space.kill();
    space.up();
    let end = Instant::now() + Duration::from_secs(20);
    while fs::read_to_string(tree.join("moved/sub/own")).unwrap_or_default() != "own" {
        assert!(Instant::now() < end, "{}", space.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(fs::read_to_string(tree.join("moved/sub/theirs")).unwrap(), "theirs");
    assert!(tree.join("moved/folder").is_dir());
    assert_eq!(fs::read_to_string(tree.join("in-the-way")).unwrap(), "theirs");
    assert_eq!(fs::read_to_string(space.path("in-the-way")).unwrap(), "own");
    space.down_and_check();
}

/// All that was neither a directory nor a regular file was taken for ours.
#[test]
fn links_fifos_and_sockets_that_others_put_into_a_plain_tree_stay() {
    let space = new();
    let tree = space.pool();
    let fifo = |path: PathBuf| program("mkfifo", [path.as_os_str()]).ok();
    for dir in ["dir", "removed"] {
        fs::create_dir(space.path(dir)).unwrap();
        symlink("own", space.path(format!("{dir}/own-link"))).unwrap();
        fifo(space.path(format!("{dir}/own-fifo")));
    }
    expect_same(&space, &tree);
    symlink("/etc/hosts", tree.join("link")).unwrap();
    fifo(tree.join("dir/fifo"));
    drop(std::os::unix::net::UnixListener::bind(tree.join("socket")).unwrap());
    symlink("theirs", tree.join("in-the-way")).unwrap();
    symlink("theirs", tree.join("removed/link")).unwrap();
    fs::write(space.path("in-the-way"), "own").unwrap();
    fs::write(space.path("last"), "last").unwrap();
    eventually("it is shown", Duration::from_secs(10), || tree.join("last").exists());
    space.sync();
    space.kill();
    fs::remove_file(tree.join("last")).unwrap();
    space.up();
    eventually("it is looked at", Duration::from_secs(20), || tree.join("last").exists());
    fs::remove_dir_all(space.path("removed")).unwrap();
    for own in ["dir/own-link", "dir/own-fifo"] {
        fs::remove_file(space.path(own)).unwrap();
    }
    fs::rename(space.path("dir"), space.path("moved")).unwrap();
    space.down_and_check();
    for (path, target) in [("link", "/etc/hosts"), ("in-the-way", "theirs")] {
        assert_eq!(fs::read_link(tree.join(path)).unwrap(), Path::new(target));
    }
    assert!(tree.join("socket").symlink_metadata().unwrap().file_type().is_socket());
    let left: Vec<_> = fs::read_dir(tree.join("moved")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["fifo"]);
    assert!(!tree.join("removed").exists());
    let mut kept = fs::read_dir(tree.join(".ullage/limbo")).unwrap().map(|entry| entry.unwrap().path().join("link"));
    assert!(kept.any(|link| link.symlink_metadata().is_ok()), "what was theirs in it went with the directory");
}

/// Copies have all attributes of what they were made from. They were taken for ours: deleted with what had been done to them, put
/// into limbo, or replaced.
#[test]
fn copies_with_all_attributes_in_a_plain_tree_stay() {
    let space = new();
    let tree = space.pool();
    fs::create_dir_all(space.path("project/sub")).unwrap();
    fs::write(space.path("project/sub/own"), "own").unwrap();
    fs::write(space.path("note"), "note").unwrap();
    expect_same(&space, &tree);
    for (from, to) in [("note", "note-edited"), ("project", "project.bak"), ("note", "report.txt")] {
        program("cp", ["-a".as_ref(), tree.join(from).as_os_str(), tree.join(to).as_os_str()]).ok();
    }
    fs::write(tree.join("note-edited"), "note, edited").unwrap();
    fs::write(tree.join("project.bak/new"), "new").unwrap();
    fs::write(space.path("report.txt"), "report").unwrap();
    fs::remove_file(space.path("note")).unwrap();
    fs::write(space.path("last"), "last").unwrap();
    space.sync();
    let theirs = || {
        assert_eq!(fs::read_to_string(tree.join("note-edited")).unwrap(), "note, edited");
        assert_eq!(fs::read_to_string(tree.join("project.bak/new")).unwrap(), "new");
        assert_eq!(fs::read_to_string(tree.join("project.bak/sub/own")).unwrap(), "own");
        assert_eq!(fs::read_to_string(tree.join("report.txt")).unwrap(), "note");
    };
    eventually("what was removed is gone", Duration::from_secs(10), || !tree.join("note").exists());
    theirs();
    space.kill();
    fs::remove_file(tree.join("last")).unwrap();
    space.up();
    eventually("it is looked at", Duration::from_secs(20), || tree.join("last").exists());
    fs::rename(space.path("project"), space.path("moved")).unwrap();
    fs::remove_dir_all(space.path("moved/sub")).unwrap();
    space.down_and_check();
    theirs();
    assert!(tree.join("moved").is_dir() && !tree.join("moved/sub").exists() && !tree.join("project").exists());
}

/// The number of what was removed is given out again, and a copy of a copy still names it: it was put into limbo with all that was in it.
#[test]
fn a_copy_that_gets_the_number_of_what_it_was_made_from_stays() {
    let space = new();
    let tree = space.pool();
    fs::write(space.path("last"), "last").unwrap();
    let copy = |from: &str, to: &str| {
        program("cp", ["-a".as_ref(), tree.join(from).as_os_str(), tree.join(to).as_os_str()]).ok();
    };
    let copied = |name: &str| {
        fs::create_dir(space.path(name)).unwrap();
        fs::write(space.path(name).join("own"), "own").unwrap();
        expect_same(&space, &tree);
        let number = tree.join(name).metadata().unwrap().ino();
        let first = format!("{name}.bak");
        copy(name, &first);
        fs::remove_dir_all(space.path(name)).unwrap();
        eventually("it is gone", Duration::from_secs(10), || {
            !tree.join(name).exists() && fs::read_dir(tree.join(".ullage/limbo")).unwrap().next().is_none()
        });
        let again = (0..100).map(|n| format!("{name}.copy-{n}")).find(|to| {
            copy(&first, to);
            tree.join(to).metadata().unwrap().ino() == number
        });
        // What is not of the space.
        let others: Vec<_> = fs::read_dir(&tree).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        for other in others.iter().filter(|other| again.is_none() && other.to_string_lossy().starts_with(name)) {
            fs::remove_dir_all(tree.join(other)).unwrap();
        }
        again.map(|again| [first, again])
    };
    // The pool may be quicker to take the number that came free.
    let copies = (0..20).find_map(|n| copied(&format!("project-{n}")));
    let copies = copies.expect("a directory gets the number that came free");
    space.sync();
    space.kill();
    fs::remove_file(tree.join("last")).unwrap();
    space.up();
    eventually("it is looked at", Duration::from_secs(20), || tree.join("last").exists());
    space.down_and_check();
    for copy in copies {
        assert_eq!(fs::read_to_string(tree.join(copy).join("own")).unwrap(), "own");
    }
}

/// It has number and time of birth, and was taken for ours: removed with all that was in it, where nothing else had a name for that any more.
#[test]
fn what_is_moved_here_from_the_plain_tree_of_another_space_stays() {
    let space = new();
    let (tree, old) = (space.pool(), space.pool().with_file_name("old"));
    fs::create_dir_all(space.path("project/sub")).unwrap();
    for name in ["project/own", "project/sub/own", "report"] {
        fs::write(space.path(name), name).unwrap();
    }
    expect_same(&space, &tree);
    space.down_and_check();
    // That space is given up, and its tree stays.
    fs::rename(&tree, &old).unwrap();
    fs::remove_dir_all(old.join(".ullage")).unwrap();
    fs::remove_dir_all(&space.state).unwrap();
    fs::create_dir(&tree).unwrap();
    space.up();
    fs::create_dir(space.path("dir")).unwrap();
    fs::write(space.path("last"), "last").unwrap();
    expect_same(&space, &tree);
    for name in ["project", "report"] {
        fs::rename(old.join(name), tree.join(name)).unwrap();
    }
    space.sync();
    space.kill();
    fs::remove_file(tree.join("last")).unwrap();
    space.up();
    eventually("it is looked at", Duration::from_secs(20), || tree.join("last").exists() && is_in_step(&space));
    for name in ["project/own", "project/sub/own", "report"] {
        assert_eq!(fs::read_to_string(tree.join(name)).unwrap_or_default(), name);
    }
    space.down_and_check();
}

/// Nothing in a copy has the number that its attributes name.
#[test]
fn the_plain_tree_of_a_pool_that_was_copied_is_followed_as_before() {
    let space = new();
    let pool = space.pool();
    fs::create_dir_all(space.path("dir/sub")).unwrap();
    (0..20).for_each(|n| fs::write(space.path(format!("dir/sub/file-{n}")), format!("content {n}")).unwrap());
    symlink("file-1", space.path("dir/sub/link")).unwrap();
    space.down_and_check();
    let old = pool.with_file_name("old");
    fs::rename(&pool, &old).unwrap();
    program("cp", ["-a".as_ref(), old.as_os_str(), pool.as_os_str()]).ok();
    fs::remove_dir_all(&old).unwrap();
    space.up();
    eventually("all is looked at", Duration::from_secs(20), || is_in_step(&space));
    fs::rename(space.path("dir/sub"), space.path("sub")).unwrap();
    fs::remove_file(space.path("sub/file-3")).unwrap();
    fs::write(space.path("sub/file-4"), "other").unwrap();
    expect_same(&space, &pool);
    assert!(!pool.join("sub/file-3").exists() && !pool.join("dir/sub").exists());
    fs::remove_file(space.path("sub/link")).unwrap();
    expect_same(&space, &pool);
    fs::remove_dir_all(space.path("sub")).unwrap();
    expect_same(&space, &pool);
    space.down_and_check();
}

/// An older state said that it was in step, which it had been then: names that the space had not stayed, and others were missing.
#[test]
fn a_plain_tree_that_is_newer_than_its_state_is_looked_at() {
    let space = new();
    let (tree, kept) = (space.pool(), space.ground.join("kept"));
    fs::create_dir_all(space.path("dir/sub")).unwrap();
    (0..20).for_each(|n| fs::write(space.path(format!("dir/file-{n}")), format!("content {n}")).unwrap());
    symlink("file-1", space.path("dir/link")).unwrap();
    expect_same(&space, &tree);
    space.down();
    copy(&space.state, &kept);
    assert!(kept.join("trees-in-step").exists(), "it was not in step");
    space.up();
    fs::rename(space.path("dir"), space.path("moved")).unwrap();
    fs::remove_dir(space.path("moved/sub")).unwrap();
    fs::create_dir(space.path("made")).unwrap();
    fs::write(space.path("made/since"), "since").unwrap();
    fs::rename(space.path("moved/file-3"), space.path("made/file-3")).unwrap();
    expect_same(&space, &tree);
    space.down();
    copy(&kept, &space.state);
    let turns = tree.join(".ullage/.ullage-turns");
    space.try_up().refused(&format!("remove {}", turns.display()));
    fs::remove_file(turns).unwrap();
    space.up();
    expect_same(&space, &tree);
    assert_eq!(fs::read_to_string(tree.join("dir/file-3")).unwrap(), "content 3");
    space.down();
    // What was made since is lost, as was said: a repair finds it.
    space.try_check(&["--repair"]).ok();
    space.check();
}

/// What an earlier state had left there said that its tree was in step.
#[test]
fn a_plain_tree_is_looked_at_after_a_rebuild_where_the_state_was() {
    let space = new();
    let tree = space.pool();
    fs::write(space.path("last"), "last").unwrap();
    expect_same(&space, &tree);
    space.down();
    // It is believed where it is so, or none of this says anything.
    fs::remove_file(tree.join("last")).unwrap();
    space.up();
    assert!(is_in_step(&space) && !tree.join("last").exists(), "all was looked at");
    space.down();
    assert!(space.state.join("trees-in-step").exists());
    fs::remove_dir_all(space.state.join("catalog")).unwrap();
    fs::remove_file(space.state.join("space.toml")).unwrap();
    let words = ["rebuild".as_ref(), space.mount.as_os_str(), "--state".as_ref(), space.state.as_os_str()];
    let pool = format!("main={}", tree.display());
    ullage(words.into_iter().chain(["--pool".as_ref(), pool.as_ref()])).ok();
    space.up();
    eventually("it is looked at", Duration::from_secs(20), || tree.join("last").exists());
    expect_same(&space, &tree);
    space.down_and_check();
}

#[test]
fn a_removed_file_is_never_emptied_while_the_tree_has_it() {
    let space = new();
    let tree = space.pool();
    fs::write(space.path("file"), "data").unwrap();
    expect_same(&space, &tree);
    // As a backup tool would, that keeps what it saw.
    fs::hard_link(tree.join("file"), tree.join(".ullage/kept")).unwrap();
    fs::remove_file(space.path("file")).unwrap();
    space.sync();
    for n in 0..200 {
        fs::write(space.path(format!("next-{n}")), "other data").unwrap();
    }
    std::thread::sleep(Duration::from_secs(3));
    space.down();
    assert_eq!(fs::read_to_string(tree.join(".ullage/kept")).unwrap(), "data");
}

/// A directory with files of all kinds in it.
fn fill(dir: &Path) {
    fs::create_dir_all(dir.join("a/b/c")).unwrap();
    for n in 0..500 {
        fs::write(dir.join(format!("a/b/file-{n}")), format!("content {n}")).unwrap();
        chown(dir.join(format!("a/b/file-{n}")), Some(n), Some(n + 1)).unwrap();
    }
    fs::hard_link(dir.join("a/b/file-1"), dir.join("a/second")).unwrap();
    symlink("a/b", dir.join("link")).unwrap();
    program("mkfifo", [dir.join("fifo").as_os_str()]).ok();
    program("mknod", [dir.join("null").as_os_str(), "c".as_ref(), "1".as_ref(), "3".as_ref()]).ok();
    fs::set_permissions(dir.join("a/b/c"), fs::Permissions::from_mode(0o2751)).unwrap();
    program(
        "setfattr",
        ["-n", "user.colour", "-v", "green"].map(AsRef::as_ref).into_iter().chain([dir.join("a/b/file-2").as_os_str()]),
    )
    .ok();
    program("setfacl", ["-m", "u:1234:r"].map(AsRef::as_ref).into_iter().chain([dir.join("a/b/file-3").as_os_str()]))
        .ok();
    let old = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs::File::options().write(true).open(dir.join("a/b/file-4")).unwrap().set_modified(old).unwrap();
    fs::set_permissions(dir, fs::Permissions::from_mode(0o751)).unwrap();
}

#[test]
fn a_directory_with_files_becomes_a_space() {
    let mut ground = Ground::new();
    let disk = ground.ext4("disk", 512);
    let mut space = on(ground, &disk);
    let tree = space.pool();
    fill(&tree);
    let before = described(&tree);
    let number = tree.join("a/b/file-7").metadata().unwrap().ino();
    space.try_up().refused("--import");
    assert_eq!(described(&tree), before);
    assert!(!space.state.exists(), "what is refused leaves nothing");
    space.flags = vec!["--import".into()];
    space.up();
    space.flags.clear();
    assert_eq!(described(&space.mount), before, "the mount shows something else");
    assert_eq!(space.mount.metadata().unwrap().mode() & 0o7777, 0o751);
    expect_same(&space, &tree);
    assert_eq!(tree.join("a/b/file-7").metadata().unwrap().ino(), number, "it was copied");
    let told =
        Command::new("getfattr").args(["-n", "user.colour", "--only-values"]).arg(space.path("a/b/file-2")).output();
    assert_eq!(told.unwrap().stdout, b"green");
    let acl = Command::new("getfacl").arg(space.path("a/b/file-3")).output().unwrap();
    assert!(String::from_utf8_lossy(&acl.stdout).contains("user:1234:r"));
    space.compare_du(&space.mount);
    fs::write(space.path("a/b/file-7"), "new content").unwrap();
    fs::remove_file(space.path("a/b/file-8")).unwrap();
    expect_same(&space, &tree);
    space.down_and_check();
    assert_eq!(fs::read_to_string(tree.join("a/b/file-7")).unwrap(), "new content");
}

/// Of two with one name the second was left out of the space, and nobody was told.
#[test]
fn what_has_a_name_in_two_pools_is_refused_by_its_path_and_taken_in_once_it_has_another() {
    let mut ground = Ground::new();
    let disks = [ground.ext4("one", 512), ground.ext4("other", 512)];
    let mut space = on(ground, &disks[0]);
    let trees = disks.each_ref().map(|disk| disk.join("tree"));
    for (n, tree) in trees.iter().enumerate() {
        fs::create_dir_all(tree.join("both")).unwrap();
        fs::write(tree.join(format!("both/file-{n}")), "content").unwrap();
        symlink("target", tree.join("both/link")).unwrap();
    }
    fs::create_dir(trees[0].join("both/name")).unwrap();
    fs::write(trees[1].join("both/name"), "a file").unwrap();
    fs::write(trees[0].join("both/same"), "content of one").unwrap();
    fs::write(trees[1].join("both/same"), "content of the other").unwrap();
    space.pools =
        trees.iter().enumerate().map(|(n, tree)| format!("pool{n}={},layout=mirror", tree.display())).collect();
    space.flags = vec!["--import".into()];
    for renamed in ["both/name", "both/same"] {
        let outcome = space.try_up();
        space.flags.clear();
        let refused = ["both/name", "both/same"].into_iter().find(|path| outcome.err.contains(path));
        outcome.refused("another pool");
        let refused = trees[1].join(refused.expect(renamed));
        fs::rename(&refused, refused.with_extension("1")).unwrap();
    }
    space.up();
    let found = described(&space.mount);
    let names: Vec<_> = found.keys().map(|path| path.to_str().unwrap()).collect();
    let below = ["", "/file-0", "/file-1", "/link", "/name", "/name.1", "/same", "/same.1"];
    assert_eq!(names, below.map(|name| format!("both{name}")));
    assert_eq!(fs::read_to_string(space.path("both/same.1")).unwrap(), "content of the other");
    space.down_and_check();
}

/// The block that the attribute took, where there was no room in the inode, was missing in all that is counted until each was opened.
#[test]
fn what_is_taken_in_is_charged_all_its_blocks() {
    let mut ground = Ground::new();
    let disk = ground.image("disk", 128, "mkfs.ext4", &["-q", "-F", "-I", "128"], "loop");
    let mut space = on(ground, &disk);
    let tree = space.pool();
    fs::write(tree.join("file"), "content").unwrap();
    let before = tree.join("file").metadata().unwrap().blocks();
    space.flags = vec!["--import".into()];
    space.up();
    space.flags.clear();
    let after = tree.join("file").metadata().unwrap().blocks();
    assert!(after > before);
    assert_eq!(space.path("file").metadata().unwrap().blocks(), after);
    space.down_and_check();
}

/// Its backing files were taken in as files, and none of the other space could be opened any more.
#[test]
fn the_pool_of_another_space_is_not_taken_in() {
    for layout in ["sparse", "mirror"] {
        let mut ground = Ground::new();
        let disk = ground.ext4("disk", 128);
        let mut space = Space::on(ground, &disk);
        space.pools[0] = format!("{},layout={layout}", space.pools[0]);
        space.up();
        fs::write(space.path("file"), "content").unwrap();
        space.down_and_check();
        let other = space.ground.join("other");
        let state = std::mem::replace(&mut space.state, other);
        let pools = std::mem::replace(&mut space.pools, vec![format!("all={},layout=mirror", disk.display())]);
        space.flags = vec!["--import".into()];
        space.try_up().refused("is a pool of its own");
        space.flags.clear();
        (space.state, space.pools) = (state, pools);
        space.up();
        assert_eq!(fs::read_to_string(space.path("file")).unwrap(), "content");
        space.down_and_check();
    }
}

/// A space, not yet up, that is to take in what lies in two plain trees on one disk.
fn of_two() -> (Space, [PathBuf; 2]) {
    let mut ground = Ground::new();
    let disk = ground.ext4("disk", 512);
    let trees = ["one", "other"].map(|name| disk.join(name));
    let mut space = on(ground, &disk);
    let pool = |(n, tree): (usize, &PathBuf)| format!("pool{n}={},layout=mirror", tree.display());
    space.pools = trees.iter().enumerate().map(pool).collect();
    for tree in &trees {
        fs::create_dir_all(tree.join("dir")).unwrap();
    }
    space.flags = vec!["--import".into()];
    (space, trees)
}

/// What had been taken in kept its name in the space, so that the other was refused for ever; and what was moved was taken in twice.
#[test]
fn what_was_taken_in_before_an_import_was_refused_may_get_another_name_too() {
    let (mut space, trees) = of_two();
    for (n, tree) in trees.iter().enumerate() {
        for name in ["removed", "renamed", "replaced"] {
            fs::write(tree.join("dir").join(name), format!("{name} of {n}")).unwrap();
        }
    }
    fs::create_dir_all(trees[0].join("dir/moved/sub")).unwrap();
    fs::write(trees[0].join("dir/moved/sub/file"), "file").unwrap();
    fs::write(trees[1].join("dir/moved"), "moved of 1").unwrap();
    space.try_up().refused("another pool");
    space.flags.clear();
    let first = |name: &str| trees[0].join("dir").join(name);
    fs::remove_file(first("removed")).unwrap();
    fs::rename(first("renamed"), first("renamed.0")).unwrap();
    fs::rename(first("moved"), first("moved.0")).unwrap();
    fs::rename(first("replaced"), first("replaced.0")).unwrap();
    fs::rename(trees[1].join("dir/replaced"), trees[1].join("dir/replaced.1")).unwrap();
    fs::write(first("replaced"), "another one").unwrap();
    space.up();
    let expected = [
        ("removed", "removed of 1"),
        ("renamed", "renamed of 1"),
        ("renamed.0", "renamed of 0"),
        ("replaced", "another one"),
        ("replaced.0", "replaced of 0"),
        ("replaced.1", "replaced of 1"),
        ("moved", "moved of 1"),
        ("moved.0/sub/file", "file"),
    ];
    for (name, content) in expected {
        assert_eq!(fs::read_to_string(space.path("dir").join(name)).unwrap_or_default(), content, "{name}");
    }
    assert_eq!(fs::read_dir(space.path("dir")).unwrap().count(), expected.len());
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// The second pool took it for another file, and from then on it could not be opened by its first name.
#[test]
fn what_has_names_in_two_trees_on_one_disk_is_one_file() {
    let (mut space, trees) = of_two();
    fs::write(trees[0].join("dir/first"), "content").unwrap();
    for name in ["second", "dir/first"] {
        fs::hard_link(trees[0].join("dir/first"), trees[1].join(name)).unwrap();
    }
    space.up();
    space.flags.clear();
    for name in ["dir/first", "second"] {
        assert_eq!(fs::read_to_string(space.path(name)).unwrap(), "content");
        assert_eq!(space.path(name).metadata().unwrap().nlink(), 2);
    }
    eventually("the trees follow", Duration::from_secs(10), || is_in_step(&space));
    assert_eq!(fs::read_to_string(trees[0].join("second")).unwrap(), "content");
    space.down_and_check();
}

#[test]
fn an_import_that_was_killed_goes_on_and_loses_nothing() {
    let mut ground = Ground::new();
    let disk = ground.ext4("disk", 512);
    let mut space = on(ground, &disk);
    space.limit(Duration::from_secs(100));
    let tree = space.pool();
    for dir in 0..20 {
        fs::create_dir(tree.join(format!("dir-{dir}"))).unwrap();
        for n in 0..500 {
            fs::write(tree.join(format!("dir-{dir}/file-{n}")), format!("content {dir} {n}")).unwrap();
        }
        // Whichever is met first, the other is met after a kill.
        for n in 0..50 {
            let other = (dir + 10) % 20;
            let linked = tree.join(format!("dir-{dir}/link-{n}"));
            if other > dir {
                fs::write(&linked, format!("linked {dir} {n}")).unwrap();
            } else {
                fs::hard_link(tree.join(format!("dir-{other}/link-{n}")), &linked).unwrap();
            }
        }
    }
    let before = described(&tree);
    let mut killed = 0;
    for pause in [20, 60, 120, 200, 300, 500] {
        let mut words: Vec<std::ffi::OsString> = vec!["up".into(), space.mount.clone().into(), "--foreground".into()];
        words.extend(["--state".into(), space.state.clone().into()]);
        if !space.state.join("space.toml").exists() {
            words.extend(["--pool".into(), space.pools[0].clone().into(), "--import".into()]);
        }
        let mut up = Command::new(ullage_mount_tests::binary::path()).args(words).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(pause));
        killed += usize::from(!ullage_mount_tests::watchdog::is_mounted(&space.mount));
        up.kill().unwrap();
        up.wait().unwrap();
        assert_eq!(described(&tree), before, "killed after {pause} ms");
    }
    assert!(killed > 0, "it was always done before");
    space.flags.clear();
    // On a busy machine none came as far as the settings.
    if !space.state.join("space.toml").exists() {
        space.flags.push("--import".into());
    }
    space.up();
    assert_eq!(described(&space.mount), before);
    space.down_and_check();
}

#[test]
fn a_space_with_a_plain_tree_is_rebuilt_from_it() {
    let mut space = new();
    let tree = space.pool();
    fs::create_dir(space.path("dir")).unwrap();
    fs::write(space.path("dir/file"), "data").unwrap();
    expect_same(&space, &tree);
    space.down();
    let before = described(&tree);
    fs::remove_dir_all(&space.state).unwrap();
    let state = space.ground.join("state-new");
    let pool = format!("main={}", tree.display());
    ullage([
        "rebuild".as_ref(),
        space.mount.as_os_str(),
        "--state".as_ref(),
        state.as_os_str(),
        "--pool".as_ref(),
        pool.as_ref(),
    ])
    .ok();
    space.state = state;
    space.up();
    assert_eq!(described(&space.mount), before);
    expect_same(&space, &tree);
    space.down_and_check();
}

#[test]
fn plain_trees_are_kept_on_other_file_systems_and_by_ordinary_means() {
    let mut ground = Ground::new();
    let other = if has_btrfs() { ground.btrfs("other", 256) } else { ground.ext4("other", 256) };
    let disks = [ground.xfs("xfs", 320), other];
    let mut space = on(ground, &disks[0]);
    fs::create_dir(disks[1].join("second")).unwrap();
    space.pools.push(format!("second={},layout=mirror", disks[1].join("second").display()));
    space.flags = ["--spread", "round-robin"].iter().map(Into::into).collect();
    space.up();
    let mut wild = Wild { state: 7, root: space.mount.clone() };
    for _ in 0..1500 {
        wild.step();
    }
    let trees = [space.pool(), disks[1].join("second")];
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        // Each file is in one of them, and all else in both.
        let whole: Vec<_> = described(&space.mount).into_keys().collect();
        let parts = trees.each_ref().map(|tree| described(tree));
        let both: Vec<PathBuf> = parts
            .iter()
            .flat_map(BTreeMap::keys)
            .cloned()
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .collect();
        let twice = parts[0].iter().any(|(path, what)| what.contains("bytes") && parts[1].contains_key(path));
        if whole == both && !twice {
            break;
        }
        assert!(Instant::now() < end, "{whole:?}\n{both:?}\n{}", space.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    space.flags.clear();
    space.down_and_check();
}

#[test]
fn plain_trees_in_impossible_places_are_refused() {
    let ground = Ground::new();
    let disk = ground.directory("disk");
    let mut space = on(ground, &disk);
    let tree = space.pool();
    let plain = space.pools.clone();
    space.pools.push(format!("inner={}", tree.join("x").display()));
    fs::create_dir(tree.join("x")).unwrap();
    space.try_up().refused("plain tree of pool 'main'");
    fs::remove_dir(tree.join("x")).unwrap();
    space.pools = plain;
    let state = std::mem::replace(&mut space.state, tree.join("state"));
    space.try_up().refused("plain tree of pool 'main'");
    let _ = fs::remove_dir_all(tree.join("state"));
    space.state = state;
    space.flags = vec!["--import".into()];
    space.pools = vec![format!("main={}", tree.display())];
    space.try_up().refused("--import is for pools with layout=mirror");
}

/// Regression: an empty file had the time when its backing file was made ahead of it, and one that was cut off another one than the space said.
#[test]
fn what_nobody_wrote_to_has_its_own_times_in_the_tree() {
    let space = new();
    fs::write(space.path("cut-off"), "content").unwrap();
    std::thread::sleep(Duration::from_secs(3));
    fs::write(space.path("empty"), "").unwrap();
    fs::OpenOptions::new().write(true).open(space.path("cut-off")).unwrap().set_len(3).unwrap();
    for name in ["empty", "cut-off"] {
        let times = || [&space.mount, &space.pool()].map(|root| nanoseconds(&root.join(name).metadata().unwrap()));
        eventually(name, Duration::from_secs(20), || {
            let [shown, below] = times();
            shown == below
        });
    }
    space.down_and_check();
}
