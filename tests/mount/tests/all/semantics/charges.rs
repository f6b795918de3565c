//! What is charged, and to which directory.

use crate::limits::bed::{Below, limit, limited, set};
use rustix::fs::{FallocateFlags, XattrFlags};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt, symlink};
use std::time::Duration;
use ullage_mount_tests::recount::{Use, told};
use ullage_mount_tests::run::{eventually, ullage};
use ullage_mount_tests::space::Space;

const BLOCK: u64 = 4096;

fn refusal<T: std::fmt::Debug>(outcome: std::io::Result<T>) -> Option<i32> {
    outcome.unwrap_err().raw_os_error()
}

#[test]
fn each_kind_is_charged_as_said() {
    let space = Space::plain();
    let dir = space.path("dir");
    let now = |bytes: u64, inodes: u64| assert_eq!(told(&dir), Use { bytes, inodes });
    fs::create_dir(&dir).unwrap();
    now(BLOCK, 1);
    symlink("t".repeat(256), dir.join("short")).unwrap();
    now(BLOCK, 2);
    symlink("t".repeat(257), dir.join("long")).unwrap();
    now(2 * BLOCK, 3);
    fs::write(dir.join("file"), "").unwrap();
    let attribute = |name: &str, bytes: usize| {
        rustix::fs::setxattr(dir.join("file"), name, &vec![0; bytes], XattrFlags::empty()).unwrap();
    };
    attribute("user.a", 250);
    now(2 * BLOCK, 4);
    attribute("user.b", 1);
    now(3 * BLOCK, 4);
    attribute("user.b", 4000);
    now(4 * BLOCK, 4);
    fs::write(dir.join("data"), vec![1; 3 * BLOCK as usize]).unwrap();
    File::open(dir.join("data")).unwrap().sync_all().unwrap();
    now(7 * BLOCK, 5);
    space.compare_du(&dir);
    space.down_and_check();
}

#[test]
fn a_file_with_several_names_is_charged_at_the_oldest_that_stays() {
    let space = Space::plain();
    for name in ["a", "b", "c"] {
        fs::create_dir(space.path(name)).unwrap();
    }
    fs::write(space.path("a/file"), vec![1; 100 * BLOCK as usize]).unwrap();
    File::open(space.path("a/file")).unwrap().sync_all().unwrap();
    fs::hard_link(space.path("a/file"), space.path("b/file")).unwrap();
    fs::hard_link(space.path("a/file"), space.path("c/file")).unwrap();
    let charged = || ["a", "b", "c"].map(|name| told(&space.path(name)).bytes > 50 * BLOCK);
    assert_eq!(charged(), [true, false, false]);
    fs::remove_file(space.path("c/file")).unwrap();
    assert_eq!(charged(), [true, false, false]);
    fs::remove_file(space.path("a/file")).unwrap();
    assert_eq!(charged(), [false, true, false]);
    space.down_and_check();
}

#[test]
fn an_open_file_without_a_name_is_charged_where_its_last_was() {
    let space = Space::plain();
    let dir = space.path("dir");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("file"), vec![1; 100 * BLOCK as usize]).unwrap();
    let open = File::open(dir.join("file")).unwrap();
    open.sync_all().unwrap();
    fs::remove_file(dir.join("file")).unwrap();
    assert_eq!(told(&dir), Use { bytes: 101 * BLOCK, inodes: 2 });
    drop(open);
    space.compare_du(&dir);
    space.down_and_check();
}

#[test]
fn a_name_that_is_replaced_needs_room_beside_its_successor() {
    let space = Below::Tmpfs.space();
    let dir = limited(&space, "box", 10 * BLOCK);
    fs::write(dir.join("old"), vec![1; 6 * BLOCK as usize]).unwrap();
    fs::write(space.path("new"), vec![2; 6 * BLOCK as usize]).unwrap();
    File::open(space.path("new")).unwrap().sync_all().unwrap();
    assert_eq!(refusal(fs::rename(space.path("new"), dir.join("old"))), Some(libc::ENOSPC));
    assert_eq!(fs::read(dir.join("old")).unwrap(), vec![1; 6 * BLOCK as usize], "nothing was changed");
    fs::write(space.path("smaller"), vec![3; 4 * BLOCK as usize]).unwrap();
    File::open(space.path("smaller")).unwrap().sync_all().unwrap();
    fs::rename(space.path("smaller"), dir.join("old")).unwrap();
    assert_eq!(fs::read(dir.join("old")).unwrap(), vec![3; 4 * BLOCK as usize]);
    space.down_and_check();
}

#[test]
fn the_names_of_a_file_lie_in_one_limited_directory() {
    let space = Below::Tmpfs.space();
    let dir = limited(&space, "box", 1 << 20);
    let outside = space.path("outside");
    fs::create_dir_all(outside.join("below")).unwrap();
    fs::write(outside.join("below/file"), "x").unwrap();
    assert_eq!(refusal(fs::hard_link(outside.join("below/file"), dir.join("name"))), Some(libc::EXDEV));
    fs::hard_link(outside.join("below/file"), outside.join("below/name")).unwrap();
    assert_eq!(refusal(fs::rename(outside.join("below/name"), dir.join("name"))), Some(libc::EXDEV));
    assert_eq!(refusal(fs::rename(outside.join("below"), dir.join("below"))), Some(libc::EXDEV));
    // All its names lie below what is limited itself, so it moves as a whole.
    limit(&["500K"], &outside.join("below"));
    fs::rename(outside.join("below"), dir.join("below")).unwrap();
    fs::create_dir(space.path("other")).unwrap();
    fs::write(space.path("other/file"), "x").unwrap();
    fs::hard_link(space.path("other/file"), space.path("name-outside")).unwrap();
    set(&["1M"], &space.path("other")).refused("names");
    let all = ullage(["limit".as_ref(), space.mount.as_os_str(), "--json".as_ref()]).json();
    assert_eq!(all["limits"].as_array().map(Vec::len), Some(2), "{all}");
    space.down_and_check();
}

