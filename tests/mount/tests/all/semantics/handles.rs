//! Handles of files, as servers of NFS give them out: good until the file is gone, whoever forgot it meanwhile.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use ullage_mount_tests::run::eventually;
use ullage_mount_tests::space::Space;
use ullage_mount_tests::{Handle, handle_of, open_handle};

/// Has the kernel forget every file that nobody has open.
fn forget_all() {
    fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
}

fn read(mount: &File, handle: &Handle) -> String {
    let mut text = String::new();
    open_handle(mount, handle, libc::O_RDONLY).unwrap().read_to_string(&mut text).unwrap();
    text
}

fn names(directory: &File) -> Vec<String> {
    let entries = rustix::fs::Dir::read_from(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned());
    let mut names: Vec<_> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    names
}

fn is_gone(mount: &File, handle: &Handle) -> bool {
    open_handle(mount, handle, libc::O_RDONLY).is_err_and(|error| error.raw_os_error() == Some(libc::ESTALE))
}

/// The kernel forgets what nobody has open a moment later.
fn wait_until_gone(mount: &File, handle: &Handle) {
    eventually("the removed file is gone", Duration::from_secs(5), || {
        forget_all();
        is_gone(mount, handle)
    });
}

#[test]
fn a_handle_leads_to_its_file_until_that_is_removed() {
    let space = Space::plain();
    let mount = || File::open(space.path("")).unwrap();
    fs::create_dir_all(space.path("one/two/three")).unwrap();
    fs::write(space.path("one/two/file"), "content").unwrap();
    fs::write(space.path("gone"), "content").unwrap();
    let handle = |name: &str| handle_of(&space.path(name)).unwrap();
    let (file, directory, gone) = (handle("one/two/file"), handle("one/two"), handle("gone"));
    let number = fs::metadata(space.path("one/two/file")).unwrap().ino();
    let at = mount();
    assert_eq!(read(&at, &file), "content");

    // It stays the same file under another name, in another directory, and when nobody knows it any more.
    fs::rename(space.path("one/two"), space.path("moved")).unwrap();
    fs::rename(space.path("moved/file"), space.path("moved/three/other")).unwrap();
    fs::remove_dir(space.path("one")).unwrap();
    for _ in 0..2 {
        forget_all();
        assert_eq!(read(&at, &file), "content");
        let found = open_handle(&at, &file, libc::O_RDWR).unwrap();
        assert_eq!(found.metadata().unwrap().ino(), number);
        forget_all();
        let directory = open_handle(&at, &directory, libc::O_RDONLY | libc::O_DIRECTORY).unwrap();
        assert_eq!(names(&directory), ["three"]);
        let path = fs::read_link(Path::new("/proc/self/fd").join(fd(&directory).to_string())).unwrap();
        assert_eq!(path, space.path("moved"), "the kernel finds out where a directory is");
    }

    // What is removed stays open for who has it, and cannot be found again.
    let open = open_handle(&at, &gone, libc::O_RDWR).unwrap();
    fs::remove_file(space.path("gone")).unwrap();
    (&open).write_all(b"changed").unwrap();
    drop(open);
    wait_until_gone(&at, &gone);
    drop(at);

    // The server may start anew meanwhile.
    space.down();
    space.up();
    let at = mount();
    assert_eq!(read(&at, &file), "content");
    assert!(is_gone(&at, &gone));
    fs::remove_dir_all(space.path("moved")).unwrap();
    for handle in [&file, &directory] {
        wait_until_gone(&at, handle);
    }
    drop(at);
    space.down_and_check();
}

fn fd(file: &File) -> i32 {
    std::os::fd::AsRawFd::as_raw_fd(file)
}
