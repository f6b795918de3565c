//! Spaces on each file system, and what is counted in them.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use ullage_mount_tests::ground::{Ground, has_btrfs, listing};
use ullage_mount_tests::recount::counted;
use ullage_mount_tests::run::ullage;
use ullage_mount_tests::space::Space;

/// A file system below a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Below {
    Tmpfs,
    Ext4,
    Xfs,
    Btrfs,
}

impl Below {
    /// All that can be had here.
    pub fn all() -> impl Iterator<Item = Self> {
        [Self::Tmpfs, Self::Ext4, Self::Xfs, Self::Btrfs].into_iter().filter(|below| below.is_had())
    }

    /// Whether it can be had here; else that is said.
    pub fn is_had(self) -> bool {
        self != Self::Btrfs || has_btrfs()
    }

    pub fn space(self) -> Space {
        let mut ground = Ground::new();
        let pool = match self {
            Self::Tmpfs => ground.tmpfs("disk", 128 << 10),
            Self::Ext4 => ground.ext4("disk", 256),
            Self::Xfs => ground.xfs("disk", 320),
            Self::Btrfs => ground.btrfs("disk", 256),
        };
        let state = ground.directory("plain");
        let mut space = Space::on(ground, &pool);
        space.state = state.join("state");
        space.up();
        space
    }

    /// How near to its limit a write may be refused: where the file system counts the blocks of a file's map, these are
    /// kept for it.
    pub fn slack(self) -> u64 {
        match self {
            Self::Tmpfs | Self::Btrfs => 0,
            Self::Ext4 | Self::Xfs => 9 * 4096,
        }
    }
}

/// A space on a tmpfs of 64 MiB of which 48 are a reserve, and that tmpfs.
pub fn reserved() -> (Space, PathBuf) {
    let mut ground = Ground::new();
    let disk = ground.tmpfs("disk", 64 << 10);
    let state = ground.directory("plain");
    let mut space = Space::on(ground, &disk);
    space.state = state.join("state");
    space.flags = vec!["--reserve".into(), "48M".into()];
    space.up();
    space.flags.clear();
    (space, disk)
}

pub fn limit(words: &[&str], path: &Path) {
    set(words, path).ok();
}

pub fn set(words: &[&str], path: &Path) -> ullage_mount_tests::run::Outcome {
    let words = words.iter().map(|word| std::ffi::OsString::from(*word));
    ullage(["limit".into(), path.into()].into_iter().chain(words))
}

/// A directory limited to so many bytes beside its own block.
pub fn limited(space: &Space, name: &str, bytes: u64) -> PathBuf {
    let dir = space.path(name);
    fs::create_dir(&dir).unwrap();
    limit(&[&format!("{}B", bytes + 4096)], &dir);
    dir
}

/// Opens a file for reading and writing, and makes it.
pub fn both(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

/// Opens a file for writing only, and makes it.
pub fn writer(path: &Path) -> File {
    OpenOptions::new().write(true).create(true).truncate(false).open(path).unwrap()
}

/// A file in a limited directory that is open for writing, and beside that for both: it can be mapped in the kernel.
pub struct Mappable {
    pub space: Space,
    pub dir: PathBuf,
    pub path: PathBuf,
    pub file: File,
    pub mapped: File,
}

impl Mappable {
    /// A file of so many bytes, below a limit of so much room.
    pub fn new(below: Below, room: u64, bytes: u64) -> Self {
        let space = below.space();
        let dir = limited(&space, "box", room);
        let path = dir.join("file");
        fs::write(&path, vec![1; bytes as usize]).unwrap();
        let (file, mapped) = (writer(&path), both(&path).unwrap());
        Self { space, dir, path, file, mapped }
    }
}

/// Has another file in a limited directory take all that is left.
#[track_caller]
pub fn take_the_rest(dir: &Path) -> File {
    static PIECE: [u8; 65536] = [4; 65536];
    let other = writer(&dir.join("other"));
    until_full(|n| other.write_all_at(&PIECE, n * PIECE.len() as u64));
    other
}

/// What lies in a limited directory, beside its own block.
pub fn used(dir: &Path) -> u64 {
    counted(dir).bytes - 4096
}

pub fn is_full<T: std::fmt::Debug>(outcome: &io::Result<T>) -> bool {
    matches!(outcome, Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT)))
}

/// Runs a step until a limit refuses it; any other error fails the test.
#[track_caller]
pub fn until_full(mut step: impl FnMut(u64) -> io::Result<()>) -> u64 {
    for n in 0..100_000 {
        let outcome = step(n);
        if is_full(&outcome) {
            return n;
        }
        outcome.unwrap_or_else(|error| panic!("step {n}: {error}"));
    }
    panic!("no limit was met");
}

/// Blocks of all backing files, in bytes.
pub fn in_pool(space: &Space) -> u64 {
    let pool = space.pool();
    let mut files = listing(&pool);
    // The pool's own marker and the catalog's mirror are no backing files.
    files.retain(|(path, _)| {
        let own = path.strip_prefix(&pool).unwrap();
        !own.components().any(|part| part.as_os_str().as_encoded_bytes().starts_with(b"."))
    });
    files
        .iter()
        .filter_map(|(path, _)| path.symlink_metadata().ok())
        .filter(fs::Metadata::is_file)
        .map(|m| m.blocks() * 512)
        .sum()
}

/// What lies in a limited directory is no more than `limit` beside its own block, and no less than that without `slack`.
#[track_caller]
pub fn assert_filled(dir: &Path, limit: u64, slack: u64, how: &str) {
    let used = used(dir);
    assert!(used <= limit, "{how}: {} bytes past the limit", used - limit);
    assert!(used + slack >= limit, "{how}: refused with {} bytes left", limit - used);
}

/// What stat(2) says of all regular files of a space, each counted once.
pub fn in_files(space: &Space) -> u64 {
    let mut seen = std::collections::HashSet::new();
    let files = listing(&space.mount);
    let files = files.iter().filter_map(|(path, _)| path.symlink_metadata().ok());
    files.filter(|meta| meta.is_file() && seen.insert(meta.ino())).map(|meta| meta.blocks() * 512).sum()
}
