//! The files of a mirror: their names, how they are written, and how they are found again.

use crate::error::io_error;
use crate::{Kind, Result, SpaceSettings};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// The mirror's directory in a pool.
const DIRECTORY: &str = ".ullage-mirror";
/// The settings in it.
const SETTINGS: &str = "space.toml";
/// Bytes written before a snapshot rests.
const PIECE: u64 = 256 << 10;

/// A snapshot and its tails, by when they were begun. A later one is always of a later time, whatever the clock does: rebuild
/// takes the last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Generation {
    /// Since 1970: two begun in one second are told apart.
    nanoseconds: u64,
    nonce: u64,
}

impl Generation {
    /// A new one, after another.
    pub(super) fn after(last: Option<&Self>) -> Result<Self> {
        let nonce = ullage_pool::Uuid::random().map_err(io_error("read", "the random numbers of the kernel"))?;
        let nonce = u64::from_le_bytes(std::array::from_fn(|at| nonce.0[at]));
        let nanoseconds = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64);
        let nanoseconds = last.map_or(nanoseconds, |last| nanoseconds.max(last.nanoseconds.saturating_add(1)));
        Ok(Self { nanoseconds, nonce })
    }

    fn stem(&self) -> String {
        format!("{:016x}-{:016x}", self.nanoseconds, self.nonce)
    }

    /// The name of its snapshot.
    pub(crate) fn snapshot(&self) -> String {
        format!("{}.snapshot", self.stem())
    }

    /// The name of one of its tails; they count from 1.
    pub(crate) fn tail(&self, number: u64) -> String {
        format!("{}.{number}.tail", self.stem())
    }

    /// When it was begun, in seconds since 1970.
    pub(crate) fn seconds(&self) -> u64 {
        self.nanoseconds / 1_000_000_000
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        let stem = name.split('.').next()?;
        let (nanoseconds, nonce) = stem.split_once('-')?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let generation = Self { nanoseconds: hex(nanoseconds)?, nonce: hex(nonce)? };
        (generation.stem() == stem).then_some(generation)
    }
}

/// The generations in a pool that have a snapshot, newest first, with the mirror's directory.
pub(crate) fn generations(pool: &Path) -> Result<(PathBuf, Vec<Generation>)> {
    let dir = pool.join(DIRECTORY);
    let entries = match fs::read_dir(&dir) {
        Ok(entries) => entries.collect::<io::Result<Vec<_>>>().map_err(io_error("read", &dir))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(io_error("read", &dir)(error)),
    };
    let names = entries.into_iter().filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<Generation> =
        names.filter(|name| name.ends_with(".snapshot")).filter_map(|name| Generation::parse(&name)).collect();
    found.sort_unstable_by(|a, b| b.cmp(a));
    Ok((dir, found))
}

/// The space's settings as the mirror in a pool has them, where it can be read.
pub(crate) fn read_settings(pool: &Path) -> Option<SpaceSettings> {
    toml::from_str(&fs::read_to_string(pool.join(DIRECTORY).join(SETTINGS)).ok()?).ok()
}

/// Writes the same file into every pool.
pub(super) struct Writer {
    dirs: Vec<PathBuf>,
}

type Fill<'a> = dyn FnMut(&mut dyn Write) -> std::result::Result<(), ullage_kv::Error> + 'a;

impl Writer {
    pub(super) fn new(settings: &SpaceSettings) -> Self {
        let dirs = settings.pools.iter().filter(|pool| pool.kind == Kind::Dir).map(|pool| pool.files().join(DIRECTORY));
        Self { dirs: dirs.collect() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.dirs.is_empty()
    }

    /// The settings as they are now.
    pub(super) fn write_settings(&self, settings: &SpaceSettings) -> Result<()> {
        let text = toml::to_string(settings).map_err(|error| crate::Error::Refused(error.to_string()))?;
        let fill: &mut Fill<'_> = &mut |out| {
            let failed =
                |source| ullage_kv::Error::Io { doing: "mirror the settings of", path: PathBuf::new(), source };
            out.write_all(text.as_bytes()).map_err(failed)
        };
        self.write(SETTINGS, fill).map(drop)
    }

    /// Writes a file durably and in one step into every pool; gives its length. Where one pool has no room the others
    /// still get theirs; it fails when none does.
    pub(super) fn write(&self, name: &str, fill: &mut Fill<'_>) -> Result<u64> {
        self.write_slowly(name, false, fill)
    }

