//! `up --import`: what is neither a regular file nor a directory.

use rustix::fs::{CWD, FileType, Mode, XattrFlags, lgetxattr, lsetxattr, major, minor, mknodat};
use rustix::process::Signal;
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::run::{LIMIT, Outcome, eventually, program, run, ullage, unmount};
use ullage_mount_tests::space::Space;
use ullage_mount_tests::watchdog::is_mounted;
use ullage_mount_tests::{binary, process};

/// A tree to be imported, on a disk of its own.
fn bed() -> (Space, PathBuf) {
    let mut ground = Ground::new();
    let disk = ground.ext4("disk", 256);
    let mut space = Space::on(ground, &disk);
    space.pools = vec![format!("main={},layout=mirror", space.pool().display())];
    space.flags = vec!["--import".into()];
    let tree = space.pool();
    (space, tree)
}

/// Its directories as an import meets them, or the other way round.
fn as_listed(tree: &Path) -> Vec<OsString> {
    let all = fs::read_dir(tree).unwrap().map(|entry| entry.unwrap().file_name());
    all.filter(|name| name.to_string_lossy().starts_with("dir-")).collect()
}

/// Runs an `up` whose import comes to another file system in this directory.
fn up_over_another(space: &Space, dir: &Path) -> Outcome {
    let middle = dir.join("mounted");
    fs::create_dir_all(&middle).unwrap();
    program("mount", ["-t".as_ref(), "tmpfs".as_ref(), "tmpfs".as_ref(), middle.as_os_str()]).ok();
    let said = space.try_up();
    unmount(&middle);
    said
}

/// Begins such an import; gives what to say once more.
fn refused_half_way(space: &Space, dir: &Path) -> Vec<OsString> {
    let words = space.up_arguments();
    up_over_another(space, dir).refused("is on another file system");
    words
}

/// Whether somebody has the catalog of a space open. Not by locking it, which whoever is about to open it would meet.
fn is_locked(space: &Space) -> bool {
    let lock = space.state.join("catalog/lock").metadata().unwrap();
    let file = format!("{:02x}:{:02x}:{}", major(lock.dev()), minor(lock.dev()), lock.ino());
    let locks = fs::read_to_string("/proc/locks").unwrap();
    locks.lines().any(|lock| lock.contains("FLOCK") && lock.split(' ').any(|word| word == file))
}

