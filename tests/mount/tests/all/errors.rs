//! Disks that fail below a space: nothing that fails is called done, and nothing more is accepted than can be kept.

use rustix::fs::{AtFlags, CWD, FallocateFlags, StatxFlags, statx};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{IoSlice, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::recount::told;
use ullage_mount_tests::run::{eventually, program, ullage};
use ullage_mount_tests::space::Space;

/// What a file holds whose blocks are to be lost.
const MARKED: &[u8; 4096] = &[0xC3; 4096];
/// How many such blocks: a loop device calls a write done of which the first part is.
const LOST: usize = 16;

/// A disk that can be broken: an image on a memory disk of its own.
struct Disk {
    below: PathBuf,
    mounted: PathBuf,
}

impl Disk {
    fn new(ground: &mut Ground) -> Self {
        let below = ground.tmpfs("below", 320 << 10);
        let image = below.join("image");
        File::create(&image).and_then(|file| file.set_len(256 << 20)).unwrap();
        program("mkfs.ext4", ["-q", "-F", "-b", "4096", image.to_str().unwrap()]).ok();
        let mounted = ground.mount_image("failing", &image);
        Self { below, mounted }
    }

    /// From now on there is nothing behind it, and nothing can be put there.
    fn fail(&self) {
        File::options().write(true).open(self.below.join("image")).and_then(|image| image.set_len(0)).unwrap();
        self.fill();
    }

    /// From now on what is marked cannot be written any more, and all else can.
    fn fail_where_marked(&self) {
        let image = File::options().read(true).write(true).open(self.below.join("image")).unwrap();
        let blocks = image.metadata().unwrap().len() / 4096;
        let (mut block, mut lost) = ([0; 4096], 0);
        for at in (0..blocks).map(|at| at * 4096) {
            image.read_exact_at(&mut block, at).unwrap();
            let marked = block == *MARKED;
            let how = if marked { FallocateFlags::PUNCH_HOLE } else { FallocateFlags::empty() };
            rustix::fs::fallocate(&image, how | FallocateFlags::KEEP_SIZE, at, 4096).unwrap();
            lost += usize::from(marked);
        }
        assert_eq!(lost, LOST, "what is marked lies in whole pages of the image");
        self.fill();
    }

    fn fill(&self) {
        let mut rest = File::create(self.below.join("rest")).unwrap();
        while rest.write_all(&vec![1; 1 << 20]).is_ok() {}
        while rest.write_all(&[1; 4096]).is_ok() {}
    }
}

fn durable(path: &Path) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&vec![7; 100_000])?;
    file.sync_all()
}

/// A space whose state is on a disk that can be broken, and its pool on another.
fn with_catalog_on_a_disk_of_its_own() -> (Space, Disk) {
    let mut ground = Ground::new();
    let disk = Disk::new(&mut ground);
    let pool = ground.directory("good");
    let mut space = Space::on(ground, &pool);
    space.state = disk.mounted.join("state");
    space.up();
    (space, disk)
}

#[test]
fn when_the_catalogs_disk_fails_the_space_is_read_only_and_says_so() {
    let (space, disk) = with_catalog_on_a_disk_of_its_own();
    durable(&space.path("kept")).unwrap();
    disk.fail();
    assert!(durable(&space.path("lost")).is_err(), "an fsync is said to have worked on a disk that has failed");
    eventually("nothing more is accepted", Duration::from_secs(20), || {
        fs::create_dir(space.path("more")).is_err_and(|error| error.raw_os_error() == Some(libc::EROFS))
    });
    let errno = |outcome: std::io::Result<()>| outcome.unwrap_err().raw_os_error();
    assert_eq!(errno(fs::rename(space.path("kept"), space.path("moved"))), Some(libc::EROFS));
    assert_eq!(errno(fs::remove_file(space.path("kept"))), Some(libc::EROFS));
    assert_eq!(fs::read(space.path("kept")).unwrap(), vec![7; 100_000]);
    // It still says how it is.
    let status = ullage(["status".as_ref(), space.mount.as_os_str(), "--json".as_ref()]).json();
    assert!(status["used"]["inodes"].is_u64(), "{status}");
    space.kill();
}

