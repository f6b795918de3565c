//! A stranger's write clears setuid, also where the server never sees it.

use rustix::fs::{AtFlags, CWD, StatxFlags, XattrFlags};
use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::run::{copy_program, program, ullage};
use ullage_mount_tests::space::Space;

pub fn as_nobody(script: &str, name: &Path) -> String {
    let words = ["--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-c", script, "sh"];
    program("setpriv", words.iter().map(|word| (*word).as_ref()).chain([name.as_os_str()])).ok()
}

/// The mode that the kernel has, where it need not ask for anything else.
pub fn mode_alone(name: &Path) -> u32 {
    u32::from(rustix::fs::statx(CWD, name, AtFlags::empty(), StatxFlags::MODE).unwrap().stx_mode) & 0o7777
}

/// `cap_net_raw+ep`.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

pub fn give_capability(name: &Path) {
    rustix::fs::setxattr(name, "security.capability", &CAPABILITY, XattrFlags::empty()).unwrap();
}

pub fn has_capability(name: &Path) -> bool {
    rustix::fs::getxattr(name, "security.capability", &mut [0; 64][..]) == Ok(CAPABILITY.len())
}

/// Spaces whose writes come in every way: the flags of `up`, and a limit.
fn spaces() -> impl Iterator<Item = Space> {
    let ways: [(&[&str], bool); 5] = [
        (&[], false),
        (&[], true),
        (&["--transport", "fuser"], false),
        (&["--transport", "fuser"], true),
        (&["--no-passthrough"], true),
    ];
    ways.into_iter().map(|(flags, limited)| {
        let mut ground = Ground::new();
        let disk = ground.ext4("disk", 256);
        let mut space = Space::on(ground, &disk);
        space.flags = flags.iter().map(Into::into).collect();
        space.up();
        fs::set_permissions(&space.mount, Permissions::from_mode(0o777)).unwrap();
        if limited {
            ullage(["limit".as_ref(), space.mount.as_os_str(), "100M".as_ref()]).ok();
        }
        eprintln!("{flags:?}, limited: {limited}");
        space
    })
}

/// The answer to WRITE says nothing of the mode: the kernel went on with the one it had, and ran what a stranger had written as root.
#[test]
fn a_program_that_a_stranger_wrote_runs_with_no_rights_of_its_owner() {
    for space in spaces() {
        for (n, how) in ["oflag=direct", "oflag=append", "oflag=dsync"].iter().enumerate() {
            let name = space.path(format!("program-{n}"));
            copy_program("/bin/true", &name);
            fs::set_permissions(&name, Permissions::from_mode(0o6777)).unwrap();
            assert_eq!(mode_alone(&name), 0o6777);
            let script = format!("dd if=/usr/bin/id of=\"$1\" {how} bs=64k conv=notrunc status=none; \"$1\" -u");
            // What is appended to a program does not change what it does.
            let user = as_nobody(&script, &name);
            assert_eq!((mode_alone(&name), user.trim()), (0o777, if n == 1 { "" } else { "65534" }), "{how}");
            assert_eq!(fs::metadata(&name).unwrap().mode() & 0o7777, 0o777);
        }
        space.down_and_check();
    }
}

/// They stayed where what is written goes past the page cache.
#[test]
fn whoever_writes_takes_file_capabilities_away() {
    let scripts = [
        "dd if=/bin/true of=\"$1\" oflag=direct conv=notrunc status=none",
        "dd if=/bin/true of=\"$1\" oflag=append conv=notrunc status=none",
        "echo x 1<> \"$1\"",
        "truncate -s 3 \"$1\"",
        "fallocate -l 9999 \"$1\"",
    ];
    for space in spaces() {
        for (n, script) in scripts.iter().enumerate() {
            for mode in [0o666, 0o777] {
                let name = space.path(format!("file-{n}-{mode:o}"));
                fs::write(&name, "content").unwrap();
                fs::set_permissions(&name, Permissions::from_mode(mode)).unwrap();
                give_capability(&name);
                program("sh", ["-c".as_ref(), script.as_ref(), "sh".as_ref(), name.as_os_str()]).ok();
                assert!(!has_capability(&name), "after root's {script} with mode {mode:o}");
                give_capability(&name);
                fs::set_permissions(&name, Permissions::from_mode(mode | 0o6000)).unwrap();
                assert_eq!(mode_alone(&name), mode | 0o6000);
                as_nobody(script, &name);
                assert!(!has_capability(&name), "after a stranger's {script} with mode {mode:o}");
                // Without execution by the group it marks mandatory locking, for its members.
                assert_eq!(mode_alone(&name), mode, "after a stranger's {script}");
            }
        }
        let (from, to) = (space.path("from"), space.path("to"));
        fs::write(&from, "content").unwrap();
        let into = File::create(&to).unwrap();
        give_capability(&to);
        rustix::fs::copy_file_range(File::open(&from).unwrap(), None, &into, None, 7).unwrap();
        assert!(!has_capability(&to), "after copy_file_range");
        drop(into);
        space.down_and_check();
    }
}

