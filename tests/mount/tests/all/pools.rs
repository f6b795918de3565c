//! Several pools at once.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;
use ullage_mount_tests::ground::{Ground, has_btrfs};
use ullage_mount_tests::run::{Outcome, eventually, program, ullage, unmount};
use ullage_mount_tests::space::Space;

pub fn pool_of(space: &Space, name: &Path) -> String {
    space.stat(name)["pool"].as_str().unwrap().to_owned()
}

fn spread(space: &Space, count: usize) -> BTreeMap<String, usize> {
    let mut seen = BTreeMap::new();
    for n in 0..count {
        let name = space.path(format!("file-{n}"));
        fs::write(&name, format!("content {n}")).unwrap();
        *seen.entry(pool_of(space, &name)).or_default() += 1;
    }
    seen
}

fn three(flags: &[&str]) -> Space {
    let ground = Ground::new();
    let disk = ground.directory("disk");
    let mut space = Space::on(ground, &disk);
    space.pools = ["a", "b", "c"].map(|name| format!("{name}={}", space.ground.directory(name).display())).to_vec();
    space.flags = flags.iter().map(Into::into).collect();
    space.up();
    space.flags.clear();
    space
}

/// Nothing said how: who did as the error told him and made the directory was told to `correct the path`, and not where.
#[test]
fn a_space_is_put_back_at_other_paths_as_the_errors_say() {
    let mut space = three(&[]);
    spread(&space, 6);
    space.down();
    let (old, new) = (space.ground.path().to_owned(), space.ground.directory("elsewhere"));
    for name in ["a", "b", "c"] {
        program("cp", ["-a".as_ref(), old.join(name).as_os_str(), new.join(name).as_os_str()]).ok();
        fs::rename(old.join(name), old.join(format!("{name}.gone"))).unwrap();
    }
    let (state, copy) = (space.state.clone(), new.join("state"));
    program("cp", ["-a".as_ref(), state.as_os_str(), copy.as_os_str()]).ok();
    space.state = copy;
    space.try_up().refused("correct its path in the state's space.toml");
    for name in ["a", "b", "c"] {
        fs::create_dir(old.join(name)).unwrap();
    }
    space.try_up().refused("correct its path in the state's space.toml");
    let settings = space.state.join("space.toml");
    let text = fs::read_to_string(&settings).unwrap();
    let path = |at: &Path| format!("path = \"{}/", at.display());
    fs::write(&settings, text.replace(&path(&old), &path(&new))).unwrap();
    space.up();
    for n in 0..6 {
        assert_eq!(fs::read_to_string(space.path(format!("file-{n}"))).unwrap(), format!("content {n}"));
    }
    space.down_and_check();
}

#[test]
fn round_robin_takes_turns() {
    let space = three(&["--spread", "round-robin"]);
    assert_eq!(spread(&space, 30).into_values().collect::<Vec<_>>(), [10, 10, 10]);
    space.compare_du(&space.mount);
    space.down();
    space.up();
    for n in 0..30 {
        assert_eq!(fs::read(space.path(format!("file-{n}"))).unwrap(), format!("content {n}").into_bytes());
    }
    space.down_and_check();
}

#[test]
fn first_fit_takes_the_first() {
    let space = three(&["--spread", "first-fit"]);
    assert_eq!(spread(&space, 10), BTreeMap::from([("a".to_owned(), 10)]));
    space.down_and_check();
}

#[test]
fn most_free_takes_the_emptiest() {
    let mut ground = Ground::new();
    let (small, large) = (ground.tmpfs("small", 4096), ground.tmpfs("large", 65536));
    let disk = ground.directory("disk");
    let mut space = Space::on(ground, &disk);
    space.pools = vec![format!("small={}", small.display()), format!("large={}", large.display())];
    space.up();
    assert_eq!(spread(&space, 10), BTreeMap::from([("large".to_owned(), 10)]));
    space.down_and_check();
}