/// Regression: the space looked healthy to who asked, and its log was on the disk that had failed.
#[test]
fn status_says_that_the_catalog_failed_and_what_to_do() {
    let (space, disk) = with_catalog_on_a_disk_of_its_own();
    let status = |more: &[&str]| {
        let own = ["status".as_ref(), space.mount.as_os_str()];
        ullage(own.into_iter().chain(more.iter().map(AsRef::as_ref)))
    };
    let before = status(&["--json"]).json();
    assert_eq!((&before["catalog_failed"], &before["catalog_failure"]), (&false.into(), &serde_json::Value::Null));
    assert!(!status(&[]).ok().contains("FAILED"));
    disk.fail();
    assert!(durable(&space.path("lost")).is_err(), "an fsync is said to have worked on a disk that has failed");
    let told = status(&["--json"]).json();
    assert_eq!(told["catalog_failed"], true, "{told}");
    let why = told["catalog_failure"].as_str().unwrap();
    assert!(why.contains("read-only until it is unmounted, its disk mended") && why.contains("cannot"), "{why}");
    let table = status(&[]).ok();
    assert!(table.lines().any(|line| line.starts_with("FAILED") && line.contains(why)), "{table}");
    space.kill();
}

/// A space whose pool is on this disk, and its state on another.
fn with_pool_on(ground: Ground, disk: &Disk) -> Space {
    let state = ground.directory("good").join("state");
    let mut space = Space::on(ground, &disk.mounted);
    space.state = state;
    space.up();
    space
}

#[test]
fn when_a_pools_disk_fails_no_fsync_succeeds_and_names_stay() {
    let mut ground = Ground::new();
    let disk = Disk::new(&mut ground);
    let space = with_pool_on(ground, &disk);
    durable(&space.path("kept")).unwrap();
    disk.fail();
    assert!(durable(&space.path("lost")).is_err(), "an fsync is said to have worked on a disk that has failed");
    assert!(space.path("kept").exists());
    fs::create_dir(space.path("directory")).unwrap();
    File::open(&space.mount).unwrap().sync_all().unwrap();
    space.kill();
}

/// The space goes on with the pools that work.
#[test]
fn a_pool_whose_disk_has_failed_keeps_nobody_from_making_files_in_another() {
    let mut ground = Ground::new();
    let disk = Disk::new(&mut ground);
    let good = ground.ext4("good", 160);
    let mut space = Space::on(ground, &good);
    space.pools.insert(0, format!("failing={}", disk.mounted.join("pool").display()));
    fs::create_dir(disk.mounted.join("pool")).unwrap();
    space.up();
    let pool_of = |name: &Path| space.stat(name)["pool"].as_str().unwrap().to_owned();
    durable(&space.path("kept")).unwrap();
    assert_eq!(pool_of(&space.path("kept")), "failing", "the larger disk is the first");
    disk.fail();
    assert!(durable(&space.path("kept")).is_err());
    // What was ready in memory is handed out before.
    let mut made = 0;
    eventually("the file system below has given up", Duration::from_secs(60), || {
        made += 1;
        let made = space.path(format!("try-{made}"));
        File::create(&made).is_ok() && pool_of(&made) == "main"
    });
    for n in 0..50 {
        let name = space.path(format!("after-{n}"));
        durable(&name).unwrap();
        assert_eq!(pool_of(&name), "main");
    }
    let told = space.log().matches("the pool 'failing' takes no new files").count();
    assert_eq!(told, 1, "{}", space.log());
    space.kill();
}

/// What is written to a limited file comes past the page cache, and the kernel leaves it to the server to make it durable: nobody
/// did, and what O_SYNC had promised was lost.
#[test]
fn when_a_pools_disk_fails_no_synchronous_write_to_a_limited_file_succeeds() {
    let mut ground = Ground::new();
    let disk = Disk::new(&mut ground);
    let space = with_pool_on(ground, &disk);
    let dir = space.path("limited");
    fs::create_dir(&dir).unwrap();
    ullage(["limit".as_ref(), dir.as_os_str(), "64M".as_ref()]).ok();
    let file = |name: &str, flags| {
        let mut file = File::options().create_new(true).write(true).custom_flags(flags).open(dir.join(name)).unwrap();
        file.write_all(&vec![7; 100_000]).unwrap();
        file
    };
    let (data, all, asked) = (file("data", libc::O_DSYNC), file("all", libc::O_SYNC), file("asked", 0));
    let writes = |file: &File, flags| {
        rustix::io::pwritev2(file, &[IoSlice::new(&vec![8; 100_000])], 0, flags).map_err(std::io::Error::from)
    };
    writes(&data, rustix::io::ReadWriteFlags::empty()).unwrap();
    disk.fail();
    for (file, flags) in [
        (&data, rustix::io::ReadWriteFlags::empty()),
        (&all, rustix::io::ReadWriteFlags::empty()),
        (&asked, rustix::io::ReadWriteFlags::DSYNC),
    ] {
        assert!(writes(file, flags).is_err(), "{file:?} was written on a disk that has failed");
    }
    space.kill();
}

