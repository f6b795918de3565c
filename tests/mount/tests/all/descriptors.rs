//! What bounds the daemon where it was started: descriptors, and the length of a file.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;
use ullage_mount_tests::binary;
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::run::{program, run};
use ullage_mount_tests::space::Space;

/// Few enough for a test, and a daemon that cannot give itself more.
const DESCRIPTORS: &str = "--nofile=500:500";
/// Enough for the catalog, and less than users write: what a daemon may raise itself, and what it may not.
const LENGTH: &str = "--fsize=67108864:";
const HARD_LENGTH: &str = "--fsize=67108864:67108864";
const LONGER: u64 = 80 << 20;

fn space_below(limit: &str, options: &[&str]) -> Space {
    let mut ground = Ground::new();
    let disk = ground.ext4("disk", 256);
    let space = Space::on(ground, &disk);
    run(Command::new("setpriv")
        .args(["--bounding-set=-sys_resource", "prlimit", limit])
        .arg(binary::path())
        .args([
            "up".as_ref(),
            space.mount.as_os_str(),
            "--state".as_ref(),
            space.state.as_os_str(),
            "--pool".as_ref(),
            space.pools[0].as_ref(),
        ])
        .args(options))
    .ok();
    space
}

/// Regression: a lock that a script had taken around `up` stayed until `down`; and the daemon belonged to the script's session.
#[test]
fn nothing_that_its_caller_has_open_stays_open_in_the_daemon_which_has_a_session_of_its_own() {
    let ground = Ground::new();
    let disk = ground.directory("disk");
    let (lock, space) = (disk.join("lock"), Space::on(ground, &disk));
    let script = "exec 9>\"$1\" && flock 9 && shift && exec \"$@\"";
    run(Command::new("sh").args(["-c", script, "sh"]).arg(&lock).arg(binary::path()).args(space.up_arguments())).ok();
    program("flock", ["-n".as_ref(), lock.as_os_str(), "true".as_ref()]).ok();
    let pid = space.pid().to_string();
    assert_eq!(program("ps", ["-o", "sid=", "-p", &pid]).ok().trim(), pid);
    space.down_and_check();
}

/// An administrator whose shell bounds files (`ulimit -f`) bounded everybody in the space, and the first who grew one beyond that ended it.
#[test]
fn who_started_the_space_bounds_nobodys_files() {
    for options in [&[][..], &["--no-passthrough"]] {
        let space = space_below(LENGTH, options);
        let file = File::create(space.path("long")).unwrap();
        file.set_len(LONGER).unwrap();
        file.write_all_at(b"end", LONGER).unwrap();
        drop(file);
        space.down_and_check();
    }
}

#[test]
fn a_file_longer_than_the_daemon_may_write_is_refused_and_the_space_goes_on() {
    let space = space_below(HARD_LENGTH, &["--no-passthrough"]);
    let file = File::create(space.path("long")).unwrap();
    for refused in [file.set_len(LONGER), file.write_all_at(b"end", LONGER)] {
        assert_eq!(refused.expect_err("it is too long").raw_os_error(), Some(libc::EFBIG));
    }
    file.write_all_at(b"start", 0).unwrap();
    drop(file);
    assert_eq!(fs::read_to_string(space.path("long")).unwrap(), "start");
    space.down_and_check();
}

/// Found by a program that opened 20,000 files: the catalog's engine was refused a descriptor too, gave up, and the space was
/// read-only until it was mounted again.
#[test]
fn users_who_open_too_many_files_are_refused_and_the_catalog_goes_on() {
    let space = space_below(DESCRIPTORS, &[]);
    fs::create_dir(space.path("many")).unwrap();
    let mut open = Vec::new();
    let refused = (0..600).find_map(|n| match File::create(space.path(format!("many/{n}"))) {
        Ok(file) => {
            open.push(file);
            None
        }
        Err(error) => Some(error),
    });
    assert_eq!(refused.expect("more files are open than there are descriptors").raw_os_error(), Some(libc::ENFILE));
    assert!(open.len() > 200, "only {} files could be opened", open.len());
    assert!(space.log().contains("LimitNOFILE="), "nothing says why: {}", space.log());
    // Enough for the engine to write out what it holds, more than once.
    for n in 0..20_000 {
        fs::create_dir(space.path(format!("many/d{n}"))).unwrap();
    }
    space.sync();
    for (n, file) in open.iter().enumerate() {
        std::io::Write::write_all(&mut &*file, format!("{n}").as_bytes()).unwrap();
    }
    drop(open);
    assert_eq!(fs::read_to_string(space.path("many/7")).unwrap(), "7");
    fs::write(space.path("after"), "all is well").unwrap();
    space.down_and_check();
}

/// Regression: while one thread closed the files that were out of use, others found none left to close and were refused,
/// although nobody had more than one file open.
#[test]
fn files_that_are_closed_again_count_for_nobody() {
    let space = space_below(DESCRIPTORS, &[]);
    std::thread::scope(|scope| {
        for user in 0..4 {
            let dir = space.path(format!("user-{user}"));
            scope.spawn(move || {
                fs::create_dir(&dir).unwrap();
                for n in 0..2500 {
                    drop(File::create(dir.join(format!("{n}"))).unwrap_or_else(|error| panic!("file {n}: {error}")));
                }
                for n in 0..2500 {
                    drop(
                        File::open(dir.join(format!("{n}"))).unwrap_or_else(|error| panic!("file {n} again: {error}")),
                    );
                }
            });
        }
    });
    space.down_and_check();
}

/// To close a file out of use takes another descriptor of it, and there was none: nothing was closed, and opens failed beside hundreds
/// of such files.
#[test]
fn files_out_of_use_are_closed_for_others_when_no_descriptor_is_left() {
    let space = space_below(DESCRIPTORS, &[]);
    let path = |name: &str, n: u32| space.path(format!("{name}{n}"));
    (0..200).for_each(|n| fs::write(path("other", n), "content").unwrap());
    std::thread::sleep(std::time::Duration::from_secs(4));
    (0..250).for_each(|n| fs::write(path("used", n), "content").unwrap());
    let open: Vec<_> = (0..200).map(|n| File::open(path("other", n)).unwrap()).collect();
    drop(open);
    space.down_and_check();
}

/// Where something is held for the map of a file until the disk has it, the file stays open for that.
#[test]
fn files_that_are_closed_again_below_a_limit_count_for_nobody() {
    let space = space_below(DESCRIPTORS, &["--size", "200M"]);
    let data = vec![1; 40 << 10];
    for n in 0..1500 {
        let path = space.path(format!("{n}"));
        fs::write(&path, &data).unwrap_or_else(|error| panic!("file {n}: {error}"));
    }
    space.compare_du(&space.mount);
    space.down_and_check();
}
