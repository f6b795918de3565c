//! A pool in which a file cannot be read any more.

use crate::rebuild::{pools, run};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::run::{program, unmount};
use ullage_mount_tests::space::Space;

/// The head of the list of extents in an ext4 inode with one.
const SOUND: &str = "0x0001f30a";

fn content(space: &Space, n: u32) -> String {
    fs::read_to_string(space.path(format!("dir/file-{n}"))).unwrap_or_else(|error| error.to_string())
}

fn expect(space: &Space, those: &[u32]) {
    for n in those {
        assert_eq!(content(space, *n), format!("content {n}"));
    }
}

/// Sets the first word of an inode's map, on the disk that nobody has mounted meanwhile.
fn set_map(space: &mut Space, disk: &Path, inode: u64, word: &str) {
    unmount(disk);
    let image = space.ground.join("pool-disk.img");
    let request = format!("set_inode_field <{inode}> block[0] {word}");
    program("debugfs", ["-w".as_ref(), "-R".as_ref(), request.as_ref(), image.as_os_str()]).ok();
    space.ground.mount_image("pool-disk", &image);
}

/// A space that was killed, with synced files, of which the second cannot be read any more.
struct Bed {
    space: Space,
    disk: PathBuf,
    /// Of that file.
    backing: PathBuf,
    inode: u64,
}

fn bed(files: u32) -> Bed {
    let mut ground = Ground::new();
    let (disk, state) = (ground.ext4("pool-disk", 128), ground.directory("state-disk"));
    let mut space = Space::on(ground, &state);
    fs::create_dir(disk.join("pool")).unwrap();
    space.pools = vec![format!("main={}", disk.join("pool").display())];
    space.up();
    fs::create_dir(space.path("dir")).unwrap();
    for n in 0..files {
        let name = space.path(format!("dir/file-{n}"));
        fs::write(&name, format!("content {n}")).unwrap();
        fs::File::open(&name).and_then(|file| file.sync_all()).unwrap();
    }
    let backing = space.backing(&space.path("dir/file-1"));
    let inode = backing.metadata().unwrap().ino();
    space.kill();
    unmount(&space.mount);
    set_map(&mut space, &disk, inode, "0");
    Bed { space, disk, backing, inode }
}

/// One file that could not be read kept `up`, `check` and `rebuild` from all the others.
#[test]
fn a_backing_file_that_cannot_be_read_keeps_nobody_from_the_others_and_is_kept() {
    let Bed { mut space, disk, backing, inode } = bed(4);
    let shown = backing.display().to_string();
    for _ in 0..2 {
        space.up();
        expect(&space, &[0, 2, 3]);
        assert!(content(&space, 1).contains("os error 5"), "{}", content(&space, 1));
        assert!(space.log().contains(&shown), "{}", space.log());
        fs::write(space.path("dir/later"), "made since").unwrap();
        space.sync();
        space.kill();
        unmount(&space.mount);
    }
    space.up();
    space.down();
    let check = space.try_check(&[]);
    assert_eq!(check.code, Some(1), "{}", check.err);
    assert!(check.out.contains(&shown) && check.out.contains("fsck"), "{}", check.out);
    space.try_check(&["--repair"]).refused(&shown);
    let all = space.pools.clone();
    let old = space.state.clone();
    let rebuilt = run(&mut space, "state-new", &all, &[]);
    let report: serde_json::Value = serde_json::from_str(&rebuilt.out).unwrap();
    assert!(report["warnings"].to_string().contains(&shown), "{report}");
    assert_eq!((&report["adopted"], &report["dropped"]), (&0.into(), &0.into()), "{report}");
    space.up();
    expect(&space, &[0, 2, 3]);
    assert_eq!(space.path("dir/file-1").metadata().unwrap().len(), 9, "its length is not that of the copy");
    space.kill();
    unmount(&space.mount);
    // Mended, it is there whole, in the state of before too.
    set_map(&mut space, &disk, inode, SOUND);
    space.up();
    expect(&space, &[0, 1, 2, 3]);
    space.down_and_check();
    let rebuilt = std::mem::replace(&mut space.state, old);
    fs::remove_file(pools(&space)[0].join(".ullage-turns")).unwrap();
    space.up();
    expect(&space, &[0, 1, 2, 3]);
    space.down_and_check();
    space.state = rebuilt;
}