/// One fsync(2) was told of it and the next one not; and where the catalog is on the same disk, the first made the space read-only.
#[test]
fn data_that_cannot_be_written_fails_every_fsync_of_its_file_and_nothing_else() {
    for one_disk in [true, false] {
        let mut ground = Ground::new();
        let disk = Disk::new(&mut ground);
        let good = ground.directory("good").join("state");
        let mut space = Space::on(ground, &disk.mounted);
        if !one_disk {
            space.state = good;
        }
        space.up();
        let name = space.path("file");
        let open = |path: &Path| File::options().create(true).truncate(false).write(true).open(path).unwrap();
        let (first, second) = (open(&name), open(&name));
        first.write_all_at(&MARKED.repeat(LOST), 0).unwrap();
        first.write_all_at(&[1; 4096], 65_536).unwrap();
        first.sync_all().unwrap();
        disk.fail_where_marked();
        first.write_all_at(&vec![2; 65_536], 0).unwrap();
        // So that there is something for the log, too.
        fs::create_dir(space.path("before")).unwrap();
        assert!(first.sync_all().is_err(), "one disk: {one_disk}");
        second.write_all_at(&[3; 4096], 65_536).unwrap();
        assert!(second.sync_all().is_err(), "one disk: {one_disk}: the second handle is told that all is well");
        assert!(second.sync_data().is_err() && open(&name).sync_all().is_err(), "one disk: {one_disk}");
        fs::create_dir(space.path("after")).unwrap();
        fs::remove_dir(space.path("before")).unwrap();
        durable(&space.path("other")).unwrap();
        drop((first, second));
        eventually("the file is closed", Duration::from_secs(5), || open(&name).sync_all().is_ok());
        space.down_and_check();
    }
}

/// Whoever comes to write below a limit has files with allocated space written out first: what failed then nobody was told of.
#[test]
fn data_that_is_written_out_below_a_limit_and_cannot_be_fails_every_fsync_too() {
    let mut ground = Ground::new();
    let disk = Disk::new(&mut ground);
    let space = with_pool_on(ground, &disk);
    let dir = space.path("dir");
    fs::create_dir(&dir).unwrap();
    let open = || File::options().create(true).truncate(false).write(true).open(dir.join("file")).unwrap();
    let first = open();
    rustix::fs::fallocate(&first, FallocateFlags::empty(), 0, 1 << 20).unwrap();
    first.write_all_at(&MARKED.repeat(LOST), 0).unwrap();
    first.sync_all().unwrap();
    disk.fail_where_marked();
    first.write_all_at(&vec![2; 65_536], 0).unwrap();
    ullage(["limit".as_ref(), dir.as_os_str(), "64M".as_ref()]).ok();
    let second = open();
    second.write_all_at(&[3; 4096], 1 << 19).unwrap();
    assert!(second.sync_all().is_err() && first.sync_all().is_err() && first.sync_data().is_err());
    drop((first, second));
    eventually("the file is closed", Duration::from_secs(5), || open().sync_all().is_ok());
    space.down_and_check();
}

/// What took a name of another is written out before that is for good: the thread that did so was told, and nobody else.
#[test]
fn data_that_cannot_be_written_before_its_file_takes_a_name_fails_the_next_fsync() {
    let mut ground = Ground::new();
    let disk = Disk::new(&mut ground);
    let space = with_pool_on(ground, &disk);
    let (name, new) = (space.path("name"), space.path("new"));
    durable(&name).unwrap();
    let open = |path: &Path| File::options().create(true).truncate(false).write(true).open(path).unwrap();
    let file = open(&new);
    file.write_all_at(&MARKED.repeat(LOST), 0).unwrap();
    file.sync_all().unwrap();
    disk.fail_where_marked();
    file.write_all_at(&vec![2; 65_536], 0).unwrap();
    drop(file);
    fs::rename(&new, &name).unwrap();
    // The log is written, and nobody has the file open any more, the server included.
    std::thread::sleep(Duration::from_secs(5));
    let file = open(&name);
    assert!(file.sync_all().is_err() && file.sync_data().is_err());
    drop(file);
    eventually("the file is closed", Duration::from_secs(5), || open(&name).sync_all().is_ok());
    space.down_and_check();
}