    /// As [`Writer::write`]; `slowly` takes a quarter of a processor at most.
    pub(super) fn write_slowly(&self, name: &str, slowly: bool, fill: &mut Fill<'_>) -> Result<u64> {
        let new = format!("{name}.new");
        let mut out = Copies { files: Vec::new(), failed: None, bytes: 0, slowly, resting: (0, Instant::now()) };
        for dir in &self.dirs {
            let path = dir.join(&new);
            match fs::create_dir_all(dir).and_then(|()| private(dir)).and_then(|()| File::create(&path)) {
                Ok(file) => out.files.push((path, file)),
                Err(error) => out.fail(&path, error),
            }
        }
        let filled = fill(&mut out);
        let Copies { files, mut failed, bytes, .. } = out;
        let mut written = 0;
        for (path, file) in files {
            let target = path.with_file_name(name);
            let finish = || -> io::Result<()> {
                file.sync_all()?;
                fs::rename(&path, &target)?;
                File::open(target.parent().unwrap_or(&target))?.sync_all()
            };
            match (&filled, filled.is_ok().then(finish)) {
                (Ok(()), Some(Ok(()))) => written += 1,
                (_, outcome) => {
                    let _ = fs::remove_file(&path);
                    if let Some(Err(error)) = outcome {
                        failed.get_or_insert((path, error));
                    }
                }
            }
        }
        filled?;
        match (written, failed) {
            (0, Some((path, error))) => Err(io_error("write", path)(error)),
            (_, Some((path, error))) => {
                tracing::warn!("this pool's copy of the catalog is not up to date: {}: {error}", path.display());
                Ok(bytes)
            }
            _ => Ok(bytes),
        }
    }

    /// A new generation, after all that any pool has.
    pub(super) fn begin(&self) -> Result<Generation> {
        let pools = self.dirs.iter().filter_map(|dir| dir.parent());
        Generation::after(pools.filter_map(|pool| generations(pool).ok()?.1.into_iter().next()).max().as_ref())
    }

    /// Removes all but this generation and the newest one before it.
    pub(super) fn keep_newest(&self, newest: &Generation) {
        for dir in &self.dirs {
            let Some(Ok((_, found))) = dir.parent().map(generations) else { continue };
            let before = found.into_iter().find(|generation| generation != newest);
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                let of = Generation::parse(&name);
                let kept = of.is_none() || of.as_ref() == Some(newest) || of == before;
                if !kept || entry.path().extension().is_some_and(|ending| ending == "new") {
                    let _ = fs::remove_file(entry.path());
                }
            }
        }
    }
}

/// It holds every name of the space: for nobody but its owner.
fn private(dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))
}

/// One stream into several files. A file that fails is given up; the stream goes on as long as there is one.
struct Copies {
    files: Vec<(PathBuf, File)>,
    failed: Option<(PathBuf, io::Error)>,
    bytes: u64,
    slowly: bool,
    resting: (u64, Instant),
}

impl Copies {
    fn fail(&mut self, path: &Path, error: io::Error) {
        let _ = fs::remove_file(path);
        self.failed.get_or_insert_with(|| (path.to_owned(), error));
    }
}

impl Write for Copies {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut failed = Vec::new();
        self.files.retain_mut(|(path, file)| match file.write_all(bytes) {
            Ok(()) => true,
            Err(error) => {
                failed.push((path.clone(), error));
                false
            }
        });
        for (path, error) in failed {
            self.fail(&path, error);
        }
        if self.files.is_empty() {
            let why = self.failed.as_ref().map_or_else(|| "no pool".to_owned(), |(_, error)| error.to_string());
            return Err(io::Error::other(why));
        }
        self.bytes += bytes.len() as u64;
        if self.slowly && self.bytes - self.resting.0 >= PIECE {
            std::thread::sleep((self.resting.1.elapsed() * 3).min(Duration::from_secs(1)));
            self.resting = (self.bytes, Instant::now());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_generation_is_of_a_later_time_whatever_the_clock_does() {
        let now = Generation::after(None).expect("there are random numbers");
        let ahead = Generation { nanoseconds: now.nanoseconds + 3_600_000_000_000, nonce: u64::MAX };
        let mut last = ahead;
        for _ in 0..100 {
            let next = Generation::after(Some(&last)).expect("there are random numbers");
            assert!(next > last);
            last = next;
        }
        assert!(Generation::after(Some(&now)).expect("there are random numbers").seconds() <= now.seconds() + 60);
    }
}