/// The space could not be started after a kill, and nobody was told what to do.
#[test]
fn a_directory_of_a_pool_that_cannot_be_read_keeps_nobody_from_the_files_in_others() {
    let mut ground = Ground::new();
    let (disk, state) = (ground.ext4("pool-disk", 128), ground.directory("state-disk"));
    let mut space = Space::on(ground, &state);
    fs::create_dir(disk.join("pool")).unwrap();
    space.pools = vec![format!("main={}", disk.join("pool").display())];
    space.up();
    let dirs: Vec<PathBuf> = (0..8).map(|n| space.path(format!("dir-{n}"))).collect();
    for dir in &dirs {
        fs::create_dir(dir).unwrap();
        fs::write(dir.join("file"), "content").unwrap();
    }
    let leaves: Vec<PathBuf> =
        dirs.iter().map(|dir| space.backing(&dir.join("file")).parent().unwrap().to_owned()).collect();
    let lost = leaves[0].clone();
    assert!(leaves.iter().any(|leaf| *leaf != lost), "all lie in one");
    space.sync();
    space.kill();
    unmount(&space.mount);
    unmount(&disk);
    let image = space.ground.join("pool-disk.img");
    let request = format!(
        "zap_block -f /{} 0",
        lost.strip_prefix(disk.canonicalize().unwrap_or(disk.clone())).unwrap_or(&lost).display()
    );
    program("debugfs", ["-w".as_ref(), "-R".as_ref(), request.as_ref(), image.as_os_str()]).ok();
    space.ground.mount_image("pool-disk", &image);
    for _ in 0..2 {
        space.up();
        for (dir, leaf) in dirs.iter().zip(&leaves) {
            let read = fs::read_to_string(dir.join("file"));
            assert_eq!(read.is_ok(), *leaf != lost, "{}: {read:?}", dir.display());
            fs::write(dir.join("new"), "new").unwrap();
        }
        assert!(space.log().contains(&lost.display().to_string()) && space.log().contains("fsck"), "{}", space.log());
        space.kill();
        unmount(&space.mount);
    }
    let check = space.try_check(&[]);
    assert!(check.code != Some(0) && check.err.contains("run fsck on it"), "{}{}", check.out, check.err);
    let all = space.pools.clone();
    run(&mut space, "state-new", &all, &[]).refused("run fsck on it");
}

/// Who followed the advice got an empty file, and was told that it was never flushed; `check` called the space clean before that.
#[test]
fn a_backing_file_that_could_not_be_read_and_is_gone_leaves_no_empty_file() {
    let Bed { mut space, disk, backing, inode } = bed(3);
    let shown = backing.display().to_string();
    space.up();
    assert!(content(&space, 1).contains("os error 5"), "{}", content(&space, 1));
    space.down();
    // As fsck gives it up.
    set_map(&mut space, &disk, inode, SOUND);
    fs::remove_file(&backing).unwrap();
    for _ in 0..2 {
        let check = space.try_check(&[]);
        assert_eq!(check.code, Some(1), "{}", check.err);
        assert!(check.out.contains(&shown) && check.out.contains("missing"), "{}", check.out);
        space.up();
        expect(&space, &[0, 2]);
        assert!(content(&space, 1).contains("os error 5"), "{}", content(&space, 1));
        assert!(!space.log().contains("was never flushed"), "{}", space.log());
        space.down();
    }
    let repaired = space.try_check(&["--repair"]);
    assert!(repaired.out.contains("file-1') was dropped"), "{}{}", repaired.out, repaired.err);
    space.up();
    expect(&space, &[0, 2]);
    assert!(!space.path("dir/file-1").exists());
    space.down_and_check();
}

/// It may be given up in the space as well.
#[test]
fn a_file_whose_backing_file_could_not_be_read_and_is_gone_can_be_removed() {
    let Bed { mut space, disk, backing, inode } = bed(2);
    space.up();
    space.down();
    set_map(&mut space, &disk, inode, SOUND);
    fs::remove_file(&backing).unwrap();
    space.up();
    fs::remove_file(space.path("dir/file-1")).unwrap();
    space.sync();
    space.down_and_check();
    space.up();
    space.down_and_check();
}
