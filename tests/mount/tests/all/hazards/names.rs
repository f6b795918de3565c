//! Names that the kernel remembers, also those that are not there.

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use ullage_mount_tests::run::program;
use ullage_mount_tests::space::Space;

#[test]
fn a_name_that_was_looked_up_before_it_existed_is_seen_when_another_makes_it() {
    let space = Space::new();
    fs::create_dir(space.path("dir")).unwrap();
    let makers: [(&str, &str); 6] = [
        ("file", "echo x > \"$1\""),
        ("directory", "mkdir \"$1\""),
        ("symlink", "ln -s /etc/passwd \"$1\""),
        ("link", "touch \"$1.first\" && ln \"$1.first\" \"$1\""),
        ("renamed", "touch \"$1.first\" && mv \"$1.first\" \"$1\""),
        ("fifo", "mkfifo \"$1\""),
    ];
    for (name, script) in makers {
        let path = space.path("dir").join(name);
        for _ in 0..3 {
            assert!(path.symlink_metadata().is_err());
            assert!(File::open(&path).is_err());
        }
        program("sh", ["-c".as_ref(), script.as_ref(), "sh".as_ref(), path.as_os_str()]).ok();
        assert!(path.symlink_metadata().is_ok(), "{name} is not seen");
        let listed = fs::read_dir(space.path("dir")).unwrap().any(|entry| entry.unwrap().file_name() == name);
        assert!(listed, "{name} is not listed");
        program("rm", ["-rf".as_ref(), path.as_os_str()]).ok();
        assert!(path.symlink_metadata().is_err(), "{name} is still seen");
    }
    space.down_and_check();
}

#[test]
fn a_nameless_file_gets_a_name_by_linkat() {
    let space = Space::new();
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let fd = match rustix::fs::open(&space.mount, flags, Mode::from_raw_mode(0o640)) {
        Ok(fd) => fd,
        Err(rustix::io::Errno::OPNOTSUPP) => {
            eprintln!("skipped: the transport has no O_TMPFILE");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let mut file = File::from(fd);
    file.write_all(b"first without a name").unwrap();
    assert_eq!(fs::read_dir(&space.mount).unwrap().count(), 0);
    let by_fd = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    rustix::fs::linkat(CWD, by_fd, CWD, space.path("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
    assert_eq!(fs::read(space.path("named")).unwrap(), b"first without a name");
    file.write_all(b", then with one").unwrap();
    file.sync_all().unwrap();
    File::open(&space.mount).unwrap().sync_all().unwrap();
    // One more that never gets a name: gone with its descriptor.
    let nameless = rustix::fs::open(&space.mount, flags, Mode::from_raw_mode(0o600)).unwrap();
    rustix::io::write(&nameless, &[1; 4096]).unwrap();
    space.kill();
    drop(nameless);
    space.up();
    assert_eq!(fs::read(space.path("named")).unwrap(), b"first without a name, then with one");
    drop(file);
    space.compare_du(&space.mount);
    space.down_and_check();
}

#[test]
fn an_unlinked_name_made_anew_is_another_file() {
    let space = Space::new();
    let name = space.path("file");
    let mut old = fs::OpenOptions::new().read(true).write(true).create_new(true).open(&name).unwrap();
    old.write_all(b"old").unwrap();
    fs::remove_file(&name).unwrap();
    fs::write(&name, "new").unwrap();
    old.write_all(b"er").unwrap();
    let mut content = String::new();
    old.rewind().unwrap();
    old.read_to_string(&mut content).unwrap();
    assert_eq!(content, "older");
    assert_eq!(fs::read(&name).unwrap(), b"new");
    drop(old);
    space.down_and_check();
}