fn pipe(at: &Path) {
    mknodat(CWD, at, FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
}

/// They were left behind without a word: of a pipe whose ACL let one user write, the whole group could.
#[test]
fn what_is_imported_keeps_its_acl_and_attributes_whatever_it_is() {
    let (mut space, tree) = bed();
    pipe(&tree.join("pipe"));
    run(Command::new("setfacl").args(["-m", "u:1234:rw"]).arg(tree.join("pipe"))).ok();
    symlink("somewhere", tree.join("link")).unwrap();
    for name in ["pipe", "link"] {
        lsetxattr(tree.join(name), "trusted.note", name.as_bytes(), XattrFlags::empty()).unwrap();
    }
    let acl = |root: &Path| run(Command::new("getfacl").args(["-pcn"]).arg(root.join("pipe"))).ok();
    let before = acl(&tree);
    assert!(before.contains("user:1234:rw-"), "{before}");
    space.up();
    space.flags.clear();
    assert_eq!(acl(&space.mount), before);
    for name in ["pipe", "link"] {
        let mut value = [0; 8];
        let length = lgetxattr(space.path(name), "trusted.note", &mut value[..]).unwrap();
        assert_eq!(&value[..length], name.as_bytes());
    }
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// As README says.
#[test]
fn a_space_is_given_up_and_its_directories_are_used_again() {
    let (mut space, tree) = bed();
    fs::create_dir(tree.join("dir")).unwrap();
    fs::write(tree.join("dir/taken-in"), "content").unwrap();
    let plain = space.ground.directory("plain");
    space.pools.push(format!("plain={}", plain.display()));
    for round in 0..2 {
        space.up();
        assert_eq!(fs::read(space.path("dir/taken-in")).unwrap(), b"content");
        fs::write(space.path(format!("dir/made-{round}")), "content").unwrap();
        space.down_and_check();
        fs::remove_dir_all(&space.state).unwrap();
        fs::remove_file(space.mount.with_extension("ullage")).unwrap();
        fs::remove_dir(&space.mount).unwrap();
        fs::remove_dir_all(&plain).unwrap();
        fs::create_dir(&plain).unwrap();
        fs::remove_dir_all(tree.join(".ullage")).unwrap();
        assert!(fs::read_dir(&tree).unwrap().all(|entry| entry.unwrap().file_name() == "dir"));
    }
    assert_eq!(fs::read(tree.join("dir/taken-in")).unwrap(), b"content");
}

/// Whether an import of so many names was still under way when it was interrupted: each time it ended then, and the last start went on with it.
fn ends_with_who_waits(files: usize) -> bool {
    let (mut space, tree) = bed();
    for n in 0..files {
        let dir = tree.join(format!("{}", n / 1000));
        if n % 1000 == 0 {
            fs::create_dir(&dir).unwrap();
        }
        // A file can have so many names, and needs one more.
        let first = n - n % 50_000;
        let made = if n == first {
            fs::write(dir.join(n.to_string()), "")
        } else {
            fs::hard_link(tree.join(format!("{}/{first}", first / 1000)), dir.join(n.to_string()))
        };
        made.unwrap();
    }
    for signal in [Signal::INT, Signal::TERM] {
        let words = space.up_arguments();
        // Who is started in the background is to ignore an interruption, and so are all whom he starts.
        let mut up = Command::new("env");
        up.arg("--default-signal").arg(binary::path()).args(words).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut up = up.spawn().unwrap();
        let has_begun = || space.state.join("space.toml").exists() && is_locked(&space);
        eventually("it has begun, or ended", LIMIT, || has_begun() || up.try_wait().unwrap().is_some());
        space.flags.clear();
        if up.try_wait().unwrap().is_none() {
            process::signal(up.id(), signal);
        }
        let mut said = String::new();
        up.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let status = up.wait().unwrap();
        if status.success() {
            space.down_and_check();
            return false;
        }
        assert_eq!(status.signal(), Some(signal.as_raw()), "{said}");
        assert!(said.contains("goes on"), "{said}");
        // Nobody has it any more.
        assert!(!is_locked(&space) && !is_mounted(&space.mount));
    }
    space.up();
    let names = (0..files / 1000).map(|dir| fs::read_dir(space.path(dir.to_string())).unwrap().count());
    assert_eq!(names.sum::<usize>(), files);
    space.down_and_check();
    true
}

/// Regression: `up` ended, and its daemon went on; no command could see it or end it.
#[test]
fn an_import_ends_with_who_waits_for_it_and_goes_on_with_the_next() {
    // On a fast machine a smaller one is over before it can be interrupted.
    assert!([30_000, 100_000, 300_000].into_iter().any(ends_with_who_waits));
}

/// ext4 lets a file have 65,000 names.
#[test]
fn what_has_as_many_names_as_it_can_have_is_told_by_an_import_and_taken_in_with_one_fewer() {
    let (mut space, tree) = bed();
    fs::write(tree.join("first"), "content").unwrap();
    let one_more = |n: u32| fs::hard_link(tree.join("first"), tree.join(n.to_string()));
    let names = (1..100_000).find(|n| one_more(*n).is_err()).unwrap();
    let words = space.up_arguments();
    space.try_up().refused("remove one of them");
    assert_eq!(tree.join("first").metadata().unwrap().nlink(), u64::from(names), "nothing was changed");
    fs::remove_file(tree.join("1")).unwrap();
    ullage(&words).ok();
    space.flags.clear();
    assert_eq!(space.path("first").metadata().unwrap().nlink(), u64::from(names) - 1);
    assert_eq!(fs::read(space.path("2")).unwrap(), b"content");
    space.down_and_check();
}

/// Regression: what was told of why ended with the first line of the name.
#[test]
fn an_import_that_is_refused_for_a_name_of_two_lines_says_why() {
    let (space, tree) = bed();
    let said = up_over_another(&space, &tree.join("two\nlines"));
    assert_eq!(said.code, Some(1), "{}", said.err);
    let lines: Vec<&str> = said.err.lines().collect();
    assert_eq!(lines.len(), 2, "{}", said.err);
    assert!(
        lines[0].ends_with("/two") && lines[1].starts_with("  lines/mounted is on another file system"),
        "{}",
        said.err
    );
}

/// Only names that one run took in were told to be of one file: after an interruption a pipe became two.
#[test]
fn what_has_several_names_is_one_after_an_import_that_was_interrupted() {
    let (mut space, tree) = bed();
    for dir in 0..9 {
        fs::create_dir(tree.join(format!("dir-{dir}"))).unwrap();
    }
    let dirs = as_listed(&tree);
    pipe(&tree.join(&dirs[0]).join("pipe"));
    symlink("somewhere", tree.join(&dirs[0]).join("link")).unwrap();
    for dir in &dirs[1..] {
        for name in ["pipe", "link"] {
            fs::hard_link(tree.join(&dirs[0]).join(name), tree.join(dir).join(name)).unwrap();
        }
    }
    let words = refused_half_way(&space, &tree.join(&dirs[4]));
    // As it is asked for: once more. The same words were refused, since there was a space by then.
    ullage(&words).ok();
    space.flags.clear();
    for name in ["pipe", "link"] {
        let of = |dir| space.path(dir).join(name).symlink_metadata().unwrap();
        let first = of(&dirs[0]);
        assert_eq!(first.nlink(), 9, "{name}");
        for dir in &dirs {
            assert_eq!(of(dir).ino(), first.ino(), "{name}");
        }
    }
    space.down_and_check();
    ullage(&words).refused("leave out --pool, --spread and --import");
}

/// It had its first owner and permissions again, in the space and on the disk: what was mended after a refusal, as that asks for, was undone.
#[test]
fn what_was_changed_between_a_refused_import_and_the_next_is_taken_in_as_it_is() {
    let (mut space, tree) = bed();
    for dir in 0..9 {
        let dir = tree.join(format!("dir-{dir}"));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("file"), "content").unwrap();
        pipe(&dir.join("pipe"));
        symlink("somewhere", dir.join("link")).unwrap();
    }
    let dirs = as_listed(&tree);
    let words = refused_half_way(&space, &tree.join(&dirs[4]));
    for dir in &dirs {
        let of = |name: &str| tree.join(dir).join(name);
        for path in [of(""), of("file"), of("pipe")] {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o751)).unwrap();
            chown(&path, Some(1234), Some(4321)).unwrap();
        }
        run(Command::new("setfacl").args(["-m", "u:77:r"]).arg(of("file"))).ok();
        lsetxattr(of("file"), "user.note", b"new", XattrFlags::empty()).unwrap();
        fs::remove_file(of("link")).unwrap();
        symlink("elsewhere", of("link")).unwrap();
    }
    let acl = |root: &Path, dir| run(Command::new("getfacl").args(["-pcn"]).arg(root.join(dir).join("file"))).ok();
    let before = acl(&tree, &dirs[0]);
    ullage(&words).ok();
    space.flags.clear();
    for _ in 0..2 {
        for dir in &dirs {
            for root in [&space.mount, &tree] {
                for name in ["", "file", "pipe"] {
                    let stat = root.join(dir).join(name).symlink_metadata().unwrap();
                    let mode = stat.mode() & 0o777;
                    assert_eq!(
                        (stat.uid(), stat.gid(), mode),
                        (1234, 4321, 0o751),
                        "{dir:?}/{name} in {}",
                        root.display()
                    );
                }
                assert_eq!(fs::read_link(root.join(dir).join("link")).unwrap(), Path::new("elsewhere"));
                assert_eq!(acl(root, dir), before);
            }
            let mut value = [0; 8];
            let length = lgetxattr(space.path(dir).join("file"), "user.note", &mut value[..]).unwrap();
            assert_eq!(&value[..length], b"new");
        }
        space.compare_du(&space.mount);
        space.down_and_check();
        space.up();
    }
    space.down_and_check();
}

