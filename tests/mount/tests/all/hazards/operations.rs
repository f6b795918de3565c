//! Operations on passthrough files that always reach the server.

use rustix::fs::{FallocateFlags, copy_file_range, fallocate};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, SystemTime};
use ullage_mount_tests::space::Space;

fn file(space: &Space, name: &str) -> File {
    OpenOptions::new().read(true).write(true).create_new(true).open(space.path(name)).unwrap()
}

#[test]
fn truncation_of_a_passthrough_file_is_exact() {
    let space = Space::new();
    let file = file(&space, "file");
    file.write_all_at(&[1; 10_000], 0).unwrap();
    file.set_len(5000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 5000);
    file.set_len(9000).unwrap();
    let mut back = vec![9; 9000];
    file.read_exact_at(&mut back, 0).unwrap();
    assert!(back[..5000].iter().all(|b| *b == 1) && back[5000..].iter().all(|b| *b == 0));
    file.write_all_at(&[2; 100], 20_000).unwrap();
    assert_eq!(fs::metadata(space.path("file")).unwrap().len(), 20_100);
    drop(file);
    space.compare_du(&space.mount);
    space.down_and_check();
}

#[test]
fn allocation_and_holes_in_a_passthrough_file_are_exact() {
    let space = Space::new();
    let file = file(&space, "file");
    file.write_all_at(&vec![1; 65536], 0).unwrap();
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 4096, 8192).unwrap();
    let mut back = vec![9; 65536];
    file.read_exact_at(&mut back, 0).unwrap();
    assert!(back[4096..12288].iter().all(|b| *b == 0) && back[12288..].iter().all(|b| *b == 1));
    fallocate(&file, FallocateFlags::empty(), 0, 1 << 20).unwrap();
    let meta = file.metadata().unwrap();
    assert_eq!(meta.len(), 1 << 20);
    assert!(meta.blocks() * 512 >= 1 << 20);
    fallocate(&file, FallocateFlags::KEEP_SIZE, 1 << 20, 1 << 20).unwrap();
    let meta = file.metadata().unwrap();
    assert_eq!(meta.len(), 1 << 20);
    assert!(meta.blocks() * 512 >= 2 << 20);
    file.read_exact_at(&mut back, 0).unwrap();
    assert!(back[..4096].iter().all(|b| *b == 1));
    drop(file);
    space.compare_du(&space.mount);
    space.down_and_check();
}

#[test]
fn copies_between_passthrough_files_are_exact() {
    let space = Space::new();
    let (from, to) = (file(&space, "from"), file(&space, "to"));
    let content: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
    from.write_all_at(&content, 0).unwrap();
    let mut copied = 0;
    while copied < content.len() {
        let (mut a, mut b) = (copied as u64, copied as u64 + 7);
        copied += copy_file_range(&from, Some(&mut a), &to, Some(&mut b), content.len() - copied).unwrap();
    }
    assert_eq!(to.metadata().unwrap().len(), content.len() as u64 + 7);
    let mut back = vec![0; content.len()];
    to.read_exact_at(&mut back, 7).unwrap();
    assert!(back == content);
    drop((from, to));
    space.compare_du(&space.mount);
    space.down_and_check();
}

#[test]
fn what_was_fsynced_through_passthrough_is_there_after_kill() {
    let space = Space::new();
    for n in 0..20 {
        let file = file(&space, &format!("file-{n}"));
        file.write_all_at(&vec![n; 3000 * (1 + n as usize)], 0).unwrap();
        if n % 2 == 0 { file.sync_all() } else { file.sync_data() }.unwrap();
    }
    File::open(&space.mount).unwrap().sync_all().unwrap();
    space.kill();
    space.up();
    for n in 0..20u8 {
        let name = space.path(format!("file-{n}"));
        assert!(fs::read(&name).unwrap() == vec![n; 3000 * (1 + n as usize)], "{n}");
        assert_eq!(fs::metadata(&name).unwrap().len(), 3000 * (1 + u64::from(n)));
    }
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// fdatasync(2) of overwritten blocks leaves the catalog alone; what changes length or blocks in between must not be left out.
#[test]
fn overwrites_and_truncations_that_were_fdatasynced_are_there_after_kill() {
    let space = Space::new();
    let file = file(&space, "database");
    file.write_all_at(&[1; 8192], 0).unwrap();
    file.sync_data().unwrap();
    for n in 2..20u8 {
        file.write_all_at(&[n; 4096], 0).unwrap();
        file.sync_data().unwrap();
        file.set_len(8192 + u64::from(n)).unwrap();
        file.sync_data().unwrap();
    }
    file.write_all_at(&[20; 4096], 4096).unwrap();
    file.sync_data().unwrap();
    space.kill();
    space.up();
    let found = fs::read(space.path("database")).unwrap();
    assert_eq!(found.len(), 8192 + 19);
    assert!(found[..4096].iter().all(|byte| *byte == 19) && found[4096..8192].iter().all(|byte| *byte == 20));
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// What was as long as before was not looked at: whoever copies what is newer left it out. And times that a file was given could be lost.
#[test]
fn what_was_overwritten_before_a_kill_has_the_time_of_that_and_what_was_given_times_has_those() {
    let space = Space::new();
    let given = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for name in ["written", "given-and-written"] {
        fs::write(space.path(name), [1; 8192]).unwrap();
    }
    File::options().write(true).open(space.path("given-and-written")).unwrap().set_modified(given).unwrap();
    space.down();
    space.up();
    let before = fs::metadata(space.path("written")).unwrap().modified().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    for name in ["written", "given-and-written"] {
        let file = File::options().write(true).open(space.path(name)).unwrap();
        file.write_all_at(&[2; 4096], 0).unwrap();
        file.sync_data().unwrap();
    }
    fs::write(space.path("given"), [1; 8192]).unwrap();
    File::options().write(true).open(space.path("given")).unwrap().set_modified(given).unwrap();
    File::open(&space.mount).unwrap().sync_all().unwrap();
    space.kill();
    space.up();
    let changed = |name: &str| fs::metadata(space.path(name)).unwrap().modified().unwrap();
    for name in ["written", "given-and-written"] {
        assert_eq!(fs::read(space.path(name)).unwrap()[0], 2);
        assert!(changed(name) > before, "{name}: {:?}, and {before:?} before", changed(name));
    }
    assert_eq!(changed("given"), given);
    space.down_and_check();
}

/// A time that lies ahead was taken for newer than all data, also than what was written after it was given.
#[test]
fn what_was_written_before_a_kill_after_a_time_ahead_was_given_has_the_time_of_that() {
    let space = Space::new();
    let ahead = SystemTime::now() + Duration::from_secs(100_000_000);
    for name in ["written", "longer", "left"] {
        fs::write(space.path(name), [1; 8192]).unwrap();
        File::options().write(true).open(space.path(name)).unwrap().set_modified(ahead).unwrap();
    }
    space.down();
    space.up();
    let before = SystemTime::now() - Duration::from_secs(1);
    let open = |name: &str| File::options().write(true).open(space.path(name)).unwrap();
    let files = [open("written"), open("longer"), open("left")];
    files[0].write_all_at(&[2; 4096], 0).unwrap();
    files[1].write_all_at(&[2; 4096], 8192).unwrap();
    space.kill();
    space.up();
    let changed = |name: &str| fs::metadata(space.path(name)).unwrap().modified().unwrap();
    for name in ["written", "longer"] {
        let changed = changed(name);
        assert!(changed > before && changed < ahead - Duration::from_secs(10), "{name}: {changed:?}");
    }
    assert_eq!(changed("left"), ahead);
    drop(files);
    space.down_and_check();
}