#[test]
fn a_full_pool_moves_new_files_to_the_other() {
    let mut ground = Ground::new();
    let small = ground.tmpfs("small", 2048);
    let disk = ground.directory("disk");
    let mut space = Space::on(ground, &disk);
    space.pools.insert(0, format!("small={}", small.display()));
    space.flags = vec!["--spread".into(), "first-fit".into()];
    space.up();
    space.flags.clear();
    fs::write(space.path("first"), [1; 1000]).unwrap();
    assert_eq!(pool_of(&space, &space.path("first")), "small");
    // Filled to the last byte, by somebody else.
    fs::write(small.join("filler"), vec![2; 8 << 20]).unwrap_err();
    for n in 0..50 {
        let name = space.path(format!("after-{n}"));
        fs::write(&name, vec![3; 20_000]).unwrap();
        assert_eq!(pool_of(&space, &name), "main", "after-{n}");
        assert!(fs::read(&name).unwrap() == vec![3; 20_000]);
    }
    assert_eq!(fs::read(space.path("first")).unwrap(), [1; 1000]);
    space.compare_du(&space.mount);
    fs::remove_file(small.join("filler")).unwrap();
    space.down_and_check();
}

/// What statfs(2) says is in all, and free to users.
fn room(path: &Path) -> (u64, u64) {
    let stat = rustix::fs::statvfs(path).unwrap();
    (stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize)
}

/// The space has blocks of 4 KiB; a small ext4 has smaller ones.
fn in_blocks((total, free): (u64, u64)) -> (u64, u64) {
    (total & !4095, free & !4095)
}

fn df(space: &Space) -> serde_json::Value {
    ullage(["df".as_ref(), space.mount.as_os_str(), "--json".as_ref()]).json()
}

const RESERVES: (u64, u64) = (4 << 20, 6 << 20);

/// A space with a pool in each directory; its state is on a third disk.
fn two(ground: Ground, pools: [std::path::PathBuf; 2]) -> Space {
    let disk = ground.directory("disk");
    let mut space = Space::on(ground, &disk);
    let [one, other] = pools.map(|pool| pool.display().to_string());
    space.pools = vec![format!("one={one},reserve=4M"), format!("other={other},reserve=6M")];
    space.up();
    space
}

/// Regression: each pool counted the whole disk, so that twice as much was promised as there was.
#[test]
fn pools_on_one_disk_are_counted_once() {
    let mut ground = Ground::new();
    let below = ground.ext4("below", 64);
    let pools = ["one", "other"].map(|name| below.join(name));
    for pool in &pools {
        fs::create_dir(pool).unwrap();
    }
    let space = two(ground, pools);
    let mut df = df(&space);
    eventually("both say the same", Duration::from_secs(10), || {
        let (total, free) = room(&below);
        df = self::df(&space);
        room(&space.mount) == in_blocks((total, free - RESERVES.0))
            && (df["total"].as_u64(), df["free"].as_u64()) == (Some(total), Some(free - RESERVES.0))
    });
    assert_eq!(df["reserve"].as_u64(), Some(RESERVES.0), "{df}");
    let listed = ullage(["status".as_ref(), space.mount.as_os_str()]).ok();
    assert!(listed.contains("together with other, on the same file system"), "{listed}");
    space.down_and_check();
}

/// Regression: pools in two subvolumes of one btrfs were taken for ones on two disks: what was free counted twice, and reserves were used up.
#[test]
fn pools_in_two_subvolumes_are_on_one_disk() {
    if !has_btrfs() {
        return;
    }
    let mut ground = Ground::new();
    let below = ground.btrfs("below", 256);
    let pools = ["one", "other"].map(|name| below.join(name));
    for pool in &pools {
        program("btrfs", ["subvolume".as_ref(), "create".as_ref(), pool.as_os_str()]).ok();
    }
    let space = two(ground, pools);
    let listed = ullage(["status".as_ref(), space.mount.as_os_str()]).ok();
    assert!(listed.contains("together with other, on the same file system"), "{listed}");
    assert_eq!(df(&space)["total"].as_u64(), Some(room(&below).0));
    space.down_and_check();
}

