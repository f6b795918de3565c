//! `ullage rebuild` from copies that are not all that they seem: of pools without attributes, of a catalog before a name was given,
//! of a clock that was ahead.

use crate::rebuild::{expect, fill, generations, pools, rebuild, two};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::time::Duration;
use ullage_mount_tests::run::{eventually, program};

#[test]
fn pools_that_were_copied_without_attributes_are_rebuilt_whole() {
    let mut space = two();
    fill(&space, 0, 6);
    space.down_and_check();
    for pool in pools(&space) {
        crate::repair::without_attributes(&pool);
    }
    let report = rebuild(&mut space, &[]);
    assert_eq!((&report["adopted"], &report["dropped"]), (&0.into(), &0.into()), "{report}");
    for n in 0..6 {
        expect(&space, n);
    }
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// `rebuild` kept it as one without a name, said nothing, and the next start removed it.
#[test]
fn a_file_that_got_its_name_after_the_newest_copy_of_the_catalog_comes_to_lost_and_found() {
    let mut space = two();
    space.down();
    let settings = space.state.join("space.toml");
    let text = fs::read_to_string(&settings).unwrap();
    fs::write(&settings, text.replace("mirror_seconds = 30", "mirror_seconds = 1")).unwrap();
    space.up();
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let mut unnamed = match rustix::fs::open(&space.mount, flags, Mode::from_raw_mode(0o640)) {
        Ok(fd) => File::from(fd),
        Err(rustix::io::Errno::OPNOTSUPP) => {
            eprintln!("skipped: the transport has no O_TMPFILE");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    unnamed.write_all(b"made in one step").and_then(|()| unnamed.sync_all()).unwrap();
    let mirror = pools(&space)[0].join(".ullage-mirror");
    let count = || generations(&pools(&space)[0], ".tail").len();
    // What is written second from now on was begun after that.
    let before = count();
    let mut names = 0..;
    eventually("the catalog is copied twice", Duration::from_secs(20), || {
        fs::write(space.path(format!("tick-{}", names.next().unwrap_or(0))), "").unwrap();
        count() >= before + 2
    });
    let keep = space.ground.directory("keep").join("mirror");
    program("cp", ["-a".as_ref(), mirror.as_os_str(), keep.as_os_str()]).ok();
    let name = space.path("named");
    let by_fd = format!("/proc/self/fd/{}", unnamed.as_raw_fd());
    rustix::fs::linkat(CWD, by_fd, CWD, &name, AtFlags::SYMLINK_FOLLOW).unwrap();
    File::open(&name).and_then(|file| file.sync_all()).unwrap();
    drop(unnamed);
    space.down_and_check();
    for pool in pools(&space) {
        let mirror = pool.join(".ullage-mirror");
        fs::remove_dir_all(&mirror).unwrap();
        program("cp", ["-a".as_ref(), keep.as_os_str(), mirror.as_os_str()]).ok();
    }
    let report = rebuild(&mut space, &[]);
    assert!(report["adopted"].as_u64().unwrap() >= 1, "{report}");
    let found = fs::read_dir(space.path("lost+found")).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap());
    assert!(found.into_iter().any(|content| content == b"made in one step"));
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// What was copied while a clock was ahead was taken for the newest copy for ever.
#[test]
fn a_copy_that_was_made_while_the_clock_was_ahead_is_not_preferred_for_ever() {
    let mut space = two();
    fill(&space, 0, 2);
    space.down();
    // The same as if the clock had been a thousand hours ahead.
    let later = |name: &str| {
        let (time, rest) = name.split_once('-').unwrap();
        let time = u64::from_str_radix(time, 16).unwrap() + 3_600_000 * 1_000_000_000;
        format!("{time:016x}-{rest}")
    };
    for pool in pools(&space) {
        for path in [generations(&pool, ".snapshot"), generations(&pool, ".tail")].concat() {
            let name = later(path.file_name().unwrap().to_str().unwrap());
            fs::rename(&path, path.with_file_name(name)).unwrap();
        }
    }
    space.up();
    fill(&space, 2, 2);
    space.down_and_check();
    let report = rebuild(&mut space, &[]);
    assert_eq!((&report["adopted"], &report["dropped"]), (&0.into(), &0.into()), "{report}");
    let warnings = report["warnings"].to_string();
    assert!(warnings.contains("a clock was wrong"), "{report}");
    for n in 0..4 {
        expect(&space, n);
    }
    space.down_and_check();
}