/// The kernel asks in the same way for all of it to go and for capabilities alone.
#[test]
fn roots_write_takes_capabilities_away_and_leaves_setuid() {
    for space in spaces() {
        let name = space.path("file");
        fs::write(&name, "content").unwrap();
        let left_by = |change: &dyn Fn()| {
            fs::set_permissions(&name, Permissions::from_mode(0o6777)).unwrap();
            give_capability(&name);
            change();
            (mode_alone(&name), has_capability(&name))
        };
        let append = |capabilities: &str| {
            let words = [capabilities, "sh", "-c", "echo x >> \"$1\"", "sh", name.to_str().unwrap()];
            program("setpriv", words).ok();
        };
        assert_eq!(left_by(&|| append("--bounding-set=+fsetid")), (0o6777, false));
        assert_eq!(left_by(&|| append("--bounding-set=-fsetid")), (0o777, false), "it may not leave them");
        assert_eq!(left_by(&|| chown(&name, None, None).unwrap()), (0o777, false), "a change of owner to the same");
        assert_eq!(left_by(&|| chown(&name, Some(0), None).unwrap()), (0o777, false));
        space.down_and_check();
    }
}

#[test]
fn a_strangers_passthrough_write_clears_setuid_and_setgid() {
    let space = Space::new();
    for (n, script) in [
        "echo x >> \"$1\"",
        "echo x > \"$1\"",
        "truncate -s 3 \"$1\"",
        "echo y | dd of=\"$1\" conv=notrunc status=none",
    ]
    .iter()
    .enumerate()
    {
        let name = space.path(format!("file-{n}"));
        fs::write(&name, "content").unwrap();
        // Opened before, so that the kernel has its attributes.
        let open = OpenOptions::new().read(true).write(true).open(&name).unwrap();
        fs::set_permissions(&name, Permissions::from_mode(0o6777)).unwrap();
        assert_eq!(open.metadata().unwrap().mode() & 0o7777, 0o6777);
        as_nobody(script, &name);
        assert_eq!(fs::metadata(&name).unwrap().mode() & 0o7777, 0o777, "after {script}");
        // Root's own writes leave it.
        fs::set_permissions(&name, Permissions::from_mode(0o4777)).unwrap();
        open.write_all_at(b"root", 0).unwrap();
        assert_eq!(open.metadata().unwrap().mode() & 0o7777, 0o4777);
    }
    space.down_and_check();
}

#[test]
fn a_strangers_write_stays_cleared_over_a_restart() {
    let space = Space::new();
    let name = space.path("file");
    File::create(&name).unwrap();
    fs::set_permissions(&name, Permissions::from_mode(0o6777)).unwrap();
    as_nobody("echo x >> \"$1\"", &name);
    space.down();
    space.up();
    assert_eq!(fs::metadata(&name).unwrap().mode() & 0o7777, 0o777);
    space.down_and_check();
}

/// The server went by groups alone: cp(1), which sets an ACL after the mode, lost what root of a user namespace may keep, and mmdebstrap(1) made systems
/// whose unix_chkpwd(8) was in no group.
#[test]
fn who_may_keep_setgid_keeps_it_when_an_acl_is_set() {
    let space = Space::new();
    fs::set_permissions(&space.mount, Permissions::from_mode(0o755)).unwrap();
    for (capabilities, left) in [("+fsetid", 0o2755), ("-fsetid", 0o755)] {
        let name = space.path(capabilities);
        fs::write(&name, "content").unwrap();
        chown(&name, Some(65534), Some(42)).unwrap();
        fs::set_permissions(&name, Permissions::from_mode(0o2755)).unwrap();
        let user = "--reuid 65534 --regid 65534 --clear-groups --inh-caps".split(' ').chain([capabilities]);
        let words = user.chain(["--ambient-caps", capabilities, "setfacl", "-m", "user:5:r-x"]);
        program("setpriv", words.map(AsRef::as_ref).chain([name.as_os_str()])).ok();
        assert_eq!(mode_alone(&name), left, "{capabilities}");
    }
    space.down_and_check();
}