#[test]
fn pools_on_two_disks_are_added_up() {
    let mut ground = Ground::new();
    let below = [ground.ext4("below", 64), ground.ext4("beside", 64)];
    let space = two(ground, below.clone());
    let reserves = RESERVES.0 + RESERVES.1;
    let mut df = df(&space);
    // A start with reserves tries the kernel, in a file of its own.
    eventually("both say the same", Duration::from_secs(10), || {
        let rooms = below.each_ref().map(|below| room(below));
        let (total, free) = (rooms[0].0 + rooms[1].0, rooms[0].1 + rooms[1].1 - reserves);
        df = self::df(&space);
        room(&space.mount) == in_blocks((total, free))
            && (df["total"].as_u64(), df["free"].as_u64()) == (Some(total), Some(free))
    });
    assert_eq!(df["reserve"].as_u64(), Some(reserves), "{df}");
    let listed = ullage(["status".as_ref(), space.mount.as_os_str()]).ok();
    assert!(!listed.contains("on the same file system"), "{listed}");
    space.down_and_check();
}

/// Regression: it was served, and every file in it failed.
#[test]
fn a_pool_with_another_number_than_before_is_refused() {
    let space = Space::plain();
    fs::write(space.path("file"), "content").unwrap();
    space.down();
    let settings = space.state.join("space.toml");
    let text = fs::read_to_string(&settings).unwrap();
    assert!(text.contains("id = 0"), "{text}");
    fs::write(&settings, text.replace("id = 0", "id = 5")).unwrap();
    space.try_up().refused("the pool 'main' has the number 0 in this space");
    fs::write(&settings, text).unwrap();
    space.up();
    assert_eq!(fs::read(space.path("file")).unwrap(), b"content");
    space.down_and_check();
}

#[test]
fn a_null_pool_takes_everything_and_keeps_lengths() {
    let ground = Ground::new();
    let disk = ground.directory("disk");
    let mut space = Space::on(ground, &disk);
    space.pools = vec!["nothing=/dev/null,kind=null".into()];
    space.up();
    fs::write(space.path("file"), vec![7; 100_000]).unwrap();
    // What is read may still come from the kernel's cache.
    assert_eq!(fs::read(space.path("file")).unwrap().len(), 100_000);
    fs::create_dir(space.path("dir")).unwrap();
    fs::rename(space.path("file"), space.path("dir/file")).unwrap();
    let pools = ullage(["pool".as_ref(), "list".as_ref(), space.mount.as_os_str(), "--json".as_ref()]).json();
    assert_eq!(pools["pools"][0]["kind"], "null");
    space.down();
    space.up();
    let content = fs::read(space.path("dir/file")).unwrap();
    assert!(content.len() == 100_000 && content.iter().all(|byte| *byte == 0));
    space.down_and_check();
}

/// COFS §4.2 has them as parameters.
#[test]
fn the_layouts_parameters_are_the_owners() {
    let mut ground = Ground::new();
    let disk = ground.ext4("disk", 256);
    let mut space = Space::on(ground, &disk);
    let pool = space.pools[0].clone();
    space.pools = vec![format!("{pool},entries=1")];
    let wrong = space.try_up();
    assert_eq!(wrong.code, Some(2), "{}", wrong.err);
    assert!(wrong.err.contains("entries must be between 2 and 65535"), "{}", wrong.err);
    space.pools = vec![format!("{pool},depth=3,entries=16,random-bits=0")];
    space.up();
    let depth = |name: &str, shape: &str| {
        let backing = space.backing(&space.path(name));
        let below = backing.strip_prefix(space.pool()).unwrap().to_owned();
        assert!(below.starts_with(shape), "{}", below.display());
        assert_eq!(below.components().count(), 1 + shape[..1].parse::<usize>().unwrap() + 1, "{}", below.display());
    };
    for n in 0..100 {
        fs::write(space.path(format!("file-{n}")), "x").unwrap();
        depth(&format!("file-{n}"), "3-16");
    }
    space.down_and_check();
    // They may change; what is there stays where it is.
    let settings = space.state.join("space.toml");
    let text = fs::read_to_string(&settings).unwrap();
    fs::write(&settings, text.replace("depth = 3", "depth = 2").replace("entries = 16", "entries = 512")).unwrap();
    space.up();
    fs::write(space.path("later"), "x").unwrap();
    depth("later", "2-512");
    depth("file-7", "3-16");
    space.down_and_check();
}

pub fn add(space: &Space, pool: &str) -> Outcome {
    space.pool_command("add", &[pool])
}

