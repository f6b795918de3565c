//! Backing files outlive their names: what may happen to a file that somebody still holds.

use crate::common::{self, Counter, Opened, each_file_system, files, hint, mount_made_with, open, until};
use rustix::mm::{MapFlags, ProtFlags};
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use ullage_pool::{Access, Binding, DirPool, Lease, Numbers, Pool, PoolConfig, probe_lease};
use ullage_types::{FileId, Generation};

/// A file with these bytes, of which nobody holds a descriptor any more.
fn written(opened: &Opened, bytes: &[u8]) -> (Binding, PathBuf) {
    let fresh = opened.pool.create(hint(1)).unwrap();
    fresh.file.write_all_at(bytes, 0).unwrap();
    let backing = opened.pool.backing_path(&fresh.binding.locator).unwrap();
    (fresh.binding, backing)
}

/// Makes the series want ready files, so that whatever may be recycled is.
fn demand(opened: &Opened) {
    for _ in 0..200 {
        let fresh = opened.pool.create(hint(1)).unwrap();
        drop(opened.pool.create(hint(1)).unwrap());
        opened.pool.abandon(fresh);
    }
}

/// A mapping that is undone when dropped.
struct Mapping(*mut u8);

impl Mapping {
    fn of(file: &File, protection: ProtFlags) -> Self {
        // SAFETY: a new mapping at an address that the kernel chooses; nothing else refers to it.
        let mapped =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), 4096, protection, MapFlags::SHARED, file, 0).unwrap() };
        Self(mapped.cast())
    }

    fn store(&self, byte: u8) {
        // SAFETY: the mapping is 4,096 bytes, writable, and the file is longer than nothing.
        unsafe { self.0.write_volatile(byte) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the very mapping that `of` made; nothing refers to it any more.
        unsafe { rustix::mm::munmap(self.0.cast(), 4096).unwrap() }
    }
}

#[test]
fn a_file_held_open_for_writing_goes_into_quarantine_and_is_removed_when_it_is_let_go() {
    each_file_system(64, |kind, path| {
        let opened = open(path, common::config(), 10).unwrap();
        let (binding, backing) = written(&opened, b"mine");
        let writer = opened.pool.open(&binding, Access::Write).unwrap();
        demand(&opened);
        opened.pool.release(binding);
        // What was made and abandoned, too, where a process that another test is just starting has a copy of it.
        until("quarantine", || opened.pool.stats().quarantined >= 1 && !backing.exists());
        // Still the writer's own file, with his bytes.
        writer.write_all_at(b"MORE", 4).unwrap();
        let mut bytes = [0; 8];
        writer.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"mineMORE", "{kind}");
        drop(writer);
        until("it is removed", || opened.pool.stats().in_quarantine == 0);
        assert_eq!(std::fs::read_dir(path.join("quarantine")).unwrap().count(), 0, "{kind}");
        opened.pool.close().unwrap();
    });
}

/// One that was to be tried again in more than a minute stayed until the next start, and for good in a pool that left its space.
#[test]
fn what_is_held_no_more_at_the_end_is_gone_after_it_however_often_it_was_tried() {
    each_file_system(64, |kind, path| {
        let config = PoolConfig { quarantine_retry: Duration::from_secs(3600), ..common::config() };
        let opened = open(path, config, 10).unwrap();
        let (binding, _) = written(&opened, b"mine");
        let writer = opened.pool.open(&binding, Access::Write).unwrap();
        opened.pool.release(binding);
        until("quarantine", || opened.pool.stats().quarantined == 1);
        drop(writer);
        let held = std::fs::read_dir(path.join("quarantine")).unwrap().next().unwrap().unwrap().path();
        // A process that another test is just starting may have a copy.
        until("nobody has it", || probe_lease(File::open(&held).unwrap(), Lease::Read).is_ok());
        opened.pool.close().unwrap();
        assert_eq!(std::fs::read_dir(path.join("quarantine")).unwrap().count(), 0, "{kind}");
    });
}

/// Each name was kept for the other's sake, and with them the blocks, once the user had removed his.
#[test]
fn a_file_that_was_taken_in_twice_goes_when_its_owner_removes_it_where_there_are_no_times_of_birth() {
    let Some(mounted) = mount_made_with("ext4", 64, &["-I", "128"]) else { return };
    let path = mounted.path().join("pool");
    std::fs::create_dir(&path).unwrap();
    let opened = open(&path, PoolConfig { layout: "mirror", ..common::config() }, 10).unwrap();
    let own = mounted.path().join("own");
    std::fs::write(&own, "content").unwrap();
    let above = File::open(mounted.path()).unwrap();
    let adopt = || opened.pool.adopt(hint(1), above.as_fd(), b"own").unwrap();
    let held = || std::fs::read_dir(path.join("quarantine")).unwrap().count();
    // The first import was killed.
    opened.pool.release(adopt());
    until("the first name waits", || held() == 1);
    std::thread::sleep(common::config().quarantine_retry * 3);
    assert_eq!(held(), 1, "while the tree has it, it says that the file is ours");
    let again = adopt();
    std::fs::remove_file(&own).unwrap();
    opened.pool.release(again);
    until("neither is kept", || held() == 0 && files(&path).is_empty());
    opened.pool.close().unwrap();
}

