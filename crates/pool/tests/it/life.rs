//! The life of a backing file, on every file system.

use crate::common::{self, each_file_system, files, hint, open, until};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::FileExt;
use ullage_pool::{Abilities, Access, Annotation, Binding, Error, Pool, Survey};
use ullage_types::{Class, FileId, Generation};

#[test]
fn a_file_is_made_written_opened_again_and_taken_back() {
    each_file_system(64, |kind, path| {
        let opened = open(path, common::config(), 10).unwrap();
        let pool = &opened.pool;
        pool.begin();
        let fresh = pool.create(hint(1)).unwrap();
        assert!(opened.marks.has(&fresh.binding.locator), "{kind}: marked before it is given out");
        fresh.file.write_all_at(b"mine", 0).unwrap();
        let binding = fresh.binding.clone();
        drop(fresh);
        pool.closed(&binding);
        let mut bytes = [0; 4];
        pool.open(&binding, Access::Read).unwrap().read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"mine");
        pool.open(&binding, Access::Write).unwrap().write_all_at(b"more", 4).unwrap();
        let backing = pool.backing_path(&binding.locator).unwrap();
        assert_eq!(std::fs::read(&backing).unwrap(), b"minemore", "{kind}");
        let wrong = Binding { generation: Generation(1), ..binding.clone() };
        assert!(matches!(pool.open(&wrong, Access::Read), Err(Error::Mismatch { .. })), "{kind}");
        pool.doom(&binding).unwrap();
        pool.release(binding.clone());
        until("it is gone", || !backing.exists());
        assert!(matches!(pool.open(&binding, Access::Read), Err(Error::Mismatch { .. })), "{kind}");
        pool.close().unwrap();
        assert!(files(path).is_empty(), "{kind}: unused ready files are removed");
        assert!(opened.marks.set.lock().unwrap().is_empty(), "{kind}: nothing is in doubt");
    });
}

/// On old kernels (6.1) tmpfs has no attributes of users, in which a backing file says whose it is.
fn without_attributes(opened: &common::Opened, kind: &str) -> bool {
    let without = kind == "tmpfs" && !opened.pool.describe().abilities.xattrs;
    if without {
        eprintln!("skipped: {kind} has no user attributes on this kernel");
        opened.pool.close().unwrap();
    }
    without
}

#[test]
fn class_and_owner_are_recorded_on_the_backing_file_and_gone_when_it_is_recycled() {
    each_file_system(64, |kind, path| {
        let opened = open(path, common::config(), 10).unwrap();
        if without_attributes(&opened, kind) {
            return;
        }
        let annotation = Annotation { class: Class::Elastic, uid: 1000, gid: 100 };
        for _ in 0..300 {
            let binding = opened.pool.create(hint(1)).unwrap().binding;
            assert_eq!(opened.pool.annotation(&binding).unwrap(), None, "{kind}");
            opened.pool.annotate(&binding, annotation).unwrap();
            assert_eq!(opened.pool.annotation(&binding).unwrap(), Some(annotation), "{kind}");
            opened.pool.release(binding);
        }
        opened.pool.close().unwrap();
    });
}

#[test]
fn a_lost_file_is_made_again_empty_and_never_over_another() {
    each_file_system(64, |kind, path| {
        let opened = open(path, common::config(), 10).unwrap();
        let binding = opened.pool.create(hint(1)).unwrap().binding;
        let error = opened.pool.recreate(&binding).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EEXIST), "{kind}");
        let backing = opened.pool.backing_path(&binding.locator).unwrap();
        std::fs::remove_file(&backing).unwrap();
        assert!(matches!(opened.pool.open(&binding, Access::Read), Err(Error::Mismatch { .. })), "{kind}");
        assert_eq!(opened.pool.recreate(&binding).unwrap().metadata().unwrap().len(), 0, "{kind}");
        opened.pool.open(&binding, Access::Write).unwrap();
        opened.pool.close().unwrap();
        assert!(backing.exists(), "{kind}");
    });
}