/// A disk that is full is no end: one more is added.
#[test]
fn a_pool_is_added_to_a_space_that_is_there() {
    for layout in ["sparse", "mirror"] {
        let mut ground = Ground::new();
        let (full, more) = (ground.ext4("full", 256), ground.ext4("more", 256));
        let mut space = Space::on(ground, &full);
        space.pools[0].push_str(",layout=");
        space.pools[0].push_str(layout);
        space.up();
        fs::create_dir_all(space.path("some/where")).unwrap();
        fs::write(space.path("some/where/file"), "content").unwrap();
        let piece = vec![1; 1 << 20];
        let filled = (0..300).take_while(|n| fs::write(space.path(format!("{n}")), &piece).is_ok()).count();
        assert!(filled < 256, "it is not full: nothing was tested");
        fs::create_dir(more.join("pool")).unwrap();
        let pool = format!("more={},layout={layout}", more.join("pool").display());
        space.down();
        add(&space, &pool).ok();
        add(&space, &pool).refused("two pools are called 'more'");
        space.up();
        assert_eq!(fs::read(space.path("some/where/file")).unwrap(), b"content");
        for n in 0..100 {
            fs::write(space.path(format!("some/where/more {n}")), &piece).unwrap();
        }
        assert_eq!(pool_of(&space, &space.path("some/where/more 99")), "more");
        if layout == "mirror" {
            assert_eq!(fs::metadata(more.join("pool/some/where/more 99")).unwrap().len(), 1 << 20);
        }
        space.down_and_check();
        space.up();
        assert_eq!(fs::read(space.path("some/where/more 99")).unwrap(), piece);
        space.down_and_check();
    }
}

#[test]
fn a_pool_that_cannot_be_added_changes_nothing() {
    let space = Space::plain();
    fs::write(space.path("file"), "content").unwrap();
    let at = |name: &str| space.ground.path().join(name);
    for name in ["empty", "filled", "of-another"] {
        fs::create_dir(at(name)).unwrap();
    }
    fs::write(at("filled/letter"), "").unwrap();
    fs::write(at("of-another/.ullage-pool.toml"), "format = 1\n").unwrap();
    let settings = || fs::read_to_string(space.state.join("space.toml")).unwrap();
    let before = settings();
    let own = space.pool();
    let wrong = [
        (format!("main={}", at("empty").display()), "two pools are called 'main'"),
        (format!("more={}", at("missing").display()), "does not exist"),
        (format!("more={}", at("filled").display()), "empty"),
        (format!("more={}", at("of-another").display()), "pool"),
        (format!("more={}", own.display()), "two pools lie at"),
        (format!("more={}/inner", space.mount.display()), "below the mount point"),
        (format!("more={},kind=null", at("empty").display()), "keeps nothing"),
    ];
    let are_refused = || {
        for (pool, why) in &wrong {
            let outcome = add(&space, pool);
            assert_eq!(outcome.code, Some(1), "{pool}: {outcome:?}");
            assert!(outcome.err.contains(why), "{pool}: {}", outcome.err);
            assert_eq!(settings(), before, "{pool}");
        }
    };
    are_refused();
    space.down();
    are_refused();
    let nowhere = ullage(["pool".as_ref(), "add".as_ref(), at("nowhere").as_os_str(), "more=/tmp".as_ref()]);
    nowhere.refused("there is no space at");
    // One that a space gave up.
    add(&space, &format!("more={}", at("empty").display())).ok();
    space.up();
    space.down();
    fs::write(space.state.join("space.toml"), &before).unwrap();
    add(&space, &format!("more={}", at("empty").display())).refused("is, or was, a pool of this space");
    space.up();
    assert_eq!(fs::read(space.path("file")).unwrap(), b"content");
    space.down_and_check();
}

/// The next start made the pool in the bare directory that its disk is mounted at, and filled the disk below.
#[test]
fn a_pool_that_was_added_is_missed_where_its_disk_is_not_mounted_by_the_first_start() {
    let mut space = Space::new();
    space.down();
    let disk = space.ground.tmpfs("other", 65_536);
    add(&space, &format!("new={}", disk.display())).ok();
    space.check();
    unmount(&disk);
    space.pools.clear();
    space.try_up().refused("pool 'new'");
    assert_eq!(fs::read_dir(&disk).unwrap().count(), 0, "something was made there");
    space.flags = ["--without", "new"].map(Into::into).into();
    space.up();
    space.down();
}
