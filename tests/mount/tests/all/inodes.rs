//! A pool whose file system has no inode left.

use rustix::fs::XattrFlags;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use ullage_mount_tests::ground::{Ground, listing};
use ullage_mount_tests::run::{eventually, program, unmount};
use ullage_mount_tests::space::Space;

/// A space whose pool has a disk of its own, and where that disk is.
fn space(make: impl FnOnce(&mut Ground) -> PathBuf) -> (Space, PathBuf) {
    let mut ground = Ground::new();
    let disk = make(&mut ground);
    let state = ground.directory("plain");
    let mut space = Space::on(ground, &state);
    space.pools = vec![format!("main={}", disk.join("pool").display())];
    fs::create_dir(disk.join("pool")).unwrap();
    space.up();
    (space, disk)
}

fn is_full(outcome: &io::Result<File>) -> bool {
    matches!(outcome, Err(error) if error.raw_os_error() == Some(libc::ENOSPC))
}

/// Makes files until there is no inode; gives back their paths.
fn fill(dir: &Path) -> Vec<PathBuf> {
    let mut made = Vec::new();
    loop {
        let path = dir.join(format!("file-{}", made.len()));
        match File::create_new(&path) {
            Ok(_) => made.push(path),
            outcome if is_full(&outcome) => return made,
            Err(error) => panic!("{}: {error}", path.display()),
        }
        assert!(made.len() < 4000, "there is an end");
    }
}

fn remove(paths: &[PathBuf]) {
    for path in paths {
        fs::remove_file(path).unwrap();
    }
}

fn ext4(ground: &mut Ground) -> PathBuf {
    ground.image("disk", 64, "mkfs.ext4", &["-q", "-F", "-m", "0", "-N", "256"], "loop")
}

fn tmpfs(ground: &mut Ground) -> PathBuf {
    let disk = ground.tmpfs("disk", 64 << 10);
    program("mount", ["-o".as_ref(), "remount,nr_inodes=300".as_ref(), disk.as_os_str()]).ok();
    disk
}

/// It was refused for a second, which is how long it takes until a removal is durable.
#[test]
fn what_was_removed_makes_room_for_a_new_file_where_inodes_are_lacking() {
    for (name, make) in [("ext4", ext4 as fn(&mut Ground) -> PathBuf), ("tmpfs", tmpfs)] {
        let (space, _) = space(make);
        let dir = space.path("dir");
        fs::create_dir(&dir).unwrap();
        let made = fill(&dir);
        assert!(made.len() > 100, "{name}: {} files", made.len());
        let (few, many) = (&made[..10], &made[10..60]);
        for (round, path) in few.iter().enumerate() {
            fs::remove_file(path).unwrap();
            let outcome = File::create_new(dir.join(format!("more-{round}")));
            assert!(outcome.is_ok(), "{name}, round {round}: {outcome:?}");
        }
        remove(many);
        for path in many {
            let outcome = File::create_new(path);
            assert!(outcome.is_ok(), "{name}: {outcome:?}");
        }
        // Nobody waits for what nobody removed.
        std::thread::sleep(Duration::from_millis(1500));
        let began = std::time::Instant::now();
        assert!(is_full(&File::create_new(dir.join("one more"))));
        assert!(began.elapsed() < Duration::from_millis(1500), "{name}: {:?}", began.elapsed());
        space.down_and_check();
    }
}

/// Thirteen of 200 were kept for others while users were refused.
#[test]
fn no_inode_is_kept_ready_for_others_while_somebody_is_refused() {
    let (space, disk) = space(ext4);
    let (first, second) = (space.path("first"), space.path("second"));
    fs::create_dir(&first).and_then(|()| fs::create_dir(&second)).unwrap();
    let count = |dir: &Path| fs::read_dir(dir).unwrap().count();
    for n in 0..60 {
        File::create_new(second.join(format!("{n}"))).unwrap();
    }
    // Those that are removed are emptied, and wait for the next file here.
    remove(&fill(&first)[..30]);
    space.sync();
    fill(&second);
    let is_backing = |path: &Path| {
        let name = path.file_name().unwrap().to_string_lossy();
        let is_hex = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        name.split_once('.').is_some_and(|(file, generation)| is_hex(file) && is_hex(generation))
    };
    let files = || listing(&disk.join("pool")).iter().filter(|(path, _)| path.is_file() && is_backing(path)).count();
    let (held, named) = (files(), count(&first) + count(&second));
    // One may just be in the making.
    assert!(held <= named + 2, "{} backing files are nobody's", held - named);
    space.down_and_check();
}

/// A space with its state on a disk with so few inodes.
fn with_state_on_the_disk() -> (Space, PathBuf) {
    let mut ground = Ground::new();
    let disk = ground.image("disk", 256, "mkfs.ext4", &["-q", "-F", "-m", "0", "-N", "4096"], "loop");
    let space = Space::on(ground, &disk);
    space.up();
    (space, disk)
}

/// The engine of the catalog could make no file any more: the space was read-only, nothing could be removed, and no start found an inode for
/// its socket.
#[test]
fn a_space_that_took_all_inodes_of_the_catalogs_disk_goes_on_and_is_started() {
    let (space, disk) = with_state_on_the_disk();
    let dir = space.path("dir");
    fs::create_dir(&dir).unwrap();
    let made = fill(&dir);
    assert!(made.len() > 2000, "{}", made.len());
    // More than what the engine keeps in memory.
    let large = vec![7; 60_000];
    for n in 0..1000 {
        let path = space.path(format!("{n}"));
        let made = fs::create_dir(&path)
            .and_then(|()| Ok(rustix::fs::setxattr(&path, "user.large", &large, XattrFlags::empty())?));
        made.unwrap_or_else(|error| panic!("{n}: {error}\n{}", space.log()));
    }
    space.sync();
    space.kill();
    unmount(&space.mount);
    space.up();
    space.down();
    // Others leave nothing at all.
    let others = (0..4096).map(|n| disk.join(format!("other-{n}")));
    let taken: Vec<PathBuf> = others.take_while(|path| File::create(path).is_ok()).collect();
    for _ in 0..3 {
        space.up();
        assert!(is_full(&File::create_new(dir.join("one more"))));
        space.sync();
        space.kill();
        unmount(&space.mount);
    }
    space.up();
    remove(&made);
    space.sync();
    remove(&taken);
    eventually("there is room again", Duration::from_secs(30), || File::create_new(dir.join("again")).is_ok());
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// What a plain tree shows takes inodes too.
#[test]
fn a_plain_tree_leaves_inodes_to_the_catalog_on_its_disk() {
    let mut ground = Ground::new();
    let disk = ground.image("disk", 256, "mkfs.ext4", &["-q", "-F", "-m", "0", "-N", "2048"], "loop");
    let mut space = Space::on(ground, &disk);
    space.pools[0].push_str(",layout=mirror");
    space.up();
    for n in 0..3000 {
        fs::create_dir(space.path(format!("{n}"))).unwrap();
    }
    space.sync();
    space.down();
    let free = rustix::fs::statvfs(&disk).unwrap().f_favail;
    assert!(free >= 64, "{free}");
    space.up();
    for n in 0..2000 {
        fs::remove_dir(space.path(format!("{n}"))).unwrap();
    }
    space.down();
    space.up();
    let shown = || (2000..3000).all(|n| space.pool().join(format!("{n}")).is_dir());
    eventually("the tree follows", Duration::from_secs(20), shown);
    space.down_and_check();
}