#[test]
fn a_backing_file_of_another_binding_or_space_under_the_right_name_is_not_served() {
    each_file_system(64, |kind, path| {
        let opened = open(path, common::config(), 10).unwrap();
        if without_attributes(&opened, kind) {
            return;
        }
        let [mine, theirs] = [(); 2].map(|()| opened.pool.create(hint(1)).unwrap().binding);
        let [to, from] = [&mine, &theirs].map(|binding| opened.pool.backing_path(&binding.locator).unwrap());
        std::fs::rename(from, &to).unwrap();
        assert!(matches!(opened.pool.open(&mine, Access::Read), Err(Error::Mismatch { .. })), "{kind}");
        std::fs::remove_file(&to).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &to).unwrap();
        assert!(matches!(opened.pool.open(&mine, Access::Write), Err(Error::Mismatch { .. })), "{kind}");
        opened.pool.close().unwrap();
    });
}

#[test]
fn many_threads_get_files_of_their_own() {
    each_file_system(64, |kind, path| {
        let opened = open(path, common::config(), 10).unwrap();
        let pool = &opened.pool;
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                scope.spawn(move || {
                    let mut kept = std::collections::VecDeque::new();
                    for number in 0..600u64 {
                        let fresh = pool.create(hint(thread % 2)).unwrap();
                        let tag = (thread << 32) | number;
                        fresh.file.write_all_at(&tag.to_le_bytes(), 0).unwrap();
                        kept.push_back((fresh.binding.clone(), tag));
                        drop(fresh);
                        if kept.len() > 20 {
                            let (binding, tag) = kept.pop_front().unwrap();
                            let file = pool.open(&binding, Access::Read).unwrap();
                            let mut bytes = [0; 9];
                            assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 8, "{kind}");
                            assert_eq!(bytes[..8], tag.to_le_bytes(), "{kind}: another file's bytes");
                            drop(file);
                            pool.release(binding);
                        }
                    }
                });
            }
        });
        // A process that another test is just starting may hold files open for a moment.
        until("nothing is in quarantine", || opened.pool.stats().in_quarantine == 0);
        opened.pool.close().unwrap();
        assert_eq!(files(path).len(), 80, "{kind}");
        let description = opened.pool.describe();
        let expected = Abilities {
            reflink: matches!(kind, "xfs" | "btrfs"),
            leases: true,
            ordered: true,
            direct_io: description.abilities.direct_io,
            xattrs: kind != "tmpfs" || description.abilities.xattrs,
        };
        assert_eq!((description.fs_type.as_deref(), description.abilities), (Some(kind), expected));
    });
}

/// The kernel tells a lease's holder by SIGIO that somebody wants to open the file, and SIGIO ends a process that does not
/// care for it: a scanner that looked at a pool ended the daemon.
#[test]
fn whoever_opens_a_file_while_it_is_asked_for_its_holders_does_not_end_the_process() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_owned();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                drop(std::fs::File::open(&path).unwrap());
            }
        });
        let (mut free, mut held) = (0, 0);
        for _ in 0..200_000 {
            match ullage_pool::probe_lease(&file, ullage_pool::Lease::Write) {
                Ok(()) => free += 1,
                Err(_) => held += 1,
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(free > 0 && held > 0, "both happened: {free}, {held}");
    });
}

