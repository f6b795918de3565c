//! A pool whose disk stops answering while it is in use stalls who needs that disk, and nobody else.

use crate::stuck::{are_answered, cpus, on_cpu, uring_is_on};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use ullage_mount_tests::crash::cache::CachingDisk;
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::run::{eventually, program, ullage};
use ullage_mount_tests::space::Space;

const FILES: usize = 64;

/// Files below a directory that are in the pool on this disk, or not.
fn in_pool<'a>(space: &'a Space, directory: &'a str, on_disk: bool) -> impl Iterator<Item = PathBuf> + 'a {
    let entries = fs::read_dir(space.path(directory)).unwrap().flatten().map(|entry| entry.path());
    entries.filter(move |path| (space.stat(path)["pool"].as_str() == Some("b")) == on_disk)
}

/// Opens a file whose pool has it in memory, without a pause, on one CPU: what was answered a moment ago is called by who answers.
fn keep_opening(file: &Path, cpu: usize, over: &AtomicBool) {
    let mut one = rustix::thread::CpuSet::new();
    one.set(cpu);
    rustix::thread::sched_setaffinity(None, &one).unwrap();
    while !over.load(Relaxed) {
        let mut byte = [0];
        File::open(file).and_then(|mut file| file.read_exact(&mut byte)).unwrap();
    }
}

fn check(flags: &[&str], transport: &str) {
    let mut ground = Ground::new();
    let plain = ground.ext4("plain", 256);
    let image = ground.image("outer", 1024, "mkfs.xfs", &["-q", "-m", "reflink=1"], "loop").join("image");
    File::create(&image).and_then(|file| file.set_len(256 << 20)).unwrap();
    program("mkfs.ext4", ["-q", "-F", image.to_str().unwrap()]).ok();
    let disk = CachingDisk::new(&mut ground, &image);
    let point = ground.mount_image("disk", disk.device());
    let mut space = Space::on(ground, &plain);
    fs::create_dir(point.join("pool")).unwrap();
    space.pools.push(format!("b={}", point.join("pool").display()));
    space.flags = ["--spread", "round-robin"].iter().chain(flags).map(Into::into).collect();
    space.up();
    for directory in ["warm", "cold", "lively"] {
        fs::create_dir(space.path(directory)).unwrap();
        let script = format!("for n in $(seq {FILES}); do echo $n > $1/$n; done");
        program("sh", ["-c".as_ref(), script.as_ref(), "sh".as_ref(), space.path(directory).as_os_str()]).ok();
    }
    let warm: Vec<PathBuf> = in_pool(&space, "warm", true).collect();
    let cold: Vec<PathBuf> = in_pool(&space, "cold", true).collect();
    let lively: Vec<PathBuf> = in_pool(&space, "lively", false).collect();
    space.down();
    // Nothing of it is in memory then, and of what is read later nothing else comes in with it.
    program("umount", [&point]).ok();
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    let options = "loop,inode_readahead_blks=0";
    program("mount", ["-o".as_ref(), options.as_ref(), disk.device().as_os_str(), point.as_os_str()]).ok();
    space.up();
    let status = ullage(["status".as_ref(), space.mount.as_os_str(), "--json".as_ref()]);
    assert_eq!(status.json()["transport"], transport);

    let over = AtomicBool::new(false);
    let mut waits: Vec<Child> = Vec::new();
    std::thread::scope(|scope| {
        for (cpu, file) in cpus().into_iter().take(8).zip(&warm) {
            let over = &over;
            fs::read(file).unwrap();
            scope.spawn(move || keep_opening(file, cpu, over));
        }
        std::thread::sleep(Duration::from_millis(100));
        let hanging = disk.hang();
        waits.extend(cpus().into_iter().take(8).zip(&cold).map(|(cpu, file)| on_cpu(cpu, r#"cat "$1""#, file)));
        std::thread::sleep(Duration::from_millis(100));
        let answered = std::panic::catch_unwind(|| are_answered(&lively));
        assert!(waits.iter_mut().all(|child| child.try_wait().unwrap().is_none()), "who needs the disk waits for it");
        over.store(true, Relaxed);
        drop(hanging);
        if let Err(panic) = answered {
            std::panic::resume_unwind(panic);
        }
    });
    for mut child in waits {
        eventually("what waited for the disk goes on", Duration::from_secs(10), || child.try_wait().unwrap().is_some());
    }
    space.down_and_check();
}

#[test]
fn a_disk_that_hangs_as_files_are_opened_stalls_only_who_needs_it() {
    check(&["--transport", "device"], "/dev/fuse");
}

/// The thread of a CPU's queue opened the file itself, as the pool had answered a moment ago, and all requests of that CPU waited for the disk.
#[test]
fn a_disk_that_hangs_as_files_are_opened_stalls_only_who_needs_it_over_io_uring() {
    if uring_is_on() {
        check(&["--transport", "io-uring"], "io_uring");
    }
}