/// The space was used while a part of it was still to be taken in; once that was, what had been made meanwhile was removed, as in no plain tree.
#[test]
fn a_space_of_which_a_part_is_still_to_be_taken_in_loses_nothing_of_what_is_made_meanwhile() {
    let mut ground = Ground::new();
    let disk = ground.ext4("disk", 256);
    let mut space = Space::on(ground, &disk);
    let dirs = ["a", "b", "plain"].map(|name| disk.join(name));
    for dir in &dirs {
        fs::create_dir(dir).unwrap();
    }
    let [a, b, plain] = dirs;
    space.pools = vec![
        format!("a={},layout=mirror", a.display()),
        format!("b={},layout=mirror", b.display()),
        format!("plain={}", plain.display()),
    ];
    space.flags = ["--import", "--spread", "round-robin"].map(Into::into).into();
    fs::write(a.join("of-a"), "a").unwrap();
    fs::write(b.join("of-b"), "b").unwrap();
    fs::create_dir(b.join("dir")).unwrap();
    refused_half_way(&space, &b.join("dir"));
    space.pools.clear();
    space.flags = ["--without", "b"].map(Into::into).into();
    space.try_up().refused("what lies in the pool 'b'");

    // As a version left it that did not refuse that: its turns were counted.
    fs::write(space.state.join("turns"), "3").unwrap();
    fs::rename(a.join("of-a"), a.join("renamed")).unwrap();
    space.flags.clear();
    space.up();
    assert_eq!(fs::read_to_string(space.path("of-a")).unwrap(), "a", "what no tree shows is gone");
    assert_eq!(fs::read_to_string(space.path("of-b")).unwrap(), "b");
    space.down_and_check();
}