/// ext4 passes over each inode deleted in the last minutes whenever it makes a file: creates after many removals took up to
/// 400 µs.
#[test]
fn files_taken_back_are_emptied_kept_and_used_again() {
    // A child that another test is just starting has copies of all descriptors for a moment: such a file is not known to be nobody's.
    const COPIES: u64 = 20;
    let dir = tempfile::tempdir().unwrap();
    let opened = open(dir.path(), common::config(), 1).unwrap();
    let pool = &opened.pool;
    let make = || -> Vec<Binding> {
        let mut made = Vec::new();
        for _ in 0..3000 {
            let fresh = pool.create(hint(1)).unwrap();
            assert_eq!(fresh.file.metadata().unwrap().len(), 0);
            fresh.file.write_all_at(b"of the first one", 0).unwrap();
            made.push(fresh.binding);
        }
        made
    };
    for binding in make() {
        pool.release(binding);
    }
    until("all are taken back", || {
        let stats = pool.stats();
        stats.recycled + stats.emptied + stats.removed + stats.in_quarantine >= 3000
    });
    let before = pool.stats();
    // Where more is asked for than is made, all are made ready at once.
    assert!(before.emptied + before.recycled > 500, "{before:?}");
    assert!(before.removed <= COPIES, "{before:?}");
    let again = make();
    let after = pool.stats();
    let used_again = (after.recycled - before.recycled).max(after.hits - before.hits);
    assert!(used_again > 500 && after.removed <= COPIES, "{after:?}");
    drop(again);
    pool.close().unwrap();
    assert_eq!(files(dir.path()).len(), 3000);
}

/// Regression: files kept empty for the next create still said to be those that were removed, and a rebuild from an older catalog brought these back.
#[test]
fn a_file_that_is_kept_empty_is_no_longer_the_one_that_was_removed() {
    // Of fewer all are used again at once.
    const FILES: u64 = 3000;
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("pool")).unwrap();
    let opened = open(&dir.path().join("pool"), common::config(), 1).unwrap();
    if without_attributes(&opened, "the file system of the tests") {
        return;
    }
    let made: Vec<Binding> = (0..FILES).map(|_| opened.pool.create(hint(1)).unwrap().binding).collect();
    let owner = Annotation { class: Class::Persistent, uid: 1, gid: 1 };
    for binding in &made {
        opened.pool.annotate(binding, owner).unwrap();
        opened.pool.release(binding.clone());
    }
    until("all are taken back", || {
        let stats = opened.pool.stats();
        stats.recycled + stats.emptied + stats.removed + stats.in_quarantine >= FILES
    });
    assert!(opened.pool.stats().emptied > 50, "{:?}", opened.pool.stats());
    let copy = dir.path().join("copy");
    // Not all of it where some are still being used again.
    let _ = std::process::Command::new("cp").arg("-a").args([&dir.path().join("pool"), &copy]).status().unwrap();
    let made: BTreeMap<_, _> = made.iter().map(|it| ((it.file, it.generation), it.locator.leaf())).collect();
    let mut nobodys = 0;
    let survey = Survey::open(&copy, Some(common::SPACE), None).unwrap();
    survey
        .visit(&mut |found| {
            let Some(numbers) = found.numbers else { return };
            let removed = made.contains_key(&numbers);
            assert!(!removed && found.annotation.is_none() && found.size == 0, "{found:?}");
            nobodys += u64::from(numbers.0 == FileId(0));
        })
        .unwrap();
    assert!(nobodys > 50);
    drop(survey);
    // Whoever starts after a crash knows them by their names, which nobody has.
    let started = open(&copy, common::config(), 10_000).unwrap();
    let mut suspects = Vec::new();
    for leaf in made.values().collect::<BTreeSet<_>>() {
        started.pool.suspects(leaf, &mut |suspect| suspects.push(suspect)).unwrap();
    }
    for suspect in suspects {
        started.pool.release(started.pool.stray(suspect).unwrap());
    }
    started.pool.close().unwrap();
    assert!(files(&copy).is_empty());
    opened.pool.close().unwrap();
}

