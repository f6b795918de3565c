//! How the files of a mirror are written: all of a file in every pool with room, or nothing.

mod catch_up;

use super::copies::{Copies, Rest};
use super::files::{Generation, SETTINGS, generations};
use super::place::{Left, Place};
use crate::error::io_error;
use crate::held::Held;
use crate::settings::config::anew;
use crate::{PoolSettings, Result, SpaceSettings};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Instant;
use ullage_kv::shown;
use ullage_types::Bytes;

/// Writes the same file into every pool.
pub(super) struct Writer {
    places: Vec<Place>,
    /// What the last snapshot showed that the next one needs, in bytes.
    needs: u64,
}

type Fill<'a> = dyn FnMut(&mut dyn Write) -> std::result::Result<(), ullage_kv::Error> + 'a;

impl Writer {
    /// Into these pools, each with what it is to leave free.
    pub(super) fn new(settings: &SpaceSettings, left: &dyn Fn(&PoolSettings) -> Left) -> Result<Self> {
        let mut writer = Self { places: Vec::new(), needs: 0 };
        for pool in settings.with_files() {
            writer.join(pool, left(pool))?;
        }
        Ok(writer)
    }

    /// Into this pool too.
    pub(super) fn join(&mut self, pool: &PoolSettings, left: Left) -> Result<()> {
        let path = pool.files();
        self.places.push(Place { files: Held::open(&path)?, path, left, behind: None });
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The settings as they are now; gives the directories that have them.
    pub(super) fn write_settings(&mut self, settings: &SpaceSettings) -> Result<Vec<PathBuf>> {
        let text = text(settings)?;
        self.write(SETTINGS, &mut |out| fill_with(&text, out)).map(|(_, written)| written)
    }

    /// Writes a file durably and in one step into every pool; gives its length, and the directories that have it. Where one
    /// pool has no room the others still get theirs; it fails when none does.
    pub(super) fn write(&mut self, name: &str, fill: &mut Fill<'_>) -> Result<(u64, Vec<PathBuf>)> {
        let (mut out, begun) = (Copies::new(None), Instant::now());
        let (with, without): (Vec<&Place>, Vec<&Place>) = self.places.iter().partition(|place| place.has_inodes());
        for place in without {
            out.pass_over(&place.dir().join(format!("{name}.new")), Errno::NOSPC.into());
        }
        let written = write_into(with.into_iter().map(Place::dir), name, &mut out, fill)?;
        self.note_missed(&written, begun);
        Ok((out.bytes, written))
    }

    /// Notes which pools have missed a file that others have.
    fn note_missed(&mut self, written: &[PathBuf], begun: Instant) {
        for place in self.places.iter_mut().filter(|place| !written.contains(&place.dir())) {
            place.fell_behind(begun);
        }
    }

    /// As [`Writer::write`], into these directories, for a new generation; with rests it takes a quarter of a processor at most.
    pub(super) fn write_snapshot(
        &mut self,
        dirs: &[PathBuf],
        name: &str,
        rest: Option<&Rest<'_>>,
        fill: &mut Fill<'_>,
    ) -> Result<u64> {
        let (mut out, begun) = (Copies::new(rest), Instant::now());
        let written = write_into(dirs.iter().cloned(), name, &mut out, fill);
        // How much longer than what there was room for, nobody knows.
        self.needs = if written.is_ok() { out.bytes } else { out.bytes.saturating_mul(2) };
        let written = written?;
        self.places.iter_mut().for_each(|place| place.behind = None);
        self.note_missed(&written, begun);
        Ok(out.bytes)
    }

    /// The directories of the pools with room for a snapshot beside their reserve. Without it one would take the last room
    /// for nothing, and again at every turn.
    pub(super) fn with_room(&self) -> Result<Vec<PathBuf>> {
        self.remove_unfinished();
        let bytes = self.needs.max(self.newest().map_or(0, |(_, bytes)| bytes));
        let (with, without): (Vec<&Place>, Vec<&Place>) =
            self.places.iter().partition(|place| place.has_inodes() && place.free() > bytes);
        let pools: Vec<String> = without.iter().map(|place| place.path.display().to_string()).collect();
        let pools = pools.join(", ");
        if with.is_empty() {
            return Err(crate::Error::Refused(format!(
                "for a new snapshot {} have to be free beside the reserve of a pool, and inodes: make room in any of {pools}",
                Bytes(bytes)
            )));
        }
        if !without.is_empty() {
            tracing::warn!("these pools have no room for a copy of the catalog that is up to date: {pools}");
        }
        Ok(with.into_iter().map(Place::dir).collect())
    }

    /// A new generation, after all that any pool has.
    pub(super) fn begin(&self) -> Result<Generation> {
        Generation::after(self.newest().map(|(newest, _)| newest).as_ref())
    }

    /// The newest generation in any pool, and the length of its snapshot.
    fn newest(&self) -> Option<(Generation, u64)> {
        let newest = |place: &Place| {
            let newest = generations(&place.pool()).ok()?.1.into_iter().next()?;
            let bytes = fs::metadata(place.dir().join(newest.snapshot())).map_or(0, |meta| meta.len());
            Some((newest, bytes))
        };
        self.places.iter().filter_map(newest).max()
    }

    /// Removes all but this generation and the newest one before it.
    pub(super) fn keep_newest(&self, newest: &Generation) {
        for place in &self.places {
            let Ok((_, found)) = generations(&place.pool()) else { continue };
            let before = found.into_iter().find(|generation| generation != newest);
            place.remove(|name| {
                let of = Generation::parse(name);
                !(of.is_none() || of.as_ref() == Some(newest) || of == before)
            });
        }
    }

    /// Removes what a crash left: it may be what takes the room.
    fn remove_unfinished(&self) {
        self.places.iter().for_each(|place| place.remove(|name| name.rsplit('.').next() == Some("new")));
    }
}

fn text(settings: &SpaceSettings) -> Result<String> {
    toml::to_string(settings).map_err(|error| crate::Error::Refused(error.to_string()))
}

fn fill_with(text: &str, out: &mut dyn Write) -> std::result::Result<(), ullage_kv::Error> {
    let failed = |source| ullage_kv::Error::Io { doing: "mirror the settings of", path: PathBuf::new(), source };
    out.write_all(text.as_bytes()).map_err(failed)
}

/// Writes a file durably and in one step into each of these directories, or fails; gives those that have it.
fn write_into(
    dirs: impl Iterator<Item = PathBuf>,
    name: &str,
    out: &mut Copies<'_>,
    fill: &mut Fill<'_>,
) -> Result<Vec<PathBuf>> {
    let new = format!("{name}.new");
    // As long as there are paths in them.
    let mut held: Vec<(Held, PathBuf)> = Vec::new();
    for dir in dirs {
        // It holds every name of the space: for nobody but its owner.
        let own = match Held::own(&dir) {
            Ok(own) => own,
            Err(error) => {
                out.pass_over(&dir.join(&new), error);
                continue;
            }
        };
        let path = own.join(&new);
        match anew(&path) {
            Ok(file) => out.files.push((path, file)),
            Err(error) => out.fail(&path, error),
        }
        held.push((own, dir));
    }
    let filled = fill(out);
    let mut written = Vec::new();
    for (path, file) in std::mem::take(&mut out.files) {
        let target = path.with_file_name(name);
        let mut left = &path;
        let mut finish = || -> io::Result<()> {
            file.sync_all()?;
            fs::rename(&path, &target)?;
            left = &target;
            File::open(target.parent().unwrap_or(&target))?.sync_all()
        };
        match (&filled, filled.is_ok().then(&mut finish)) {
            (Ok(()), Some(Ok(()))) => written.push(target),
            // Under its name too: a tail that comes to have it later may hold more.
            (_, Some(Err(error))) => out.fail(left, error),
            _ => drop(fs::remove_file(&path)),
        }
    }
    filled?;
    match out.failed.take() {
        Some((path, error)) if written.is_empty() => return Err(io_error("write", path)(error)),
        Some((path, error)) => {
            tracing::warn!("this pool's copy of the catalog is not up to date: {}: {error}", shown(&path).display());
        }
        None => {}
    }
    held.retain(|(own, _)| written.contains(&own.join(name)));
    Ok(held.into_iter().map(|(_, dir)| dir).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The next snapshot would run into the same end of the same room.
    #[test]
    fn after_a_snapshot_that_found_no_room_more_has_to_be_free() {
        let (pool, state) = (tempfile::tempdir().expect("made"), tempfile::tempdir().expect("made"));
        let place = format!("p={}", pool.path().display()).parse().expect("a pool");
        let settings = SpaceSettings::new(state.path(), vec![place], "most-free".into()).expect("settings");
        let mut writer = Writer::new(&settings, &|_| Left::default()).expect("there is a pool");
        let dirs = writer.with_room().expect("there is room");
        let mut write = |full: bool| {
            let fill: &mut Fill<'_> = &mut |out| {
                let failed = |source| ullage_kv::Error::Io { doing: "write", path: PathBuf::new(), source };
                let end = if full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) };
                out.write_all(&[0; 1000]).and(end).map_err(failed)
            };
            let written = writer.write_snapshot(&dirs, "test", None, fill);
            (written.is_ok(), writer.needs)
        };
        assert_eq!(write(true), (false, 2000));
        assert_eq!(write(false), (true, 1000));
        assert_eq!(fs::read_dir(&dirs[0]).expect("there").count(), 1, "what was not finished is still there");
    }
}