/// The descriptor that had not told of it yet was closed with the old file.
#[test]
fn data_that_could_not_be_written_fails_every_fsync_after_its_file_went_to_another_pool_too() {
    let mut ground = Ground::new();
    let disk = Disk::new(&mut ground);
    let state = ground.directory("good").join("state");
    let beside = ground.directory("beside");
    let mut space = Space::on(ground, &disk.mounted);
    space.state = state;
    space.flags = ["--no-passthrough"].map(Into::into).into();
    space.up();
    let file = File::options().create_new(true).write(true).open(space.path("file")).unwrap();
    file.write_all_at(&MARKED.repeat(LOST), 0).unwrap();
    file.sync_all().unwrap();
    disk.fail_where_marked();
    file.write_all_at(&vec![2; 65_536], 0).unwrap();
    program("sync", ["-f".as_ref(), disk.mounted.as_os_str()]);
    space.pool_command("add", &[&format!("beside={}", beside.display())]).ok();
    space.pool_command("remove", &["main"]).ok();
    assert_eq!(space.stat(&space.path("file"))["pool"], "beside");
    assert!(file.sync_all().is_err() && file.sync_data().is_err());
    drop(file);
    let open = || File::open(space.path("file")).unwrap();
    eventually("the file is closed", Duration::from_secs(5), || open().sync_all().is_ok());
    assert_eq!(fs::read(space.path("file")).unwrap().len(), 65_536);
    space.down_and_check();
}

/// Whoever comes to map a limited file that has holes has it written out where these find no room: what failed then he was told of, and nobody else.
#[test]
fn data_that_is_written_out_for_who_comes_to_map_and_cannot_be_fails_every_fsync_too() {
    let mut ground = Ground::new();
    let disk = Disk::new(&mut ground);
    let space = with_pool_on(ground, &disk);
    let dir = space.path("dir");
    fs::create_dir(&dir).unwrap();
    ullage(["limit".as_ref(), dir.as_os_str(), "1M".as_ref()]).ok();
    let open = |reads| File::options().create(true).truncate(false).read(reads).write(true).open(dir.join("file"));
    let first = open(false).unwrap();
    first.write_all_at(&MARKED.repeat(LOST), 0).unwrap();
    first.set_len(8 << 20).unwrap();
    first.sync_all().unwrap();
    disk.fail_where_marked();
    first.write_all_at(&vec![2; 65_536], 0).unwrap();
    assert!(open(true).is_err(), "there is no room for its holes");
    assert!(first.sync_all().is_err() && first.sync_data().is_err());
    drop(first);
    eventually("the file is closed", Duration::from_secs(5), || open(false).unwrap().sync_all().is_ok());
    space.down_and_check();
}

/// The whole listing failed, for everybody; and what had been looked up for it was never forgotten: those files kept their room once
/// they were removed.
#[test]
fn a_file_that_cannot_be_measured_hides_no_name_and_nothing_that_is_removed_keeps_its_room() {
    let mut ground = Ground::new();
    let (good, failing) = (ground.ext4("good", 512), ground.xfs("failing", 300));
    let mut space = Space::on(ground, &good);
    space.pools.push(format!("failing={}", failing.display()));
    space.flags = ["--spread", "round-robin"].map(Into::into).into();
    space.up();
    let (mut kept, mut lost, mut open) = (Vec::new(), Vec::new(), None);
    for name in ["a", "b", "c", "d", "e", "f"].map(|name| space.path(name)) {
        let mut file = File::create(&name).unwrap();
        file.write_all(&[7; 10_000]).unwrap();
        if space.stat(&name)["pool"] == "failing" {
            open = Some(file);
            lost.push(name);
        } else {
            kept.push(name);
        }
    }
    assert_eq!((kept.len(), lost.len()), (3, 3));
    program("xfs_io", ["-x".as_ref(), "-c".as_ref(), "shutdown".as_ref(), failing.as_os_str()]).ok();
    let list = || fs::read_dir(&space.mount)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<BTreeSet<_>>>();
    let all = kept.iter().chain(&lost).cloned().collect::<BTreeSet<_>>();
    assert_eq!(list().unwrap(), all);
    // Who asks for more than the name, and not the kernel's memory, is told.
    let now = |path: &PathBuf| statx(CWD, path, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS);
    assert_eq!(now(lost.last().unwrap()).unwrap_err(), Errno::IO);
    for name in &kept {
        fs::remove_file(name).unwrap();
    }
    assert_eq!(list().unwrap(), lost.into_iter().collect());
    eventually("what was removed is charged no more", Duration::from_secs(5), || told(&space.mount).inodes == 4);
    drop(open);
    space.kill();
}

