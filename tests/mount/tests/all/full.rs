//! A disk that is full, with catalog and pool on it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};
use ullage_mount_tests::ground::{Ground, has_btrfs};
use ullage_mount_tests::run::{eventually, program};
use ullage_mount_tests::space::Space;

/// Fills a file until nothing fits any more.
pub fn fill(file: &mut File) {
    for size in [1 << 20, 4096] {
        while file.write_all(&vec![7; size]).is_ok() {}
    }
}

/// Fills the disk with data beside a file that is to be kept, and with so many names at most.
fn use_up(space: &Space, round: u32, names: u32) {
    let mut big = File::create(space.path("big")).unwrap();
    fs::write(space.path("kept"), format!("{round}")).unwrap();
    space.sync();
    fill(&mut big);
    drop(big);
    // Names in plenty: whatever the catalog has room for is used up.
    for n in 0..names {
        if fs::create_dir(space.path(format!("{round}-{n}"))).is_err() {
            break;
        }
    }
    let _ = File::open(&space.mount).and_then(|root| root.sync_all());
}

/// The catalog could write nothing on a disk that a writer had filled: no file could be removed, and the space could be neither
/// started nor checked any more.
#[test]
fn a_space_that_filled_the_disk_of_its_catalog_is_started_and_files_are_removed() {
    let mut ground = Ground::new();
    // Without the blocks that ext4 reserves for root: other file systems have none.
    let disk = ground.image("disk", 256, "mkfs.ext4", &["-q", "-F", "-m", "0"], "loop");
    let space = Space::on(ground, &disk);
    space.up();
    for round in 0..3 {
        use_up(&space, round, 20_000);
        space.down();
        space.up();
        fs::remove_file(space.path("big")).unwrap();
        space.sync();
        assert_eq!(fs::read_to_string(space.path("kept")).unwrap(), format!("{round}"));
        let room = || rustix::fs::statvfs(&disk).is_ok_and(|stat| stat.f_bavail * stat.f_frsize > 64 << 20);
        eventually("the room is given back", Duration::from_secs(20), room);
        // With room enough again.
        space.down();
        space.up();
    }
    space.down_and_check();
}

/// The usual state lies beside the mount point, on `/`, with the pools elsewhere: who fills `/` kept the space from starting.
#[test]
fn a_space_whose_states_disk_was_filled_by_others_is_started() {
    let mut ground = Ground::new();
    let (disk, pool) =
        (ground.image("state", 200, "mkfs.ext4", &["-q", "-F", "-m", "0"], "loop"), ground.ext4("pool", 200));
    let mut space = Space::on(ground, &disk);
    space.pools = vec![format!("main={}", pool.display())];
    space.up();
    fs::write(space.path("kept"), "content").unwrap();
    space.down();
    fill(&mut File::create(disk.join("others")).unwrap());
    for n in 0..3 {
        space.up();
        assert_eq!(fs::read_to_string(space.path("kept")).unwrap(), "content");
        fs::write(space.path(format!("more-{n}")), "more").unwrap();
        fs::remove_file(space.path(format!("more-{n}"))).unwrap();
        space.down();
        space.check();
    }
}

/// Regression: `check`, `pool add` and `pool remove` used what is held for a start, and held nothing again.
#[test]
fn a_space_on_a_full_disk_is_started_after_it_was_looked_at_and_the_disk_filled_again() {
    let mut ground = Ground::new();
    let (disk, pool) =
        (ground.image("state", 200, "mkfs.ext4", &["-q", "-F", "-m", "0"], "loop"), ground.ext4("pool", 200));
    let more = ground.ext4("more", 200);
    let mut space = Space::on(ground, &disk);
    space.pools = vec![format!("main={}", pool.display())];
    space.up();
    fs::write(space.path("kept"), "content").unwrap();
    space.down();
    let fill_again = |name: &str| fill(&mut File::create(disk.join(name)).unwrap());
    fill_again("others");
    let more = format!("more={}", more.display());
    space.check();
    fill_again("after the check");
    space.pool_command("add", &[&more]).ok();
    fill_again("after the pool came");
    space.pool_command("remove", &["more", "--cancel"]).ok();
    fill_again("after it stayed");
    space.up();
    assert_eq!(fs::read_to_string(space.path("kept")).unwrap(), "content");
    fs::remove_file(space.path("kept")).unwrap();
    space.down_and_check();
}