#[test]
fn a_write_takes_what_fits_and_an_allocation_all_or_nothing() {
    let space = Below::Tmpfs.space();
    let dir = limited(&space, "box", 10 * BLOCK);
    let file = File::create(dir.join("file")).unwrap();
    let fallocate = |blocks: u64| rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, blocks * BLOCK);
    assert_eq!(fallocate(11), Err(rustix::io::Errno::NOSPC));
    assert_eq!((file.metadata().unwrap().len(), told(&dir).bytes), (0, BLOCK), "nothing was changed");
    assert_eq!(file.write_at(&vec![1; 20 * BLOCK as usize], 0).unwrap() as u64, 10 * BLOCK);
    assert_eq!(refusal(file.write_at(&[1], 10 * BLOCK)), Some(libc::ENOSPC));
    assert_eq!(file.metadata().unwrap().len(), 10 * BLOCK);
    // Under a user's limit the same error is EDQUOT; what is there can be written over.
    limit(&["--user", "root", &format!("{}B", told(&space.mount).bytes)], &space.mount);
    assert_eq!(refusal(fs::write(space.path("other"), "x")), Some(libc::EDQUOT));
    file.write_at(&vec![2; 10 * BLOCK as usize], 0).unwrap();
    drop(file);
    space.down_and_check();
}

#[repr(align(4096))]
struct Blocks([u8; 3 * BLOCK as usize]);

/// It was refused as a whole after a part of it had been written, and by a user's limit with the error of a directory's.
#[test]
fn what_is_written_past_the_page_cache_takes_what_fits_too() {
    let space = Below::Tmpfs.space();
    let blocks = Box::new(Blocks([1; 3 * BLOCK as usize]));
    for (name, reads) in [("writes", false), ("reads too", true)] {
        let dir = limited(&space, name, 2 * BLOCK);
        let mut options = File::options();
        options.read(reads).write(true).create(true).truncate(false).custom_flags(libc::O_DIRECT);
        let file = options.open(dir.join("file")).unwrap();
        assert_eq!(file.write_at(&blocks.0, 0).unwrap() as u64, 2 * BLOCK, "{name}");
        assert_eq!(refusal(file.write_at(&blocks.0, 2 * BLOCK)), Some(libc::ENOSPC), "{name}");
        assert_eq!(file.metadata().unwrap().len(), 2 * BLOCK, "{name}");
        limit(&["none"], &dir);
        limit(&["--user", "root", &format!("{}B", told(&space.mount).bytes + BLOCK)], &space.mount);
        let file = options.open(dir.join("file")).unwrap();
        assert_eq!(file.write_at(&blocks.0, 2 * BLOCK).unwrap() as u64, BLOCK, "{name}");
        assert_eq!(refusal(file.write_at(&blocks.0, 3 * BLOCK)), Some(libc::EDQUOT), "{name}");
        limit(&["--user", "root", "none"], &space.mount);
    }
    space.down_and_check();
}

#[test]
fn what_is_held_for_open_files_is_shown() {
    let space = Below::Tmpfs.space();
    let dir = limited(&space, "box", 16 << 20);
    let file = File::create(dir.join("file")).unwrap();
    file.write_all_at(&[1; 100], 0).unwrap();
    let shown = || ullage(["limit".as_ref(), space.mount.as_os_str(), "--json".as_ref()]).json();
    let held = |shown: &serde_json::Value| shown["limits"][0]["held"].as_u64().unwrap();
    assert!(held(&shown()) > 0, "{}", shown());
    // `du` has it beside what is used.
    let du = ullage(["du".as_ref(), "--json".as_ref(), dir.as_os_str()]).json()["directories"][0]["du"].take();
    assert!(du["committed"].as_u64().unwrap() > du["used"]["bytes"].as_u64().unwrap(), "{du}");
    drop(file);
    eventually("nothing is held for a closed file", Duration::from_secs(10), || held(&shown()) == 0);
    space.down_and_check();
}

#[test]
fn after_a_kill_descriptors_of_limited_files_write_nothing_more() {
    let space = Below::Tmpfs.space();
    let dir = limited(&space, "box", 1 << 20);
    let file = File::create(dir.join("file")).unwrap();
    file.write_all_at(&[1; 4096], 0).unwrap();
    file.sync_all().unwrap();
    space.kill();
    assert!(file.write_all_at(&[2; 4096], 4096).is_err());
    space.up();
    assert!(file.write_all_at(&[2; 4096], 4096).is_err());
    drop(file);
    assert_eq!(fs::read(dir.join("file")).unwrap(), [1; 4096]);
    space.compare_du(&dir);
    space.down_and_check();
}