/// The inode remembers what was lost until somebody is told, and the file's next owner was: fsync(2) of what he had just written failed.
#[test]
fn what_was_lost_of_a_removed_file_is_nothing_that_the_next_one_is_told_of() {
    const BEFORE: usize = 500;
    const FILES: usize = 80;
    let mut ground = Ground::new();
    // A disk that has no room below, for a while.
    let below = ground.tmpfs("below", 150 << 10);
    let image = below.join("image");
    File::create(&image).unwrap().set_len(128 << 20).unwrap();
    // It goes on after errors, and only files' data are lost: all that it needs for itself is there, one group's tables now and below the
    // blocks of its directories, where names fit in wherever others went.
    let features = "^has_journal,^dir_index";
    let one_group = ["-b", "4096", "-E", "lazy_itable_init=0,nodiscard", "-N", "4096"];
    program("mkfs.ext4", ["-q", "-F", "-O", features].iter().chain(&one_group).chain(&[image.to_str().unwrap()])).ok();
    let whole = fs::read(&image).unwrap();
    fs::write(&image, whole).unwrap();
    let disk = ground.mount_image("disk", &image);
    let mut space = Space::on(ground, &disk);
    space.state = space.ground.directory("plain").join("state");
    space.up();
    let path = |kind: &str, n: usize| space.path(format!("{kind}-{n}"));
    let flush = || rustix::fs::syncfs(File::open(&disk).unwrap());
    for n in 0..BEFORE {
        fs::write(path("before", n), vec![1; 32 << 10]).unwrap();
    }
    flush().unwrap();
    for n in 0..BEFORE {
        fs::remove_file(path("before", n)).unwrap();
    }
    // What was ready for the next is removed too.
    space.down();
    space.up();
    flush().unwrap();
    program("fstrim", [&disk]).ok();
    let fill = below.join("fill");
    let filling = File::create(&fill).unwrap();
    while (&filling).write(&[1; 4096]).is_ok() {}
    for n in 0..FILES {
        fs::write(path("lost", n), vec![n as u8; 16 << 10]).unwrap();
        fs::write(path("told", n), vec![n as u8; 16 << 10]).unwrap();
    }
    // Whether or not whoever asks is told.
    let _ = flush();
    fs::remove_file(fill).unwrap();
    drop(filling);
    let is_lost = |n| File::open(path("told", n)).unwrap().sync_all().is_err();
    assert!((0..FILES).any(is_lost), "nothing was lost: nothing was tested");
    let failed = (0..4 * FILES).filter_map(|n| {
        if n % 4 == 0 {
            fs::remove_file(path("lost", n / 4)).unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut file = File::create_new(path("new", n)).unwrap();
        file.write_all(b"new").unwrap();
        file.sync_all().err().map(|error| (n, error))
    });
    assert_eq!(format!("{:?}", failed.collect::<Vec<_>>()), "[]");
    space.down();
}

/// It was refused with EROFS: its times were to be set below before anybody read it.
#[test]
fn a_file_whose_times_were_set_is_read_where_its_disk_takes_no_changes_any_more() {
    let mut ground = Ground::new();
    let disk = ground.image("disk", 256, "mkfs.ext4", &["-q"], "loop,errors=remount-ro");
    let state = ground.tmpfs("state", 256 << 10);
    let mut space = Space::on(ground, &state);
    let place = disk.join("pool");
    fs::create_dir(&place).unwrap();
    space.pools = vec![format!("main={}", place.display())];
    space.up();
    let path = space.path("file");
    fs::write(&path, "content").unwrap();
    // Nothing is open to be written any more.
    space.down();
    space.up();
    program("touch", ["-d", "2001-02-03 04:05:06", path.to_str().unwrap()]).ok();
    space.down();
    space.up();
    let source = program("findmnt", ["-no", "SOURCE", disk.to_str().unwrap()]).ok();
    let device = Path::new(source.trim()).file_name().unwrap().to_owned();
    fs::write(Path::new("/sys/fs/ext4").join(device).join("trigger_fs_error"), "1").unwrap();
    assert_eq!(File::create(disk.join("file")).unwrap_err().raw_os_error(), Some(libc::EROFS));
    let set = fs::metadata(&path).unwrap().modified().unwrap();
    for _ in 0..2 {
        assert_eq!(fs::read_to_string(&path).unwrap(), "content");
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), set);
    }
    assert_eq!(File::options().write(true).open(&path).unwrap_err().raw_os_error(), Some(libc::EROFS));
    space.down();
}