/// They have their blocks until their removal is durable, up to a second later: who removes one file to make room for the next had none.
#[test]
fn what_was_removed_makes_room_for_what_comes_next() {
    let mut ground = Ground::new();
    let pool = ground.image("disk", 300, "mkfs.ext4", &["-q", "-F", "-m", "0"], "loop");
    let space = Space::on(ground, &pool);
    space.up();
    let path = space.path("large");
    for round in 0..20 {
        let file = File::create(&path).unwrap();
        let flags = rustix::fs::FallocateFlags::empty();
        rustix::fs::fallocate(&file, flags, 0, 110 << 20).unwrap_or_else(|error| panic!("allocated, {round}: {error}"));
        drop(file);
        fs::remove_file(&path).unwrap();
    }
    for round in 0..20 {
        let mut file = File::create(&path).unwrap();
        for _ in 0..110 {
            file.write_all(&vec![1; 1 << 20]).unwrap_or_else(|error| panic!("written, {round}: {error}"));
        }
        drop(file);
        fs::remove_file(&path).unwrap();
    }
    space.down_and_check();
}

/// Its blocks and its memory were free up to a second later, whatever else the disk had: who wrote the next file meanwhile was given
/// memory that nobody had used, which a virtual machine has to fetch from its host.
#[test]
fn what_a_large_file_had_is_free_soon_after_its_removal() {
    const SIZE: u64 = 96 << 20;
    let mut ground = Ground::new();
    let pool = ground.image("disk", 1024, "mkfs.ext4", &["-q", "-F", "-m", "0"], "loop");
    let space = Space::on(ground, &pool);
    space.up();
    let path = space.path("large");
    let free = || rustix::fs::statvfs(&pool).map(|disk| disk.f_bfree * disk.f_frsize).unwrap();
    let waits = (0..7).map(|_| {
        let file = File::create(&path).unwrap();
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, SIZE).unwrap();
        drop(file);
        let before = free();
        fs::remove_file(&path).unwrap();
        let began = Instant::now();
        while free() < before + SIZE / 10 * 9 {
            assert!(began.elapsed() < Duration::from_secs(20), "{} of {SIZE} bytes", free() - before);
            std::thread::sleep(Duration::from_millis(2));
        }
        began.elapsed()
    });
    let mut waits: Vec<Duration> = waits.collect();
    waits.sort();
    assert!(waits[4] < Duration::from_millis(250), "{waits:?}");
    space.down_and_check();
}

/// Until the next start it took no changes more: the engine of its catalog had found no room to write, once.
#[test]
fn a_space_that_filled_the_disk_of_its_catalog_goes_on() {
    let mut ground = Ground::new();
    let disk = ground.image("disk", 256, "mkfs.ext4", &["-q", "-F", "-m", "0"], "loop");
    goes_on(ground, &disk);
}

#[test]
fn a_space_that_filled_the_disk_of_its_catalog_goes_on_also_on_xfs() {
    let mut ground = Ground::new();
    let disk = ground.image("disk", 400, "mkfs.xfs", &["-q", "-f"], "loop");
    goes_on(ground, &disk);
}

fn goes_on(ground: Ground, disk: &Path) {
    let space = Space::on(ground, disk);
    space.up();
    let mut made = 0;
    for round in 0..3 {
        let mut big = File::create(space.path("big")).unwrap();
        fs::write(space.path("kept"), format!("{round}")).unwrap();
        space.sync();
        fill(&mut big);
        // Names in plenty, for longer than the catalog waits before it writes, while the writer takes what it can.
        let before = made;
        for n in 0..6000 {
            match fs::create_dir(space.path(format!("{made}"))) {
                Ok(()) => made += 1,
                Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{error}"),
            }
            std::thread::sleep(Duration::from_millis(1));
            if n % 100 == 0 {
                fill(&mut big);
            }
        }
        assert!(made - before >= 1000, "{} in round {round}: {}", made - before, space.log());
        File::open(&space.mount).unwrap().sync_all().unwrap();
        drop(big);
        if round == 1 {
            // Also where what is in the log is all there is.
            space.kill();
            space.up();
        }
        fs::remove_file(space.path("big")).unwrap();
        space.sync();
        let room = || rustix::fs::statvfs(disk).is_ok_and(|stat| stat.f_bavail * stat.f_frsize > 64 << 20);
        eventually("the room is given back", Duration::from_secs(20), room);
        assert_eq!(fs::read_to_string(space.path("kept")).unwrap(), format!("{round}"));
        assert_eq!(fs::read_dir(&space.mount).unwrap().count(), 1 + made);
        eventually("there is room again", Duration::from_secs(5), || fs::create_dir(space.path("new")).is_ok());
        fs::remove_dir(space.path("new")).unwrap();
        // What waited is written at the next look, a second later.
        std::thread::sleep(Duration::from_millis(2500));
    }
    space.down_and_check();
}