/// Has a file opened when numbers are asked for, once it is empty, as who looks for this file does: unless it has others by then.
struct Opens {
    numbers: Arc<Counter>,
    next: Mutex<Option<(PathBuf, FileId)>>,
    opened: Mutex<Option<File>>,
}

/// Whether the attribute says so, where the file system has any.
fn is_of(file: &File, id: FileId) -> bool {
    let mut value = [0; 64];
    let there = rustix::fs::fgetxattr(file, "user.ullage", &mut value).is_ok();
    !there || value[12..20] == id.0.to_le_bytes()
}

impl Numbers for Opens {
    fn next(&self) -> (FileId, Generation) {
        let empty = |(path, _): &mut (PathBuf, FileId)| path.metadata().is_ok_and(|it| it.len() == 0);
        if let Some((path, id)) = self.next.lock().unwrap().take_if(empty) {
            *self.opened.lock().unwrap() = File::open(path).ok().filter(|file| is_of(file, id));
        }
        self.numbers.next()
    }
}

/// The owner of the file before may be noted late: then the next one would have that one's numbers, and could not be opened.
#[test]
fn a_file_that_is_opened_by_its_old_name_while_it_is_being_recycled_goes_to_nobody() {
    each_file_system(64, |kind, path| {
        let numbers = Arc::new(Opens { numbers: Counter::from(10), next: Mutex::default(), opened: Mutex::default() });
        let marks = Arc::new(common::Marked::default());
        let pool = DirPool::open(path, common::config(), Arc::clone(&numbers) as _, Arc::clone(&marks) as _).unwrap();
        let opened = Opened { pool, marks };
        let mut held = Vec::new();
        for _ in 0..20 {
            let (binding, backing) = written(&opened, b"mine");
            demand(&opened);
            *numbers.next.lock().unwrap() = Some((backing.clone(), binding.file));
            let emptied = opened.pool.stats().emptied;
            opened.pool.release(binding);
            until("it is taken back", || !backing.exists() || opened.pool.stats().emptied > emptied);
            *numbers.next.lock().unwrap() = None;
            held.extend(numbers.opened.lock().unwrap().take().map(|file| (file, backing)));
        }
        // One that is kept empty is used only later, and may be opened as that is about to be done.
        opened.pool.close().unwrap();
        for (file, backing) in held {
            assert!(file.metadata().unwrap().nlink() == 0 || backing.exists(), "{kind}: it went to another file");
        }
    });
}

/// It lay in quarantine until the next start: nobody there knew of it.
#[test]
fn an_abandoned_file_held_open_for_writing_is_removed_when_it_is_let_go() {
    each_file_system(64, |kind, path| {
        let opened = open(path, common::config(), 10).unwrap();
        let fresh = opened.pool.create(hint(1)).unwrap();
        let writer = opened.pool.open(&fresh.binding, Access::Write).unwrap();
        opened.pool.abandon(fresh);
        until("quarantine", || opened.pool.stats().quarantined == 1);
        drop(writer);
        until(&format!("{kind}: it is removed"), || std::fs::read_dir(path.join("quarantine")).unwrap().count() == 0);
        opened.pool.close().unwrap();
    });
}

#[test]
fn a_writable_mapping_keeps_a_file_after_every_descriptor_is_closed() {
    each_file_system(64, |kind, path| {
        let opened = open(path, common::config(), 10).unwrap();
        let (binding, _) = written(&opened, &[1; 4096]);
        let mapping = {
            let file = opened.pool.open(&binding, Access::Write).unwrap();
            Mapping::of(&file, ProtFlags::READ | ProtFlags::WRITE)
        };
        demand(&opened);
        let backing = opened.pool.backing_path(&binding.locator).unwrap();
        let held = path.join("quarantine").join(backing.file_name().unwrap());
        opened.pool.release(binding.clone());
        until("quarantine", || held.exists());
        mapping.store(9);
        assert_eq!(std::fs::read(&held).unwrap()[0], 9, "{kind}: neither truncated nor another's");
        drop(mapping);
        until("it is removed", || opened.pool.stats().in_quarantine == 0);
        opened.pool.close().unwrap();
    });
}

#[test]
fn a_file_that_only_readers_hold_is_removed_and_never_shows_them_the_next_owners_bytes() {
    each_file_system(64, |kind, path| {
        let opened = open(path, common::config(), 10).unwrap();
        let (binding, backing) = written(&opened, b"old bytes");
        let mut reader = opened.pool.open(&binding, Access::Read).unwrap();
        demand(&opened);
        let removed = opened.pool.stats().removed;
        opened.pool.release(binding);
        until("it is removed", || opened.pool.stats().removed > removed);
        assert!(!backing.exists(), "{kind}");
        for _ in 0..300 {
            opened.pool.create(hint(1)).unwrap().file.write_all_at(b"NEW BYTES", 0).unwrap();
        }
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, b"old bytes", "{kind}");
        opened.pool.close().unwrap();
    });
}

