//! Backing files outlive their names: what was open when the daemon was killed goes on writing to its backing file,
//! which must by then be nobody else's.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::{Duration, Instant};
use ullage_mount_tests::map::Map;
use ullage_mount_tests::space::Space;

const OLD: &[u8] = &[0xAA; 4096];
const NEW: &[u8] = &[0x55; 4096];

/// Makes files for a while, as others would after the restart, while `old` writes; then all of them are looked at.
fn new_files_stay_pure(space: &Space, mut old: impl FnMut()) {
    let began = Instant::now();
    let mut count = 0;
    while began.elapsed() < Duration::from_secs(2) {
        let name = space.path(format!("new-{count}"));
        fs::write(&name, NEW).unwrap();
        old();
        if count % 3 == 0 {
            // So that backing files go round.
            fs::remove_file(&name).unwrap();
        }
        if count % 50 == 0 {
            space.sync();
        }
        count += 1;
        std::thread::sleep(Duration::from_millis(2));
    }
    old();
    let mut seen = 0;
    for entry in fs::read_dir(&space.mount).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_string_lossy().starts_with("new-") {
            assert!(
                fs::read(entry.path()).unwrap() == NEW,
                "{} holds bytes of another file",
                entry.file_name().display()
            );
            seen += 1;
        }
    }
    assert!(seen > 50, "only {seen} files were made");
}

#[test]
fn an_open_descriptor_never_reaches_another_file_after_kill_and_delete() {
    let space = Space::new();
    let name = space.path("file");
    let files: Vec<File> = (0..8)
        .map(|n| {
            let file = File::create(space.path(format!("file-{n}"))).unwrap();
            file.write_all_at(OLD, 0).unwrap();
            file
        })
        .collect();
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&name).unwrap();
    file.write_all_at(OLD, 0).unwrap();
    file.sync_all().unwrap();
    space.sync();
    space.kill();
    space.up();
    assert!(fs::read(&name).unwrap() == OLD, "what was fsynced is lost");
    fs::remove_file(&name).unwrap();
    fs::write(&name, NEW).unwrap();
    for n in 0..8 {
        fs::remove_file(space.path(format!("file-{n}"))).unwrap();
    }
    space.sync();
    let mut turn = 0;
    new_files_stay_pure(&space, || {
        // With passthrough it still succeeds, without it it fails: either is right.
        let _ = file.write_all_at(OLD, turn % 8 * 4096);
        for old in &files {
            let _ = old.write_all_at(OLD, 0);
        }
        turn += 1;
    });
    assert!(fs::read(&name).unwrap() == NEW, "the file made anew holds the old one's bytes");
    drop(file);
    drop(files);
    space.compare_du(&space.mount);
    space.down_and_check();
}

#[test]
fn a_descriptor_of_a_file_that_was_never_synced_reaches_no_other_file_after_kill() {
    let space = Space::new();
    let files: Vec<File> = (0..64)
        .map(|n| {
            let file = File::create(space.path(format!("lost-{n}"))).unwrap();
            file.write_all_at(OLD, 0).unwrap();
            file
        })
        .collect();
    space.kill();
    space.up();
    // Their names may be there or not, as the crash came; their bytes must be nowhere else.
    new_files_stay_pure(&space, || {
        for file in &files {
            let _ = file.write_all_at(OLD, 0);
        }
    });
    drop(files);
    space.compare_du(&space.mount);
    space.down_and_check();
}

#[test]
fn a_mapping_never_reaches_another_file_after_kill_and_delete() {
    let space = Space::new();
    let mut maps: Vec<Map> = (0..16)
        .map(|n| {
            let name = space.path(format!("mapped-{n}"));
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(&name).unwrap();
            file.write_all_at(OLD, 0).unwrap();
            Map::new(&file, 4096).unwrap()
        })
        .collect();
    space.sync();
    space.kill();
    space.up();
    for n in 0..16 {
        let name = space.path(format!("mapped-{n}"));
        assert!(fs::read(&name).unwrap() == OLD);
        fs::remove_file(&name).unwrap();
    }
    space.sync();
    new_files_stay_pure(&space, || maps.iter_mut().for_each(|map| map.write(0, OLD)));
    drop(maps);
    space.compare_du(&space.mount);
    space.down_and_check();
}