/// Regression: the top directory lost ACL and attributes, and what the mask allowed was allowed to the whole group.
#[test]
fn the_top_directory_keeps_its_acl_and_attributes() {
    let (mut space, tree) = bed();
    let acl = |root: &Path| run(Command::new("getfacl").arg("-pcn").arg(root)).ok();
    run(Command::new("setfacl").args(["-m", "u:1234:rwx,g::---,m::rwx", "-d", "-m", "u:1234:rwx"]).arg(&tree)).ok();
    lsetxattr(&tree, "user.note", b"noted", XattrFlags::empty()).unwrap();
    let before = acl(&tree);
    space.up();
    space.flags.clear();
    assert_eq!(acl(&space.mount), before);
    let mut value = [0; 8];
    let length = lgetxattr(&space.mount, "user.note", &mut value[..]).unwrap();
    assert_eq!(&value[..length], b"noted");
    // Nor has anything of the pool's own, or what is in the tree, that ACL.
    fs::write(space.path("made"), "content").unwrap();
    eventually("it is in the tree", LIMIT, || tree.join("made").exists());
    for own in [".ullage", ".ullage/limbo", "made"] {
        assert!(!acl(&tree.join(own)).contains("1234"), "{own}");
    }
    space.down_and_check();
}

/// Regression: hard links to files of another space were taken in, and lost to that.
#[test]
fn what_another_space_has_by_another_name_is_not_taken_from_it() {
    let mut ground = Ground::new();
    let disk = ground.ext4("disk", 256);
    let mut one = Space::on(ground, &disk);
    one.pools = vec![format!("main={},layout=mirror", one.pool().display())];
    one.up();
    fs::create_dir(one.path("dir")).unwrap();
    fs::write(one.path("dir/file"), "precious").unwrap();
    one.down_and_check();
    let (tree, state, mount) = (disk.join("links"), disk.join("other-state"), disk.join("other"));
    fs::create_dir(&tree).unwrap();
    fs::hard_link(one.pool().join("dir/file"), tree.join("file")).unwrap();
    let pool = format!("main={},layout=mirror", tree.display());
    let words = [
        "up".into(),
        mount.into_os_string(),
        "--state".into(),
        state.into(),
        "--pool".into(),
        pool.into(),
        "--import".into(),
    ];
    let words: Vec<OsString> = words.into();
    ullage(&words).refused("is a file of another space");
    // What nobody else has any more is.
    one.up();
    assert_eq!(fs::read(one.path("dir/file")).unwrap(), b"precious");
    one.down_and_check();
}