#[test]
fn a_recycled_file_is_empty_and_has_new_numbers() {
    each_file_system(64, |kind, path| {
        let opened = open(path, common::config(), 10).unwrap();
        let mut seen = std::collections::HashSet::new();
        for _ in 0..40 {
            let batch: Vec<_> = (0..40).map(|_| opened.pool.create(hint(1)).unwrap()).collect();
            for fresh in batch {
                let stat = rustix::fs::fstat(&fresh.file).unwrap();
                assert_eq!((stat.st_size, stat.st_blocks, stat.st_mode & 0o7777), (0, 0, 0o600), "{kind}");
                let mut bytes = [1; 16];
                assert_eq!(fresh.file.read_at(&mut bytes, 0).unwrap(), 0, "{kind}");
                assert!(seen.insert(fresh.binding.generation), "{kind}: a generation came twice");
                // Preallocated beyond the end: it must not come back as somebody's charge.
                rustix::fs::fallocate(&fresh.file, rustix::fs::FallocateFlags::KEEP_SIZE, 0, 1 << 16).unwrap();
                fresh.file.write_all_at(b"secret", 5).unwrap();
                opened.pool.closed(&fresh.binding);
                let binding = fresh.binding.clone();
                drop(fresh);
                opened.pool.release(binding);
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(opened.pool.stats().recycled > 100, "{kind}: {:?}", opened.pool.stats());
        opened.pool.close().unwrap();
    });
}

/// Regression: where attributes take no blocks that are counted, an imported file was used again with the ACL and attributes of its old owner.
#[test]
fn a_recycled_file_has_no_attributes_of_its_old_owner() {
    each_file_system(64, |kind, path| {
        let opened = open(path, common::config(), 10).unwrap();
        demand(&opened);
        for _ in 0..20 {
            let batch: Vec<_> = (0..40).map(|_| opened.pool.create(hint(1)).unwrap()).collect();
            for fresh in batch {
                let has = rustix::fs::fgetxattr(&fresh.file, "user.note", &mut [0u8; 16][..]);
                assert!(has.is_err(), "{kind}: {has:?}");
                let flags = rustix::fs::XattrFlags::empty();
                rustix::fs::fsetxattr(&fresh.file, "user.note", b"secret", flags).unwrap();
                opened.pool.closed(&fresh.binding);
                let binding = fresh.binding.clone();
                drop(fresh);
                opened.pool.release(binding);
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        opened.pool.close().unwrap();
    });
}

/// They could not be taken back, at any start.
#[test]
fn who_may_not_ask_about_others_files_removes_them() {
    if !common::is_root() {
        eprintln!("skipped: only root can give files away");
        return;
    }
    let pool = || {
        // This thread, and those that it starts.
        let mut now = rustix::thread::capabilities(None).unwrap();
        now.effective.remove(rustix::thread::CapabilitySet::LEASE);
        rustix::thread::set_capabilities(None, now).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let opened = open(dir.path(), common::config(), 10).unwrap();
        let (binding, backing) = written(&opened, b"theirs");
        std::os::unix::fs::chown(&backing, Some(1000), Some(1000)).unwrap();
        let writer = opened.pool.open(&binding, Access::Write).unwrap();
        opened.pool.release(binding);
        until("it is removed", || !backing.exists());
        writer.write_all_at(b"MORE", 6).unwrap();
        let mut bytes = [0; 10];
        writer.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"theirsMORE");
        let stats = opened.pool.stats();
        assert_eq!((stats.failed, stats.quarantined), (0, 0), "{stats:?}");
        opened.pool.close().unwrap();
    };
    std::thread::spawn(pool).join().unwrap();
}

/// Whoever made a file was told of one that another had removed.
#[test]
fn what_cannot_be_taken_back_keeps_nobody_from_making_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let opened = open(dir.path(), common::config(), 10).unwrap();
    for _ in 0..50 {
        let (binding, backing) = written(&opened, b"removed");
        std::fs::remove_file(&backing).unwrap();
        std::fs::create_dir(&backing).unwrap();
        (0..20).for_each(|_| opened.pool.release(binding.clone()));
        (0..50).for_each(|_| drop(opened.pool.create(hint(1)).unwrap()));
    }
    until("all were tried", || opened.pool.stats().failed == 1000);
}

#[test]
fn an_abandoned_file_that_was_written_to_is_not_given_out_again() {
    each_file_system(64, |kind, path| {
        let opened = open(path, common::config(), 10).unwrap();
        demand(&opened);
        let fresh = opened.pool.create(hint(1)).unwrap();
        let generation = fresh.binding.generation;
        fresh.file.write_all_at(b"secret", 0).unwrap();
        opened.pool.abandon(fresh);
        for _ in 0..500 {
            let fresh = opened.pool.create(hint(1)).unwrap();
            assert_ne!(fresh.binding.generation, generation, "{kind}");
            assert_eq!(fresh.file.metadata().unwrap().len(), 0, "{kind}");
        }
        opened.pool.close().unwrap();
    });
}
