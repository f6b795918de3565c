//! A space below and above an overlay, as containers have it.

use std::fs;
use std::path::Path;
use ullage_mount_tests::run::program;
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
    program("umount", [&point]).ok();
    outcome.unwrap();
    assert_eq!((seen.0, seen.1), (vec!["d".to_owned(), "moved".to_owned()], vec!["new".to_owned()]));
    assert_eq!(seen.2.unwrap(), b"above");
    assert_eq!(fs::read(below.join("file")).unwrap(), b"below");
    assert!(names(&above).contains(&"file".to_owned()), "nothing hides the name that moved");
    space.down_and_check();
}