#[test]
fn what_an_old_descriptor_writes_after_the_restart_is_seen_in_its_own_file() {
    let space = Space::new();
    let name = space.path("file");
    let file = File::create(&name).unwrap();
    file.write_all_at(OLD, 0).unwrap();
    space.sync();
    space.kill();
    // Between daemons, too.
    let written = file.write_all_at(b"between", 100).is_ok();
    space.up();
    let content = fs::read(&name).unwrap();
    assert_eq!(content.len(), 4096);
    if written {
        assert_eq!(&content[100..107], b"between");
    }
    drop(file);
    space.down_and_check();
}

#[test]
fn a_file_unlinked_while_open_is_gone_after_kill_and_its_room_is_given_back() {
    let space = Space::new();
    let name = space.path("large");
    let file = File::create(&name).unwrap();
    file.write_all_at(&vec![1; 32 << 20], 0).unwrap();
    file.sync_all().unwrap();
    let used = ullage_mount_tests::recount::counted(&space.pool()).bytes;
    fs::remove_file(&name).unwrap();
    space.sync();
    space.kill();
    drop(file);
    space.up();
    assert!(!name.exists());
    ullage_mount_tests::run::eventually("the room is given back", Duration::from_secs(20), || {
        space.sync();
        ullage_mount_tests::recount::counted(&space.pool()).bytes + (30 << 20) < used
    });
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// Recovery measured such a file and took its mark away: what was written afterwards was counted by no later start.
#[test]
fn what_an_old_descriptor_writes_after_the_restart_is_counted_at_the_next_one() {
    let space = Space::new();
    if !space.uses_passthrough() {
        return;
    }
    let name = space.path("file");
    let file = File::create(&name).unwrap();
    file.write_all_at(OLD, 0).unwrap();
    space.sync();
    space.kill();
    space.up();
    file.write_all_at(OLD, 40_960).unwrap();
    drop(file);
    space.down_and_check();
    space.up();
    let length = fs::symlink_metadata(&name).unwrap().len();
    assert_eq!(length, 45_056);
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// The kernel wrote and synced the backing file, and the name was in the daemon's memory only.
#[test]
fn what_was_written_through_o_sync_is_there_after_kill() {
    let space = Space::new();
    let limited = space.path("limited");
    fs::create_dir(&limited).unwrap();
    ullage_mount_tests::run::ullage(["limit".as_ref(), limited.as_os_str(), "64M".as_ref()]).ok();
    let (late, soon) = (space.path("late"), space.path("soon"));
    fs::write(&late, OLD).unwrap();
    let ways = [libc::O_SYNC, libc::O_DSYNC];
    let new: Vec<_> = [&space.mount, &limited]
        .into_iter()
        .flat_map(|dir| ways.map(|way| (dir.join(format!("new-{way:x}")), way)))
        .collect();
    let open =
        |path, way| File::options().create(true).write(true).truncate(false).custom_flags(way).open(path).unwrap();
    for (path, way) in &new {
        open(path, *way).write_all_at(OLD, 0).unwrap();
    }
    // A file that was there is one that somebody made a moment ago.
    fs::rename(&late, &soon).unwrap();
    let grown = open(&soon, libc::O_DSYNC);
    grown.write_all_at(OLD, 4096).unwrap();
    space.kill();
    drop(grown);
    space.up();
    for (path, _) in &new {
        assert!(fs::read(path).is_ok_and(|content| content == OLD), "{} is lost", path.display());
    }
    assert_eq!(fs::read(&soon).unwrap(), [OLD, OLD].concat());
    space.compare_du(&space.mount);
    space.down_and_check();
}

#[test]
fn what_syncfs_and_msync_leave_to_the_catalog_is_durable_a_second_later() {
    let space = Space::new();
    let (written, mapped) = (space.path("written"), space.path("mapped"));
    fs::write(&written, OLD).unwrap();
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&mapped).unwrap();
    file.set_len(4096).unwrap();
    let mut map = Map::new(&file, 4096).unwrap();
    map.write(0, OLD);
    map.sync().unwrap();
    rustix::fs::syncfs(&file).unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    space.kill();
    drop((map, file));
    space.up();
    assert!(fs::read(&written).unwrap() == OLD);
    assert!(fs::read(&mapped).unwrap() == OLD);
    space.compare_du(&space.mount);
    space.down_and_check();
}
