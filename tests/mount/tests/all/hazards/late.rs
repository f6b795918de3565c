//! Answers that the kernel takes late, and listings that it takes for complete.

use rustix::fs::{RawDir, XattrFlags};
use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::mem::MaybeUninit;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use ullage_mount_tests::space::Space;

/// So many of the kernel's pages: more than one call brings.
const PAGES: i64 = 32;
/// Entries with short names in each.
const ENTRIES: i64 = 4096 / 32;

/// Regression: where the kernel's copy of a listing fills its last page, it took a position that it did not find for the end, and who had begun
/// to list the directory before a change missed the rest.
#[test]
fn who_lists_a_directory_while_it_changes_and_others_list_it_misses_nothing() {
    let space = Space::plain();
    for beside in [0, 1, -1] {
        let directory = space.path(format!("d{beside}"));
        fs::create_dir(&directory).unwrap();
        // With the two that each directory has.
        let count = PAGES * ENTRIES - 2 + beside;
        let name = |at: i64| format!("f{at:05}");
        for at in 0..count {
            File::create(directory.join(name(at))).unwrap();
        }
        fs::read_dir(&directory).unwrap().for_each(drop);
        let mut listing =
            fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut met: BTreeSet<String> = listing.next().into_iter().collect();
        fs::remove_file(directory.join(name(count - 1))).unwrap();
        File::create(directory.join("new")).unwrap();
        assert_eq!(fs::read_dir(&directory).unwrap().count() as i64, count);
        met.extend(listing);
        let missed = (0..count - 1).filter(|at| !met.contains(&name(*at))).count();
        assert_eq!(missed, 0, "of {count}");
    }
    space.down_and_check();
}

/// What looks at a path all the time, until it is told to end.
fn while_looked_at(path: &Path, look: impl Fn(&Path) + Sync, change: impl FnOnce()) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    look(path);
                }
            });
        }
        change();
        over.store(true, Relaxed);
    });
}

/// The access ACL that says what these permission bits say.
fn set_acl(path: &Path, mode: u32) {
    let entry =
        |tag: u16, bits: u32| [tag.to_le_bytes(), (bits as u16 & 7).to_le_bytes(), [0xff; 2], [0xff; 2]].concat();
    let acl = [2u32.to_le_bytes().to_vec(), entry(1, mode >> 6), entry(4, mode >> 3), entry(32, mode)].concat();
    rustix::fs::setxattr(path, "system.posix_acl_access", &acl, XattrFlags::empty()).unwrap();
}

/// Regression: who looked at a file at that moment had the kernel go on with what the file had allowed before.
#[test]
fn what_an_acl_takes_away_is_taken_away_also_while_others_look_at_the_file() {
    let space = Space::plain();
    let path = space.path("file");
    fs::write(&path, "").unwrap();
    let look = |path: &Path| drop(fs::metadata(path));
    for round in 0..400 {
        while_looked_at(&path, look, || [0o666, 0o664, 0o600].into_iter().for_each(|mode| set_acl(&path, mode)));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600, "round {round}");
    }
    space.down_and_check();
}

/// Regression: who listed the directory above, or looked the directory up, as something was made in it had the kernel keep what it had been
/// like before.
#[test]
fn what_a_directory_is_like_is_known_after_it_changed_while_it_was_listed_from_above() {
    let space = Space::plain();
    let above = space.path("above");
    let directories: Vec<_> = (0..100).map(|at| above.join(at.to_string())).collect();
    fs::create_dir(&above).unwrap();
    for directory in &directories {
        fs::create_dir(directory).unwrap();
    }
    let look = |above: &Path| {
        for entry in fs::read_dir(above).unwrap().flatten() {
            let _ = fs::metadata(entry.path());
        }
    };
    for round in 0..60 {
        let more = |at: usize| above.join(format!("more{at}"));
        while_looked_at(&above, look, || {
            for (at, directory) in directories.iter().enumerate() {
                fs::create_dir(directory.join("within")).unwrap();
                if at % 10 == 0 {
                    fs::create_dir(more(at)).unwrap();
                }
            }
        });
        for directory in &directories {
            assert_eq!(fs::metadata(directory).unwrap().nlink(), 3, "round {round}, {}", directory.display());
            fs::remove_dir(directory.join("within")).unwrap();
        }
        (0..directories.len()).step_by(10).for_each(|at| fs::remove_dir(more(at)).unwrap());
    }
    space.down_and_check();
}

