//! Who lists a directory into memory that does not come: mapped from a file system that does not answer. The kernel holds its copy of the listing for him.

use crate::stuck::{Frozen, LIVELY, are_answered, assert_transport, comes_to_an_end, cpus, on_cpu, uring_is_on};
use rustix::fs::{RawDir, SeekFrom, seek};
use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::map::Map;
use ullage_mount_tests::run::eventually;
use ullage_mount_tests::space::Space;
use ullage_mount_tests::{Lister, list_into};

/// More than there are threads that answer the kernel, with those that take the place of held ones.
const LISTINGS: usize = 14;
const PATIENCE: Duration = Duration::from_secs(10);
/// Names of 40 letters take 64 bytes in the kernel's copy: with `.` and `..` so many fill a page of it.
const PAGE: usize = 4096 / 64 - 1;
const FILES: usize = 7 * PAGE;

fn name(at: usize) -> String {
    format!("{at:040}")
}

struct Bed {
    space: Space,
    frozen: PathBuf,
    directory: PathBuf,
    others: Vec<PathBuf>,
}

/// A space with a directory that the kernel has listed, and what else is asked for.
fn bed(transport: [&str; 2]) -> Bed {
    let mut ground = Ground::new();
    let (disk, frozen) = (ground.directory("disk"), ground.ext4("frozen", 64));
    let mut space = Space::on(ground, &disk);
    space.flags = ["--transport", transport[0]].map(Into::into).to_vec();
    space.up();
    assert_transport(&space, transport[1]);
    let directory = space.path("directory");
    fs::create_dir(&directory).unwrap();
    for at in 0..FILES {
        File::create(directory.join(name(at))).unwrap();
    }
    let others: Vec<_> = (0..LIVELY.len() * cpus().len()).map(|n| space.path(n.to_string())).collect();
    for other in &others {
        fs::write(other, "other").unwrap();
    }
    assert_eq!(fs::read_dir(&directory).unwrap().count(), FILES);
    Bed { space, frozen, directory, others }
}

/// Memory that does not come while this file system is frozen.
fn memory(frozen: &Path) -> Map {
    let path = frozen.join("memory");
    fs::write(&path, [0; 4096]).unwrap();
    Map::new(&File::options().read(true).write(true).open(path).unwrap(), 4096).unwrap()
}

/// A directory of which so many entries, or a few more, were read.
fn read(directory: &Path, entries: usize) -> File {
    let directory = File::open(directory).unwrap();
    let mut buffer = [MaybeUninit::uninit(); 640];
    let mut listing = RawDir::new(&directory, &mut buffer);
    let mut met = 0;
    while met < entries || !listing.is_buffer_empty() {
        listing.next().unwrap().unwrap();
        met += 1;
    }
    directory
}

/// A process that reads on into that memory, and stands still with it.
fn read_on(directory: &File, memory: &Map) -> Lister {
    let lister = list_into(directory, memory).unwrap();
    eventually("who reads on stands still", PATIENCE, || lister.is_stuck());
    lister
}

fn list(directory: &Path) -> Child {
    on_cpu(cpus()[0], r#"ls -f "$1""#, directory)
}

fn remove(directory: &Path, files: std::ops::Range<usize>) {
    files.for_each(|at| fs::remove_file(directory.join(name(at))).unwrap());
}

fn end(bed: &Bed, lister: Lister, left: usize) {
    lister.wait();
    assert_eq!(fs::read_dir(&bed.directory).unwrap().count(), left);
    bed.space.down_and_check();
}

/// Somebody stands still with a page of a listing that is over, and others list what is left: that fills a page, so that the kernel is to drop it.
fn check_old_page(transport: [&str; 2]) {
    let bed = bed(transport);
    let (memory, reader) = (memory(&bed.frozen), read(&bed.directory, PAGE + 20));
    remove(&bed.directory, PAGE..FILES);
    let (lister, mut listings);
    {
        let _frozen = Frozen::new(&bed.frozen);
        lister = read_on(&reader, &memory);
        listings = [(); LISTINGS].map(|()| list(&bed.directory));
        std::thread::sleep(Duration::from_millis(300));
        are_answered(&LIVELY, &bed.others);
    }
    for child in &mut listings {
        comes_to_an_end(child, "a listing");
    }
    drop(reader);
    end(&bed, lister, PAGE);
}

/// Somebody stands still with the first page, and others come to the end of listings that never were the kernel's copy.
fn check_first_page(transport: [&str; 2]) {
    let bed = bed(transport);
    let (memory, reader) = (memory(&bed.frozen), read(&bed.directory, 10));
    remove(&bed.directory, FILES - 1..FILES);
    let (lister, mut first, ends);
    {
        let _frozen = Frozen::new(&bed.frozen);
        lister = read_on(&reader, &memory);
        // The kernel sees that its copy is old, begins another one, and waits for its first page.
        first = list(&bed.directory);
        std::thread::sleep(Duration::from_millis(300));
        ends = [(); LISTINGS].map(|()| {
            let directory = File::open(&bed.directory).unwrap();
            let to_the_end = move || {
                seek(&directory, SeekFrom::Start(1 << 40)).unwrap();
                assert!(RawDir::new(&directory, &mut [MaybeUninit::uninit(); 640]).next().is_none());
            };
            std::thread::spawn(to_the_end)
        });
        std::thread::sleep(Duration::from_millis(300));
        are_answered(&LIVELY, &bed.others);
        assert!(first.try_wait().unwrap().is_none(), "it does not wait: nothing was tested");
        eventually("no more than one waits", PATIENCE, || {
            ends.iter().filter(|thread| !thread.is_finished()).count() <= 1
        });
    }
    comes_to_an_end(&mut first, "a listing");
    for thread in ends {
        thread.join().unwrap();
    }
    drop(reader);
    end(&bed, lister, FILES - 1);
}

/// Regression: at the end of a listing that fills its last page the kernel was told to drop all its copy, by a thread that answers it, which
/// waited for whoever read another page of that.
#[test]
fn who_reads_a_listing_into_memory_that_does_not_come_stalls_only_who_lists_that_directory() {
    check_old_page(["device", "/dev/fuse"]);
}

/// Regression: the same with another transport.
#[test]
fn who_reads_a_listing_into_memory_that_does_not_come_stalls_only_who_lists_that_directory_with_the_crate_fuser() {
    check_old_page(["fuser", "fuser"]);
}

/// Regression: so did each end of a listing that nobody follows, as from a position that a program makes up.
#[test]
fn who_reads_the_beginning_of_a_listing_into_memory_that_does_not_come_holds_one_thread_at_most() {
    check_first_page(["device", "/dev/fuse"]);
}

/// Regression: the same with another transport.
#[test]
fn who_reads_the_beginning_of_a_listing_into_memory_that_does_not_come_holds_one_thread_at_most_with_the_crate_fuser() {
    check_first_page(["fuser", "fuser"]);
}

/// Regression: each held a peer or a worker.
#[test]
fn who_reads_the_beginning_of_a_listing_into_memory_that_does_not_come_holds_one_thread_at_most_over_io_uring() {
    if uring_is_on() {
        check_first_page(["io-uring", "io_uring"]);
    }
}
