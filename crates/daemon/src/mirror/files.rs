//! The files of a mirror: their names, and how they are found again.

use crate::error::io_error;
use crate::held::Held;
use crate::settings::config::{read_small, replace};
use crate::{PoolSettings, Result, SpaceSettings};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The mirror's directory in a pool.
pub(crate) const DIRECTORY: &str = ".ullage-mirror";
/// The settings in it.
pub(super) const SETTINGS: &str = "space.toml";

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
    let found = having(&dir, ".snapshot")?;
    Ok((dir, found))
}

/// The newest generation of which a mirror has a tail.
pub(crate) fn newest_tail(mirror: &Path) -> Result<Option<Generation>> {
    Ok(having(mirror, ".tail")?.into_iter().next())
}

/// The generations of which a mirror has files that end so, newest first.
fn having(mirror: &Path, end: &str) -> Result<Vec<Generation>> {
    let entries = match fs::read_dir(mirror) {
        Ok(entries) => entries.collect::<io::Result<Vec<_>>>().map_err(io_error("read", mirror))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(io_error("read", mirror)(error)),
    };
    let names = entries.into_iter().filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<Generation> =
        names.filter(|name| name.ends_with(end)).filter_map(|name| Generation::parse(&name)).collect();
    found.sort_unstable_by(|a, b| b.cmp(a));
    Ok(found)
}

/// Whether no other pool has something of the newest copy of the catalog that this one has: the snapshot, or a tail.
pub(crate) fn is_only_holder(settings: &SpaceSettings, pool: &PoolSettings) -> bool {
    // None is written, however old it is.
    if settings.mirror_seconds == 0 {
        return false;
    }
    let newest = |files: &Path| generations(files).ok().and_then(|(_, found)| found.into_iter().next());
    let Some(newest) = settings.with_files().filter_map(|pool| newest(&pool.files())).max() else { return false };
    let mirror = |pool: &PoolSettings| pool.files().join(DIRECTORY);
    let last = settings.with_files().map(|pool| last_tail(&mirror(pool), &newest)).max().unwrap_or(0);
    let mut needed = std::iter::once(newest.snapshot()).chain((1..=last).map(|number| newest.tail(number)));
    let others = || settings.with_files().filter(|other| other.id != pool.id);
    needed.any(|name| mirror(pool).join(&name).exists() && !others().any(|other| mirror(other).join(&name).exists()))
}

/// The last tail of a generation that a mirror has; 0 where it has none.
pub(crate) fn last_tail(mirror: &Path, generation: &Generation) -> u64 {
    let entries = fs::read_dir(mirror).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let number = |name: &str| name.strip_suffix(".tail")?.split('.').nth(1)?.parse().ok();
    let own = names.filter(|name| Generation::parse(name).as_ref() == Some(generation));
    own.filter_map(|name| number(&name)).max().unwrap_or(0)
}

/// The space's settings as the mirror in a pool has them; none where it has none.
pub(crate) fn read_settings(pool: &Path) -> Result<Option<SpaceSettings>> {
    let path = pool.join(DIRECTORY).join(SETTINGS);
    match read_small(&path) {
        Ok(text) => SpaceSettings::parse(&text, &path).map(Some),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(io_error("read", path)(error)),
    }
}

/// The same of this space, where it can be read.
pub(crate) fn known_settings(pool: &Path, uuid: &str) -> Option<SpaceSettings> {
    read_settings(pool).ok().flatten().filter(|known| known.uuid == uuid)
}

/// Has the copies in the pools say what the settings are now, where there are some: rebuild asks for every pool that they name. Not while the
/// space is up: its mirror writes them too.
pub(crate) fn renew_settings(settings: &SpaceSettings) {
    let of_this_space = |files: &Path| known_settings(files, &settings.uuid).is_some();
    for files in settings.with_files().map(PoolSettings::files).filter(|files| of_this_space(files)) {
        let path = files.join(DIRECTORY).join(SETTINGS);
        let text = toml::to_string(settings).map_err(io::Error::other);
        let own = || Held::own_there(&files.join(DIRECTORY));
        if let Err(error) = text.and_then(|text| replace(&own()?.join(SETTINGS), &text)) {
            tracing::info!("{} cannot be written ({error}): it says what the settings were before", path.display());
        }
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

    /// Regression: a pool left the space with the only newest tails, where another one had found room for the snapshot alone; and where nothing is
    /// mirrored none could ever leave that had a copy from before.
    #[test]
    fn a_pool_holds_alone_what_no_other_one_has_of_the_newest_copy() {
        let dir = tempfile::tempdir().expect("there is room");
        let place = |name: &str| format!("{name}={}", dir.path().join(name).display()).parse().expect("a pool");
        let pools = ["one", "other", "third"].map(place).to_vec();
        let mut settings = SpaceSettings::new(&dir.path().join("m"), pools, "most-free".into()).expect("settings");
        let mirrors: Vec<PathBuf> = settings.with_files().map(|pool| pool.files().join(DIRECTORY)).collect();
        for mirror in &mirrors {
            fs::create_dir_all(mirror).expect("made");
        }
        let write = |at: usize, name: String| fs::write(mirrors[at].join(name), "").expect("written");
        let is_only = |settings: &SpaceSettings| is_only_holder(settings, &settings.pools[0]);
        assert!(!is_only(&settings), "there is none");
        let old = Generation { nanoseconds: 1, nonce: 7 };
        let new = Generation { nanoseconds: 2, nonce: 7 };
        write(0, old.snapshot());
        assert!(is_only(&settings));
        write(1, new.snapshot());
        assert!(!is_only(&settings), "an older one");
        write(0, new.snapshot());
        write(0, new.tail(1));
        write(0, new.tail(2));
        assert!(is_only(&settings));
        settings.mirror_seconds = 0;
        assert!(!is_only(&settings), "nothing is mirrored");
        settings.mirror_seconds = 1;
        write(1, new.tail(2));
        assert!(is_only(&settings));
        // Each from wherever it is.
        write(2, new.tail(1));
        assert!(!is_only(&settings));
        write(1, new.tail(3));
        assert!(!is_only(&settings), "they are newer");
    }
}