/// Regression: the same of who asked for the time of its birth, as stat(1) and `metadata` do, while it was made or had just been listed; and of an
/// attribute of a directory.
#[test]
fn what_a_directory_is_like_is_known_after_it_changed_while_others_asked_for_all_there_is_to_know() {
    let space = Space::plain();
    let look = |path: &Path| drop(fs::metadata(path));
    for round in 0..500 {
        let directory = space.path(format!("d{round}"));
        fs::create_dir(&directory).unwrap();
        while_looked_at(&directory, look, || {
            (0..3).for_each(|at| fs::create_dir(directory.join(at.to_string())).unwrap());
        });
        assert_eq!(rustix::fs::stat(&directory).unwrap().st_nlink, 5, "round {round}");
        while_looked_at(
            &directory,
            |path| {
                let _ = rustix::fs::stat(path);
            },
            || {
                for at in 0..3u8 {
                    rustix::fs::setxattr(&directory, "user.round", &[at], XattrFlags::empty()).unwrap();
                }
            },
        );
        let known = rustix::fs::stat(&directory).unwrap();
        let asked = fs::metadata(&directory).unwrap();
        assert_eq!((known.st_ctime, known.st_ctime_nsec as i64), (asked.ctime(), asked.ctime_nsec()), "round {round}");
    }
    space.down_and_check();
}

/// Regression: what somebody had been given who stopped listing half-way was taken for the beginning of what others listed after a change.
#[test]
fn who_lists_a_directory_meets_no_name_that_was_gone_and_misses_none_where_others_stopped_half_way() {
    let space = Space::plain();
    let directory = space.path("d");
    fs::create_dir(&directory).unwrap();
    let name = |at: usize| format!("f{at:05}");
    (0..3000).for_each(|at| drop(File::create(directory.join(name(at))).unwrap()));
    let mut stopped = fs::read_dir(&directory).unwrap();
    stopped.next();
    fs::rename(directory.join(name(150)), directory.join("renamed")).unwrap();
    fs::remove_file(directory.join(name(160))).unwrap();
    // Who begins now has not come that far when others list all of it.
    let (file, mut buffer) = (File::open(&directory).unwrap(), [const { MaybeUninit::uninit() }; 4096]);
    let mut begun = RawDir::new(&file, &mut buffer);
    let mut met = Vec::new();
    while let Some(entry) = begun.next() {
        met.push(entry.unwrap().file_name().to_str().unwrap().to_owned());
        if met.len() == 1 {
            assert_eq!(fs::read_dir(&directory).unwrap().count(), 2999);
        }
    }
    let times = |name: &str| met.iter().filter(|met| *met == name).count();
    // With the two that each directory has.
    assert_eq!((times("renamed"), times(&name(150)), times(&name(160)), met.len()), (1, 0, 0, 3001));
    drop((stopped, file));
    space.down_and_check();
}

/// Regression: the same of the time of a file's change, where it got another name, or an attribute.
#[test]
fn when_a_file_changed_is_known_after_it_was_renamed_while_others_looked_at_it() {
    let space = Space::plain();
    let (path, other) = (space.path("file"), space.path("other"));
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let open = File::open(&path).unwrap();
    let look = |_: &Path| drop(open.metadata());
    for round in 0..300 {
        while_looked_at(&path, look, || {
            fs::rename(&path, &other).unwrap();
            rustix::fs::setxattr(&other, "user.round", round.to_string().as_bytes(), XattrFlags::empty()).unwrap();
            fs::rename(&other, &path).unwrap();
        });
        let known = open.metadata().unwrap();
        let asked = rustix::fs::statx(
            &open,
            "",
            rustix::fs::AtFlags::EMPTY_PATH | rustix::fs::AtFlags::STATX_FORCE_SYNC,
            rustix::fs::StatxFlags::CTIME,
        )
        .unwrap();
        assert_eq!(
            (known.ctime(), known.ctime_nsec()),
            (asked.stx_ctime.tv_sec, i64::from(asked.stx_ctime.tv_nsec)),
            "round {round}"
        );
    }
    drop(open);
    space.down_and_check();
}