/// Root of a user namespace, or on a disk that reserves its last blocks for somebody else, has none of them: the catalog counted them as
/// its own, found no room to write, and the space took no changes more.
#[test]
fn a_catalog_that_has_no_claim_on_what_is_reserved_goes_on_when_its_disk_is_full() {
    let mut ground = Ground::new();
    let disk = ground.image("disk", 256, "mkfs.ext4", &["-q", "-F", "-m", "30"], "loop,resuid=65534");
    let space = Space::on(ground, &disk);
    let without_claim = ["--bounding-set", "-sys_resource"].map(OsString::from);
    let binary = ullage_mount_tests::binary::path().into();
    program("setpriv", without_claim.into_iter().chain([binary]).chain(space.up_arguments())).ok();
    let mut big = File::create(space.path("big")).unwrap();
    fill(&mut big);
    for n in 0..1500 {
        fs::create_dir(space.path(format!("{n}"))).unwrap_or_else(|error| panic!("{n}: {error}: {}", space.log()));
        std::thread::sleep(Duration::from_millis(1));
    }
    File::open(&space.mount).unwrap().sync_all().unwrap();
    drop(big);
    fs::remove_file(space.path("big")).unwrap();
    space.sync();
    assert!(space.log().contains("changes stay in its log"), "{}", space.log());
    space.down_and_check();
}

/// Writes in passthrough mode were made with root's credentials: any user could fill what ext4 reserves for root, and the
/// catalog on the same disk had nothing left.
#[test]
fn what_is_reserved_for_root_is_left_to_the_catalog() {
    leaves_what_is_reserved(256, |_| {}, fill);
}

/// So were writes that go through the server: those of limited files, and all where there is no passthrough.
#[test]
fn what_is_reserved_for_root_is_left_also_by_limited_files() {
    let limit = |space: &Space| crate::limits::bed::limit(&["1T"], &space.mount);
    leaves_what_is_reserved(256, limit, fill);
    // So much room that at first nobody looks whether what is reserved is near.
    leaves_what_is_reserved(2048, limit, fill);
    leaves_what_is_reserved(256, limit, |file| {
        let allocate =
            |mib: u64| rustix::fs::fallocate(&*file, rustix::fs::FallocateFlags::empty(), mib << 20, 1 << 20);
        let _ = (0..).try_for_each(allocate);
    });
}

fn leaves_what_is_reserved(mib: u64, prepare: impl Fn(&Space), fill: impl Fn(&mut File)) {
    let mut ground = Ground::new();
    let disk = ground.image("disk", mib, "mkfs.ext4", &["-q", "-F", "-m", "10"], "loop");
    let space = Space::on(ground, &disk);
    space.up();
    space.assert_passthrough();
    prepare(&space);
    let mut big = File::create(space.path("big")).unwrap();
    fill(&mut big);
    let stat = rustix::fs::statvfs(&disk).unwrap();
    assert!(stat.f_bfree > stat.f_blocks / 12, "{} of {} blocks are left", stat.f_bfree, stat.f_blocks);
    for n in 0..100 {
        fs::create_dir(space.path(format!("{n}"))).unwrap();
        space.sync();
    }
    drop(big);
    fs::remove_file(space.path("big")).unwrap();
    space.down_and_check();
}

/// What is free on the disk says nothing of a quota: nothing of what is held was given to the catalog, and no start found any room.
#[test]
fn a_space_that_used_up_the_quota_of_its_subvolume_is_started_and_files_are_removed() {
    if !has_btrfs() {
        return;
    }
    let mut ground = Ground::new();
    let disk = ground.btrfs("disk", 3000);
    let own = disk.join("own");
    program("btrfs", ["quota".as_ref(), "enable".as_ref(), disk.as_os_str()]).ok();
    program("btrfs", ["subvolume".as_ref(), "create".as_ref(), own.as_os_str()]).ok();
    program("btrfs", ["qgroup".as_ref(), "limit".as_ref(), "400M".as_ref(), own.as_os_str()]).ok();
    let space = Space::on(ground, &own);
    space.up();
    for round in 0..3 {
        use_up(&space, round, 2000);
        let _ = space.try_down();
        space.up();
        assert_eq!(fs::read_to_string(space.path("kept")).unwrap(), format!("{round}"));
        fs::remove_file(space.path("big")).unwrap();
        space.sync();
        eventually("the room is given back", Duration::from_secs(20), || {
            let mut file = File::create(space.path("again")).unwrap();
            file.write_all(&vec![1; 100 << 20]).and_then(|()| file.sync_all()).is_ok()
        });
        fs::remove_file(space.path("again")).unwrap();
        space.sync();
        std::thread::sleep(Duration::from_secs(2));
        space.down();
        space.up();
    }
    space.down_and_check();
}
