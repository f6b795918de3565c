//! One inode, one mode: whatever ways a file is opened in at once, none fails.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use ullage_mount_tests::run::{copy_program, program};
use ullage_mount_tests::space::Space;

fn open(name: &Path, how: usize) -> File {
    let mut options = OpenOptions::new();
    match how {
        0 => options.read(true),
        1 => options.read(true).write(true),
        2 => options.append(true),
        3 => options.read(true).write(true).custom_flags(libc::O_DIRECT),
        4 => options.read(true).custom_flags(libc::O_DIRECT),
        5 => options.write(true).custom_flags(libc::O_SYNC),
        _ => options.read(true).append(true).custom_flags(libc::O_DSYNC),
    };
    options.open(name).unwrap_or_else(|error| panic!("way {how}: {error}"))
}

#[repr(align(4096))]
struct Page([u8; 4096]);

fn use_it(file: &File, how: usize) {
    let mut page = Box::new(Page([how as u8; 4096]));
    if !matches!(how, 0 | 4) {
        file.write_all_at(&page.0, 0).unwrap_or_else(|error| panic!("writing in way {how}: {error}"));
    }
    if !matches!(how, 2 | 5) {
        file.read_exact_at(&mut page.0, 0).unwrap_or_else(|error| panic!("reading in way {how}: {error}"));
    }
}

fn every_pair(space: &Space) {
    for first in 0..7 {
        for second in 0..7 {
            let name = space.path(format!("file-{first}-{second}"));
            fs::write(&name, [9; 8192]).unwrap();
            let a = open(&name, first);
            let b = open(&name, second);
            use_it(&a, first);
            use_it(&b, second);
            drop(a);
            let again = open(&name, first);
            use_it(&again, first);
            use_it(&b, second);
        }
    }
}

/// open(2) with O_RDONLY|O_TRUNC of a running program failed with ETXTBSY, but the program was empty by then and crashed.
#[test]
fn a_running_program_is_not_truncated() {
    let space = Space::new();
    let program = space.path("program");
    copy_program("/bin/sleep", &program);
    let length = fs::metadata(&program).unwrap().len();
    let mut child = Command::new(&program).arg("20").spawn().unwrap();
    let refused = fs::OpenOptions::new().read(true).custom_flags(libc::O_TRUNC).open(&program).map(drop);
    let runs = child.try_wait().unwrap().is_none();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::ETXTBSY));
    assert_eq!((fs::metadata(&program).unwrap().len(), runs), (length, true));
    let emptied = fs::OpenOptions::new().read(true).custom_flags(libc::O_TRUNC).open(&program).unwrap();
    assert_eq!(emptied.metadata().unwrap().len(), 0);
    drop(emptied);
    space.down_and_check();
}

/// `dd oflag=direct` failed at the last piece of a file whose length is no multiple of a block.
#[test]
fn direct_writes_may_end_with_an_odd_piece() {
    let space = Space::new();
    space.assert_passthrough();
    let source = space.path("source");
    fs::write(&source, vec![7; 70_001]).unwrap();
    for name in ["new", "new", "other"] {
        let out = space.path(name);
        let words = [format!("if={}", source.display()), format!("of={}", out.display())];
        program("dd", words.iter().map(String::as_str).chain(["bs=4k", "oflag=direct"])).ok();
        assert_eq!(fs::read(&out).unwrap(), vec![7; 70_001]);
    }
    space.compare_du(&space.mount);
    space.down_and_check();
}

#[test]
fn every_pair_of_ways_to_open_works_in_passthrough() {
    let space = Space::new();
    every_pair(&space);
    space.compare_du(&space.mount);
    space.down_and_check();
}

#[test]
fn every_pair_of_ways_to_open_works_through_the_server() {
    let mut ground = ullage_mount_tests::ground::Ground::new();
    let disk = ground.ext4("disk", 256);
    let mut space = Space::on(ground, &disk);
    space.flags = vec!["--no-passthrough".into()];
    space.up();
    every_pair(&space);
    space.compare_du(&space.mount);
    space.down_and_check();
}

#[test]
fn a_program_is_run_while_it_is_open_for_reading() {
    let space = Space::new();
    let name = space.path("program");
    copy_program("/bin/cat", &name);
    fs::set_permissions(&name, fs::Permissions::from_mode(0o755)).unwrap();
    let readers: Vec<File> = [0, 4].into_iter().map(|how| open(&name, how)).collect();
    let mut child = Command::new(&name).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // While it runs it is opened again, every way that an executed file can be.
    readers.iter().zip([0, 4]).for_each(|(file, how)| use_it(file, how));
    use_it(&open(&name, 0), 0);
    assert_eq!(
        OpenOptions::new().write(true).open(&name).unwrap_err().raw_os_error(),
        Some(libc::ETXTBSY),
        "an executed file may not be written"
    );
    child.stdin.take().unwrap().write_all(b"through").unwrap();
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(out, "through");
    use_it(&open(&name, 1), 1);
    drop(readers);
    space.down_and_check();
}

#[test]
fn many_threads_open_and_close_one_file_in_all_ways() {
    let space = Space::new();
    let name = space.path("file");
    fs::write(&name, [9; 8192]).unwrap();
    std::thread::scope(|scope| {
        for how in 0..7 {
            let name = &name;
            scope.spawn(move || (0..150).for_each(|_| use_it(&open(name, how), how)));
        }
    });
    space.down_and_check();
}
