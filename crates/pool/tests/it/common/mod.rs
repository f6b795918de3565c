//! What the tests of pools share: numbers, marks that can be looked at, and real file systems.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use ullage_pool::{DirPool, Error, Hint, Marks, Numbers, PoolConfig, Uuid};
use ullage_types::{FileId, Generation};

pub const SPACE: Uuid = Uuid([7; 16]);

/// Numbers from a counter.
pub struct Counter(AtomicU64);

impl Counter {
    pub fn from(first: u64) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(first)))
    }
}

impl Numbers for Counter {
    fn next(&self) -> (FileId, Generation) {
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        (FileId(number), Generation(number + 1_000_000))
    }
}

/// Marks in memory.
#[derive(Default)]
pub struct Marked {
    pub set: Mutex<BTreeSet<Vec<u8>>>,
    /// How often any were set.
    pub flushes: AtomicU64,
    /// How long that takes.
    pub flush_ms: AtomicU64,
}

impl Marked {
    pub fn has(&self, locator: &ullage_pool::Locator) -> bool {
        let cut = locator.0.iter().rposition(|b| *b == b'/').unwrap();
        self.set.lock().unwrap().contains(&locator.0[..cut])
    }
}

impl Marks for Marked {
    fn mark(&self, leaves: &[&[u8]]) -> Result<(), Error> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(self.flush_ms.load(Ordering::Relaxed)));
        self.set.lock().unwrap().extend(leaves.iter().map(|leaf| leaf.to_vec()));
        Ok(())
    }

    fn clear(&self, leaf: &[u8]) {
        self.set.lock().unwrap().remove(leaf);
    }
}

pub fn config() -> PoolConfig {
    PoolConfig { quarantine_retry: Duration::from_millis(200), ..PoolConfig::new(SPACE, None) }
}

pub struct Opened {
    pub pool: DirPool,
    pub marks: Arc<Marked>,
}

pub fn open(path: &Path, config: PoolConfig, first: u64) -> Result<Opened, Error> {
    let marks = Arc::new(Marked::default());
    let pool = DirPool::open(path, config, Counter::from(first), Arc::clone(&marks) as _)?;
    Ok(Opened { pool, marks })
}

pub fn hint(parent: u64) -> Hint {
    Hint { parent: FileId(parent), pid: 1 }
}

/// Waits until it is so; fails after ten seconds.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < Duration::from_secs(10), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// All regular files below a directory, relative to it. Not notes of marks; nor those in quarantine: a process that another test is just
/// starting may hold any file for a moment.
pub fn files(root: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut todo = vec![root.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                if entry.file_name() == "quarantine" || entry.file_name() == ".marks" {
                    continue;
                }
                todo.push(entry.path());
            } else if entry.file_name() != ".ullage-pool.toml" {
                found.insert(entry.path().strip_prefix(root).unwrap().to_owned());
            }
        }
    }
    found
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A mounted file system of its own, unmounted when dropped.
pub struct Mounted {
    dir: tempfile::TempDir,
}

impl Mounted {
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    /// Has the kernel forget all it knows of what is there: nobody may have anything open.
    pub fn forget(&self) {
        let (path, image) = (self.path(), self.dir.path().join("image"));
        Self::run("umount", &[path.to_str().unwrap()]);
        Self::run("mount", &["-o", "loop", image.to_str().unwrap(), path.to_str().unwrap()]);
    }

    pub fn run(program: &str, arguments: &[&str]) {
        Self::try_run(program, arguments).unwrap();
    }

    fn try_run(program: &str, arguments: &[&str]) -> Result<(), String> {
        let output = Command::new(program).args(arguments).output().unwrap();
        let said = || format!("{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.status.success().then_some(()).ok_or_else(said)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let path = self.path();
        // Still busy when a test fails halfway.
        if !Command::new("umount").arg(&path).status().unwrap().success() {
            let _ = Command::new("umount").arg("-l").arg(&path).status();
        }
    }
}

/// A fresh file system of this size; `None`, with the reason printed, where that is not possible.
pub fn mount(kind: &str, megabytes: u64) -> Option<Mounted> {
    mount_made_with(kind, megabytes, &[])
}

/// The same, with further flags of its `mkfs`.
pub fn mount_made_with(kind: &str, megabytes: u64, flags: &[&str]) -> Option<Mounted> {
    if !is_root() {
        eprintln!("skipped on {kind}: only root can mount");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let (image, mnt) = (dir.path().join("image"), dir.path().join("mnt"));
    std::fs::create_dir(&mnt).unwrap();
    let (image, mnt) = (image.to_str().unwrap(), mnt.to_str().unwrap());
    if kind == "tmpfs" {
        let size = format!("size={megabytes}m,nr_inodes={}", megabytes * 200);
        Mounted::run("mount", &["-t", "tmpfs", "-o", &size, "none", mnt]);
        return Some(Mounted { dir });
    }
    let mkfs = format!("mkfs.{kind}");
    if Command::new(&mkfs).arg("-V").output().is_err() {
        eprintln!("skipped on {kind}: {mkfs} is not installed");
        return None;
    }
    std::fs::File::create(image).unwrap().set_len(megabytes << 20).unwrap();
    let made = Mounted::try_run(&mkfs, &[&["-q"], flags, &[image]].concat())
        .and_then(|()| Mounted::try_run("mount", &["-o", "loop", image, mnt]));
    match made {
        // Not every kernel has it.
        Err(reason) if kind == "btrfs" => {
            eprintln!("skipped on {kind}: {reason}");
            return None;
        }
        made => made.unwrap(),
    }
    Some(Mounted { dir })
}

/// Every file system that can be had here, and a directory of its own in it.
pub fn each_file_system(megabytes: u64, test: impl Fn(&str, &Path)) {
    for kind in ["ext4", "xfs", "btrfs", "tmpfs"] {
        // The smallest that mkfs.xfs makes is 300 MB.
        if let Some(mounted) = mount(kind, megabytes.max(320)) {
            let path = mounted.path().join("pool");
            std::fs::create_dir(&path).unwrap();
            test(kind, &path);
        }
    }
}
