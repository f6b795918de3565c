//! A space below and above an overlay, as containers have it.

use crate::hazards::privileges::{as_nobody, give_capability, has_capability, mode_alone};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::run::{program, ullage, unmount};
use ullage_mount_tests::space::Space;

fn mount(below: &Path, above: &Path, work: &Path, point: &Path) {
    let options = format!("lowerdir={},upperdir={},workdir={}", below.display(), above.display(), work.display());
    program("mount", ["-t", "overlay", "overlay", "-o", &options, point.to_str().unwrap()]).ok();
}

/// An upper layer on FUSE takes RENAME_WHITEOUT: without it the kernel refused the mount.
#[test]
fn an_overlay_can_have_all_its_layers_in_a_space() {
    let space = Space::new();
    let [below, above, work, point] = ["below", "above", "work", "point"].map(|name| space.path(name));
    for directory in [&below.join("d"), &above, &work, &point] {
        fs::create_dir_all(directory).unwrap();
    }
    fs::write(below.join("file"), "below").unwrap();
    fs::write(below.join("d/old"), "old").unwrap();
    mount(&below, &above, &work, &point);
    let changed = || -> std::io::Result<()> {
        fs::write(point.join("file"), "above")?;
        fs::rename(point.join("file"), point.join("moved"))?;
        fs::remove_dir_all(point.join("d"))?;
        fs::create_dir(point.join("d"))?;
        fs::write(point.join("d/new"), "new")
    };
    let outcome = changed();
    let names = |directory: &Path| {
        let mut names: Vec<_> =
            fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let seen = (names(&point), names(&point.join("d")), fs::read(point.join("moved")));
    unmount(&point);
    outcome.unwrap();
    assert_eq!((seen.0, seen.1), (vec!["d".to_owned(), "moved".to_owned()], vec!["new".to_owned()]));
    assert_eq!(seen.2.unwrap(), b"above");
    assert_eq!(fs::read(below.join("file")).unwrap(), b"below");
    assert!(names(&above).contains(&"file".to_owned()), "nothing hides the name that moved");
    space.down_and_check();
}

/// The owner is the last that a file gets which is copied up, and a change of owner took away what came before. Where the kernel was about to
/// take capabilities away itself it then found none, and chown(2) failed.
#[test]
fn what_an_overlay_copies_up_keeps_setuid_and_capabilities_until_they_are_voided() {
    let space = Space::new();
    fs::set_permissions(&space.mount, Permissions::from_mode(0o755)).unwrap();
    let [below, above, work, point] = ["below", "above", "work", "point"].map(|name| space.path(name));
    for directory in [&below, &above, &work, &point] {
        fs::create_dir(directory).unwrap();
    }
    for name in ["touched", "moved", "linked", "marked", "given", "bare", "written", "strangers"] {
        let path = below.join(name);
        fs::write(&path, "content").unwrap();
        chown(&path, Some(1000), Some(1000)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o6777)).unwrap();
        if name != "bare" {
            give_capability(&path);
        }
    }
    mount(&below, &above, &work, &point);
    let shell = |script: &str| program("sh", ["-c", script, "sh", point.to_str().unwrap()]);
    let outcomes = [
        "touch \"$1/touched\"",
        "mv \"$1/moved\" \"$1/there\"",
        "ln \"$1/linked\" \"$1/name\"",
        "setfattr -n user.q -v 1 \"$1/marked\"",
        "chown 5:5 \"$1/given\"",
        "chown 5:5 \"$1/bare\"",
        "echo x >> \"$1/written\"",
    ]
    .map(shell);
    as_nobody("echo x >> \"$1\"", &point.join("strangers"));
    let names = ["touched", "there", "linked", "marked", "given", "bare", "written", "strangers"];
    let look = |top: &Path| {
        names.map(|name| {
            let path = top.join(name);
            (name, path.metadata().unwrap().uid(), mode_alone(&path), has_capability(&path))
        })
    };
    let seen = [look(&point), look(&above)];
    unmount(&point);
    for outcome in outcomes {
        outcome.ok();
    }
    for seen in seen {
        assert_eq!(
            seen,
            [
                ("touched", 1000, 0o6777, true),
                ("there", 1000, 0o6777, true),
                ("linked", 1000, 0o6777, true),
                ("marked", 1000, 0o6777, true),
                ("given", 5, 0o777, false),
                ("bare", 5, 0o777, false),
                ("written", 1000, 0o6777, false),
                ("strangers", 1000, 0o777, false),
            ]
        );
    }
    space.down_and_check();
}

/// The kernel's doing: overlayfs goes on with the first name that it knows of a file, and FUSE takes that for gone.
#[test]
fn a_second_name_in_an_overlay_may_be_stale_until_it_is_mounted_anew_once_the_first_is_gone() {
    let space = Space::new();
    let [below, above, work, point] = ["below", "above", "work", "point"].map(|name| space.path(name));
    for directory in [&below, &above, &work, &point] {
        fs::create_dir(directory).unwrap();
    }
    mount(&below, &above, &work, &point);
    let [first, second] = ["first", "second"].map(|name| point.join(name));
    let changed = || {
        fs::write(&first, "content")?;
        fs::hard_link(&first, &second)?;
        assert_eq!(fs::metadata(&second)?.nlink(), 2);
        fs::remove_file(&first)
    };
    let (changed, read) = (changed(), fs::read(&second));
    unmount(&point);
    changed.unwrap();
    read.map_or_else(|error| assert_eq!(error.raw_os_error(), Some(libc::ESTALE)), |text| assert_eq!(text, b"content"));
    mount(&below, &above, &work, &point);
    let read = fs::read(&second);
    unmount(&point);
    assert_eq!(read.unwrap(), b"content");
    space.down_and_check();
}

/// `status` said that it moved in the kernel, which registers no file of an overlay.
#[test]
fn status_says_that_data_over_an_overlay_moves_through_the_server() {
    let mut ground = Ground::new();
    // A layer on the overlay of a container is refused.
    let layers = ground.tmpfs("layers", 65_536);
    let [below, above, work] = ["below", "above", "work"].map(|name| layers.join(name));
    let disk = ground.directory("disk");
    for directory in [&below, &above, &work] {
        fs::create_dir(directory).unwrap();
    }
    mount(&below, &above, &work, &disk);
    ground.will_unmount(&disk);
    let mut space = Space::on(ground, &disk);
    space.state = space.ground.join("state");
    space.up();
    assert!(!space.uses_passthrough());
    let status = ullage(["status".as_ref(), space.mount.as_os_str()]).ok();
    assert!(status.contains("main: over overlay: its data moves through the server"), "{status}");
    space.down_and_check();
}
