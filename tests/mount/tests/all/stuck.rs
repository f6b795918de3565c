//! A pool whose file system does not answer stalls what is about its own files, and nothing else.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::run::program;
use ullage_mount_tests::space::Space;

/// Every operation on the pool that answers is done by then.
const PATIENCE: Duration = Duration::from_secs(10);
const FILES: usize = 64;

/// A space with a pool on ext4 and one on an xfs that can be frozen, with files in both.
struct Bed {
    space: Space,
    frozen: PathBuf,
    /// Those of the pool that answers, and of the one that does not.
    lively: Vec<PathBuf>,
    stuck: Vec<PathBuf>,
}

fn bed(flags: &[&str]) -> Bed {
    let mut ground = Ground::new();
    let (disk, frozen) = (ground.ext4("disk", 256), ground.xfs("frozen", 300));
    let mut space = Space::on(ground, &disk);
    space.pools.push(format!("b={}", frozen.join("pool").display()));
    fs::create_dir(frozen.join("pool")).unwrap();
    space.flags = ["--spread", "round-robin"].iter().chain(flags).map(OsString::from).collect();
    space.up();
    fs::create_dir(space.path("new")).unwrap();
    let (mut lively, mut stuck) = (Vec::new(), Vec::new());
    for n in 0..FILES {
        let path = space.path(format!("file-{n}"));
        fs::write(&path, vec![n as u8; 20_000]).unwrap();
        let is_stuck = space.stat(&path)["pool"].as_str() == Some("b");
        if is_stuck { &mut stuck } else { &mut lively }.push(path);
    }
    rustix::fs::sync();
    // Until what was open is closed.
    std::thread::sleep(Duration::from_secs(3));
    Bed { space, frozen, lively, stuck }
}

/// A file system that answers no call that writes, until this is dropped.
struct Frozen<'a>(&'a Path);

impl<'a> Frozen<'a> {
    fn new(at: &'a Path) -> Self {
        program("fsfreeze", ["-f".as_ref(), at.as_os_str()]).ok();
        Self(at)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        let _ = Command::new("fsfreeze").arg("-u").arg(self.0).status();
    }
}

/// Those that this process may use: in a container they need not begin at 0.
fn cpus() -> Vec<usize> {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect()
}

/// Runs a shell command on one CPU; `$1` is the file.
fn on_cpu(cpu: usize, script: &str, file: &Path) -> Child {
    let mut command = Command::new("taskset");
    command.args(["-c", &cpu.to_string(), "sh", "-c", script, "sh"]).arg(file);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[track_caller]
fn comes_to_an_end(child: &mut Child, what: &str) -> ExitStatus {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > until {
            let _ = child.kill();
            panic!("{what} waits for the pool that does not answer");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

const HANGING: [&str; 7] = [
    r#"truncate -s 1 "$1""#,
    r#": > "$1""#,
    r#"echo more >> "$1""#,
    r#"exec 3< "$1"; touch -d 2001-01-01 "$1""#,
    r#"rm "$1""#,
    // The kernel lets nobody else make or remove a name in a directory meanwhile.
    r#"for n in 1 2 3 4; do echo new > "${1%/*}/new/${1##*/}-$n"; done"#,
    r#"exec 3< "$1"; cp "$1" /dev/null; echo more >> "$1"; sync "$1""#,
];

const LIVELY: [&str; 5] = [
    r#"cat "$1""#,
    r#"truncate -s 100 "$1""#,
    r#"echo more >> "$1" && sync "$1""#,
    r#"touch -d 2001-01-01 "$1" && stat "$1""#,
    r#"mv "$1" "$1.moved" && rm "$1.moved""#,
];

/// Every kind of call to the frozen pool, from every CPU, and many of each; then one of each kind to the other, on every CPU.
fn check(flags: &[&str], transport: &str, hanging: usize) {
    let bed = bed(flags);
    let status = ullage_mount_tests::run::ullage(["status".as_ref(), bed.space.mount.as_os_str(), "--json".as_ref()]);
    assert_eq!(status.json()["transport"], transport);
    let cpus = cpus();
    let mut waits = Vec::new();
    {
        let _frozen = Frozen::new(&bed.frozen);
        for (n, file) in bed.stuck.iter().take(hanging).enumerate() {
            waits.push(on_cpu(cpus[n / HANGING.len() % cpus.len()], HANGING[n % HANGING.len()], file));
        }
        std::thread::sleep(Duration::from_millis(500));
        // Their files can be asked for too: that may wait, and nobody else then.
        waits.push(on_cpu(cpus[0], r#"stat "$1""#, &bed.stuck[0]));
        waits.push(on_cpu(cpus[1 % cpus.len()], r#"cat "$1""#, &bed.stuck[1]));
        let mut files = bed.lively.iter();
        for &cpu in cpus.iter().take(bed.lively.len() / LIVELY.len()) {
            for script in LIVELY {
                let file = files.next().unwrap();
                let what = format!("`{script}` on CPU {cpu}");
                let status = comes_to_an_end(&mut on_cpu(cpu, script, file), &what);
                assert!(status.success(), "{what}: {status}");
            }
        }
        assert!(waits.iter_mut().any(|child| child.try_wait().unwrap().is_none()), "nothing hangs: nothing was tested");
    }
    for mut child in waits {
        comes_to_an_end(&mut child, "what waited for the pool, which answers again,");
    }
    bed.space.down_and_check();
}

#[test]
fn a_stuck_pool_stalls_only_its_own_requests() {
    check(&["--transport", "device"], "/dev/fuse", 28);
}

#[test]
fn a_stuck_pool_stalls_only_its_own_requests_below_a_limit() {
    check(&["--transport", "device", "--size", "1G"], "/dev/fuse", 28);
}

#[test]
fn a_stuck_pool_stalls_only_its_own_requests_with_the_crate_fuser() {
    check(&["--transport", "fuser"], "fuser", 28);
}

/// Where the kernel's module has it switched on: a test does not change the machine.
#[test]
fn a_stuck_pool_stalls_only_its_own_requests_over_io_uring() {
    let on = fs::read_to_string("/sys/module/fuse/parameters/enable_uring").is_ok_and(|value| value.trim() == "Y");
    if !on {
        eprintln!("skipped: FUSE over io_uring is switched off");
        return;
    }
    check(&["--transport", "io-uring"], "io_uring", 28);
}
