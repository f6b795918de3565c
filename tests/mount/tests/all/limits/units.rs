//! File systems that give a file more than a block at once: what they give is bound, not what was written.

use super::bed::{is_full, limit};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::recount::counted;
use ullage_mount_tests::run::program;
use ullage_mount_tests::space::Space;

fn over(ground: Ground, pool: &Path) -> Space {
    let state = ground.directory("plain");
    let mut space = Space::on(ground, pool);
    space.state = state.join("state");
    space.up();
    space
}

/// A tmpfs that gives files huge pages; none where the kernel has no such.
fn with_huge_pages(ground: &mut Ground, options: &str) -> Option<PathBuf> {
    let disk = ground.directory("disk");
    let options = format!("{options},huge=always");
    let mounted = program("mount", ["-t", "tmpfs", "-o", &options, "tmpfs", disk.to_str().unwrap()]);
    if mounted.code != Some(0) {
        eprintln!("skipped: this kernel has no huge pages for tmpfs");
        return None;
    }
    ground.will_unmount(&disk);
    Some(disk)
}

/// Fills a directory with files of so many bytes. Gives back how many fit.
fn filled(dir: &Path, bytes: usize, handle: &OpenOptions) -> usize {
    let refused = |n: &usize| {
        let outcome = handle.open(dir.join(n.to_string())).unwrap().write_all_at(&vec![1; bytes], 0);
        assert!(outcome.is_ok() || is_full(&outcome), "{outcome:?}");
        outcome.is_err()
    };
    (0..1000).find(refused).expect("no limit was met")
}

/// The first byte of each cluster takes all of it, and so does each block of a map.
#[test]
fn a_limit_is_kept_where_ext4_gives_clusters_of_blocks() {
    const CLUSTER: u64 = 65536;
    let mut ground = Ground::new();
    let pool = ground.image("disk", 512, "mkfs.ext4", &["-q", "-F", "-O", "bigalloc", "-C", "65536"], "loop");
    let space = over(ground, &pool);
    let mut both = OpenOptions::new();
    both.read(true).write(true).create(true).truncate(false);
    let mut writes = OpenOptions::new();
    writes.write(true).create(true).truncate(false);
    for (how, handle) in [("for both", &both), ("for writing", &writes)] {
        let dir = space.path(how);
        fs::create_dir(&dir).unwrap();
        limit(&["300K"], &dir);
        assert_eq!(filled(&dir, 4096, handle), 4, "{how}");
        space.sync();
        assert!(counted(&dir).bytes <= 300 << 10, "{how}: {} bytes", counted(&dir).bytes);

        // One of many extents, some of them in each cluster.
        let dir = space.path(format!("{how} many"));
        fs::create_dir(&dir).unwrap();
        let most = 4 << 20;
        limit(&[&format!("{most}B")], &dir);
        let file = handle.open(dir.join("file")).unwrap();
        let fits = (0..2000).take_while(|n| {
            let outcome = file.write_all_at(&[1; 4096], n * 8192);
            assert!(outcome.is_ok() || is_full(&outcome), "{outcome:?}");
            outcome.is_ok()
        });
        let fits = fits.count() as u64;
        file.sync_all().unwrap();
        let used = counted(&dir).bytes;
        assert!(used <= most, "{how}: {} bytes past the limit", used - most);
        assert!((most - 12 * CLUSTER) / 8192 / 2 < fits, "{how}: {fits}");
        drop(file);
    }
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// Has a space start on a disk on which no file can be made, and then makes room there.
fn started_without_inodes(space: &Space, disk: &Path) {
    space.down();
    let taken = disk.join("taken");
    fs::create_dir(&taken).unwrap();
    while File::create(taken.join(fs::read_dir(&taken).unwrap().count().to_string())).is_ok() {}
    space.up();
    assert!(space.log().contains("is full: until a start"), "{}", space.log());
    fs::remove_dir_all(&taken).unwrap();
}

/// What is given at once could not be tried, and was taken for a block as long as the space was up.
#[test]
fn a_limit_is_kept_where_no_file_could_be_made_when_an_ext4_with_clusters_was_opened() {
    let mut ground = Ground::new();
    let flags = ["-q", "-F", "-O", "bigalloc", "-C", "65536", "-N", "1024"];
    let disk = ground.image("disk", 512, "mkfs.ext4", &flags, "loop");
    let space = over(ground, &disk);
    started_without_inodes(&space, &disk);
    let dir = space.path("dir");
    fs::create_dir(&dir).unwrap();
    limit(&["2M"], &dir);
    let mut writes = OpenOptions::new();
    writes.write(true).create(true).truncate(false);
    let fits = filled(&dir, 4096, &writes);
    space.sync();
    assert!(counted(&dir).bytes <= 2 << 20, "{} bytes in {fits} files", counted(&dir).bytes);
    assert!(fits > 15, "{fits}");
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// The same: a file of 8 MiB took 120.
#[test]
fn a_limit_is_kept_where_no_file_could_be_made_when_a_tmpfs_with_huge_pages_was_opened() {
    let mut ground = Ground::new();
    let Some(disk) = with_huge_pages(&mut ground, "size=256m,nr_inodes=400") else { return };
    let space = over(ground, &disk);
    started_without_inodes(&space, &disk);
    let dir = space.path("dir");
    fs::create_dir(&dir).unwrap();
    limit(&["8M"], &dir);
    let file = File::options().read(true).write(true).create_new(true).open(dir.join("file")).unwrap();
    let fits = (0..60).take_while(|n| file.write_all_at(&[1], n << 21).is_ok()).count();
    assert!(counted(&dir).bytes <= 8 << 20, "{} bytes after {fits} writes", counted(&dir).bytes);
    assert!(fits >= 2, "{fits}");
    drop(file);
    space.compare_du(&space.mount);
    space.down_and_check();
}

#[test]
fn a_limit_is_kept_where_tmpfs_gives_huge_pages() {
    let mut ground = Ground::new();
    let Some(pool) = with_huge_pages(&mut ground, "size=256m") else { return };
    let space = over(ground, &pool);
    let dir = space.path("dir");
    fs::create_dir(&dir).unwrap();
    limit(&["5700K"], &dir);
    let mut both = OpenOptions::new();
    both.read(true).write(true).create(true).truncate(false);
    let fits = filled(&dir, 1 << 20, &both);
    assert!(fits >= 2, "{fits}");
    assert!(counted(&dir).bytes <= 5700 << 10, "{} bytes", counted(&dir).bytes);
    space.compare_du(&space.mount);
    space.down_and_check();
}
