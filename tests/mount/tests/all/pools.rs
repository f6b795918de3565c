//! Several pools at once.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::run::ullage;
use ullage_mount_tests::space::Space;

fn pool_of(space: &Space, name: &Path) -> String {
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
    // Fill it to the last byte through the mount.
    let error = fs::write(space.path("filler"), vec![2; 8 << 20]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    for n in 0..50 {
        let name = space.path(format!("after-{n}"));
        fs::write(&name, vec![3; 20_000]).unwrap();
        assert_eq!(pool_of(&space, &name), "main", "after-{n}");
        assert!(fs::read(&name).unwrap() == vec![3; 20_000]);
    }
    assert_eq!(fs::read(space.path("first")).unwrap(), [1; 1000]);
    space.compare_du(&space.mount);
    fs::remove_file(space.path("filler")).unwrap();
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
