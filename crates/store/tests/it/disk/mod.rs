//! File systems of a test's own, and a store in one.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use ullage_journal::Durability;
use ullage_store::chunk::{ChunkName, ChunkStore, Ledger, OpError, Options, Posting};

pub fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Unmounted when dropped.
pub struct Mounted(PathBuf);

impl Mounted {
    /// A tmpfs of this size.
    pub fn tmpfs(at: &Path, megabytes: u64) -> Self {
        Self::tmpfs_with(at, &format!("size={megabytes}m"))
    }

    /// One with these options.
    pub fn tmpfs_with(at: &Path, options: &str) -> Self {
        std::fs::create_dir(at).unwrap();
        run("mount", &["-t", "tmpfs", "-o", options, "none", at.to_str().unwrap()]);
        Self(at.to_owned())
    }

    /// A new file system of this kind and size in `image`.
    pub fn image(at: &Path, image: &Path, kind: &str, megabytes: u64) -> Self {
        File::create(image).unwrap().set_len(megabytes << 20).unwrap();
        run(&format!("mkfs.{kind}"), &["-q", image.to_str().unwrap()]);
        std::fs::create_dir(at).unwrap();
        Self::again(at, image)
    }

    /// One that is there.
    pub fn again(at: &Path, image: &Path) -> Self {
        run("mount", &["-o", "loop", image.to_str().unwrap(), at.to_str().unwrap()]);
        Self(at.to_owned())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Still busy when a test fails halfway.
        if !Command::new("umount").arg(&self.0).status().is_ok_and(|status| status.success()) {
            let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }
}

/// While it is there nothing is written to the file system at this place, and who writes waits. Drop it before that is unmounted.
pub struct Frozen(PathBuf);

impl Frozen {
    pub fn new(at: &Path) -> Self {
        run("fsfreeze", &["-f", at.to_str().unwrap()]);
        Self(at.to_owned())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = Command::new("fsfreeze").arg("-u").arg(&self.0).status();
    }
}

/// Whether file systems can be mounted and all `programs` are there; else says so.
pub fn can_mount(programs: &[&str]) -> bool {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can mount");
        return false;
    }
    let missing = programs.iter().find(|program| Command::new(program).arg("-V").output().is_err());
    if let Some(missing) = missing {
        eprintln!("skipped: {missing} is not installed");
    }
    missing.is_none()
}

/// Lets everybody have so much in all.
pub struct Limit {
    pub bytes: i64,
    pub used: i64,
}

impl Ledger for Limit {
    type Payment = ();
    type Receipt = ();
    type Refusal = &'static str;

    fn book(&mut self, postings: &[Posting], (): &()) -> Result<(Vec<u8>, ()), &'static str> {
        let used = self.used + postings.iter().map(|posting| posting.delta_bytes).sum::<i64>();
        if used > self.bytes {
            return Err("over the limit");
        }
        self.used = used;
        Ok((Vec::new(), ()))
    }

    fn correct(&mut self, postings: &[Posting]) -> Vec<u8> {
        self.used += postings.iter().map(|posting| posting.delta_bytes).sum::<i64>();
        Vec::new()
    }

    fn replay(&mut self, _: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    fn load(&mut self, _: &[u8]) -> Result<(), String> {
        Ok(())
    }
}

pub type Store = ChunkStore<Limit>;

pub fn open(root: &Path, bytes: i64, durability: Durability) -> Store {
    let options = Options { durability, ..Options::default() };
    ChunkStore::open(root, Limit { bytes, used: 0 }, options).unwrap()
}

pub fn name(text: &str) -> ChunkName {
    text.parse().unwrap()
}

/// The bytes that the new chunk is charged.
pub fn put(store: &Store, chunk: &str, data: &[u8]) -> Result<u64, OpError<&'static str>> {
    let owner: Arc<str> = "alice".into();
    let done = store.put(&name(chunk), &owner, &owner, &owner, Some(0o600), data, true, &())?;
    Ok(done.info.unwrap().allocated())
}