/// Power goes between the creation of a file and its attribute, after the catalog's log has the file: it was given back as
/// nobody's, and the file in the catalog was left without one.
#[test]
fn a_file_whose_attribute_was_lost_with_the_power_is_known_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let opened = open(dir.path(), common::config(), 1).unwrap();
    let fresh = opened.pool.create(hint(1)).unwrap();
    rustix::fs::fremovexattr(&fresh.file, "user.ullage").unwrap();
    let leaf = fresh.binding.locator.0.rsplitn(2, |byte| *byte == b'/').nth(1).unwrap().to_vec();
    let mut found = Vec::new();
    opened.pool.suspects(&leaf, &mut |suspect| found.extend(suspect.binding)).unwrap();
    assert!(found.contains(&fresh.binding), "{found:?}");
    opened.pool.open(&fresh.binding, Access::Read).unwrap();
}

/// A crash left it, on a file system where it could not be without a name.
#[test]
fn a_copy_that_was_not_finished_goes_when_its_leaf_is_looked_through() {
    let dir = tempfile::tempdir().unwrap();
    let opened = open(dir.path(), common::config(), 1).unwrap();
    let fresh = opened.pool.create(hint(1)).unwrap();
    let leaf = fresh.binding.locator.0.rsplitn(2, |byte| *byte == b'/').nth(1).unwrap().to_vec();
    let place = dir.path().join(std::str::from_utf8(&leaf).unwrap());
    for name in [".draft-1.2", ".draft-theirs"] {
        std::fs::write(place.join(name), "half").unwrap();
    }
    opened.pool.suspects(&leaf, &mut |_| {}).unwrap();
    assert!(!place.join(".draft-1.2").exists() && place.join(".draft-theirs").exists());
    opened.pool.open(&fresh.binding, Access::Read).unwrap();
}

#[test]
fn a_file_that_was_adopted_keeps_its_first_name_and_its_data_whatever_becomes_of_its_binding() {
    each_file_system(64, |kind, path| {
        let (pool, outside) = (path.join("pool"), path.join("outside"));
        std::fs::create_dir_all(&pool).unwrap();
        std::fs::create_dir_all(&outside).unwrap();
        std::fs::write(outside.join("file"), "data").unwrap();
        let above = std::fs::File::open(&outside).unwrap();
        let opened = open(&pool, common::config(), 10).unwrap();
        let adopt = || opened.pool.adopt(hint(1), std::os::fd::AsFd::as_fd(&above), b"file").unwrap();
        let binding = adopt();
        assert!(opened.marks.has(&binding.locator), "{kind}: its leaf is marked");
        let mut bytes = [0; 4];
        opened.pool.open(&binding, Access::Read).unwrap().read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"data", "{kind}");
        let backing = opened.pool.backing_path(&binding.locator).unwrap();
        opened.pool.release(binding);
        until("its second name is gone", || !backing.exists());
        assert_eq!(std::fs::read(outside.join("file")).unwrap(), b"data", "{kind}");
        // A crash in between leaves one that no catalog knows.
        let suspect = adopt();
        let stray = ullage_pool::Suspect { binding: None, unreadable: false, locator: suspect.locator.clone() };
        opened.pool.release(opened.pool.stray(stray).unwrap());
        let backing = opened.pool.backing_path(&suspect.locator).unwrap();
        until("its second name is gone", || !backing.exists());
        for _ in 0..100 {
            drop(opened.pool.create(hint(1)).unwrap());
        }
        opened.pool.close().unwrap();
        assert_eq!(std::fs::read(outside.join("file")).unwrap(), b"data", "{kind}");
    });
}

/// What nobody could look through at the start was taken for settled once a file there had been opened and closed.
#[test]
fn a_leaf_that_is_kept_in_doubt_stays_marked_whatever_is_closed_in_it() {
    each_file_system(64, |kind, path| {
        let opened = open(path, common::config(), 10).unwrap();
        let pool = &opened.pool;
        pool.begin();
        let binding = pool.create(hint(1)).unwrap().binding;
        pool.doubt(binding.locator.leaf()).unwrap();
        pool.closed(&binding);
        pool.close().unwrap();
        assert!(opened.marks.has(&binding.locator), "{kind}");
    });
}
