//! `ullage rebuild`: a new state from pools alone.
//!
//! The newest snapshot that is whole, the tails that follow it, then what the backing files themselves say: a file made since
//! comes to `lost+found` with its owner, one removed since is dropped, and every length is measured. With no snapshot
//! left all files come to `lost+found`.

mod restore;
mod settle;

use super::facts::{Progress, Seen, refuse, survey};
use crate::error::io_error;
use crate::mirror::Generation;
use crate::pools::bring_back::bring_back;
use crate::settings::config::refuse_users_of;
use crate::{Error, Kind, Layout, PoolSettings, Result, State, refuse_places};
use serde::Serialize;
use settle::{Settled, settle_pools};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use ullage_catalog::RepairMode;

/// The new catalog until it is whole.
const DRAFT: &str = "catalog.rebuilding";

/// What a rebuild did.
#[derive(Clone, Debug, Serialize)]
pub struct RebuildReport {
    /// The new state directory.
    #[serde(serialize_with = "crate::settings::paths::show")]
    pub state: PathBuf,
    /// How old the snapshot is that was used, in seconds; none when there was none that is whole.
    pub snapshot_age_seconds: Option<u64>,
    /// What to know of it before anybody relies on it.
    pub warnings: Vec<String>,
    /// Pieces of the log that follow it.
    pub tails: u64,
    /// Snapshots, tails and settings that were not whole.
    pub damaged: Vec<String>,
    /// Files of all kinds in the rebuilt space.
    pub files: u64,
    /// Files that are only in `lost+found`.
    pub adopted: u64,
    /// Files that were in the snapshot and are in no pool any more.
    pub dropped: u64,
    /// What was set right.
    pub done: Vec<String>,
    /// What could not be restored.
    pub lost: Vec<String>,
}

/// Makes the space that `pools` belong to again in `state`, which must be new, to be mounted at `mountpoint`. Pools that
/// are gone for good are named in `without`: their files are dropped. Nothing in the pools is changed, but that a backing file that only a plain
/// tree still shows gets its name in the pool again.
pub fn rebuild(
    mountpoint: &Path,
    state: &State,
    pools: Vec<PoolSettings>,
    without: &[String],
    progress: &mut Progress<'_>,
) -> Result<RebuildReport> {
    // One that was interrupted at its end left settings beside its draft, and nothing else of worth.
    let holds_draft = state.dir().join(DRAFT).exists();
    if state.catalog_path().exists() || state.settings_path().exists() && !holds_draft {
        return Err(Error::Refused(format!(
            "{} holds a space already; give a directory that does not exist yet with --state",
            state.dir().display()
        )));
    }
    state.refuse_users()?;
    for pool in &pools {
        // A state of root's would have root write there.
        let files = PoolSettings { layout: PoolSettings::layout_of(&pool.path), ..pool.clone() }.files();
        refuse_users_of(&pool.path, &files.join(ullage_pool::MARKER))?;
    }
    let settled = settle_pools(mountpoint, pools, without)?;
    refuse_places(&settled.settings, state)?;
    let mut seen = survey(&settled.settings.pools, settled.space, progress)?;
    refuse(&seen.unclear)?;
    seen.facts.mode = RepairMode::Rebuild;
    seen.facts.gone.extend(&settled.gone);
    let is_new = !state.dir().exists();
    let mut in_place = false;
    let report = build(state, &settled, &mut seen, &mut in_place, progress);
    if report.is_err() {
        let _ = fs::remove_dir_all(state.dir().join(DRAFT));
        if in_place {
            let _ = fs::remove_dir_all(state.catalog_path());
        }
        if !state.catalog_path().exists() {
            let _ = fs::remove_file(state.settings_path());
            let _ = fs::remove_file(state.turns_path());
        }
        if is_new {
            let _ = fs::remove_dir_all(state.dir());
        }
    }
    report
}

/// While what was `seen` is kept nobody else rebuilds from these pools, and what is in the way is this rebuild's own.
fn build(
    state: &State,
    settled: &Settled,
    seen: &mut Seen,
    in_place: &mut bool,
    progress: &mut Progress<'_>,
) -> Result<RebuildReport> {
    let (dir, settings) = (state.dir().join(DRAFT), &settled.settings);
    match fs::remove_file(state.settings_path()) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(io_error("remove what an earlier rebuild left at", state.settings_path())(error));
        }
        _ => {}
    }
    let files: Vec<PathBuf> =
        settings.pools.iter().filter(|pool| pool.kind == Kind::Dir).map(PoolSettings::files).collect();
    let mut damaged = settled.damaged.clone();
    let (store, generation, tails) = restore::restore(&dir, &files, &mut damaged, progress)?;
    let mut done = Vec::new();
    if settings.pools.iter().any(|pool| pool.layout == Layout::Mirror) {
        let records = ullage_catalog::verify(&store)?;
        done = bring_back(settings, settled.space, seen, &records, progress)?;
        refuse(&seen.unclear)?;
    }
    progress("records", 0);
    seen.facts.gone.extend(settled.left_out(&store, &seen.facts)?);
    let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let repaired = ullage_catalog::repair(&store, &seen.facts, owner, ullage_fs::now())?;
    let report = ullage_catalog::verify(&store)?;
    store.close()?;
    if let Some(finding) = report.findings.first() {
        return Err(Error::Refused(format!("the rebuilt catalog would not be clean: {}", finding.0)));
    }
    let open = fs::Permissions::from_mode(0o711);
    fs::set_permissions(state.dir(), open).map_err(io_error("open up", state.dir()))?;
    // An earlier state that was here may have left its word for trees that show what the new one has not.
    crate::open::take_in_step(state)?;
    crate::turns::take_over(state, settings)?;
    state.store(settings)?;
    // Last: with it the space is there.
    fs::rename(&dir, state.catalog_path()).map_err(io_error("rename", &dir))?;
    *in_place = true;
    let flush = fs::File::open(state.dir()).and_then(|dir| dir.sync_all());
    flush.map_err(io_error("flush", state.dir()))?;
    let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    let in_the_future = generation.as_ref().and_then(|generation| in_the_future(generation, now));
    Ok(RebuildReport {
        state: state.dir().to_owned(),
        snapshot_age_seconds: generation.as_ref().map(|generation| now.saturating_sub(generation.seconds())),
        warnings: in_the_future.into_iter().chain(seen.unreadable.iter().cloned()).collect(),
        tails,
        damaged,
        files: report.files,
        adopted: repaired.adopted,
        dropped: repaired.dropped,
        done: done.into_iter().chain(repaired.done).collect(),
        lost: repaired.lost,
    })
}

/// A false clock dates a snapshot ahead. Those begun later are dated after it; but not by versions that looked at the clock alone.
fn in_the_future(generation: &Generation, now: u64) -> Option<String> {
    let ahead = generation.seconds().checked_sub(now).filter(|ahead| *ahead > 0)?;
    Some(format!(
        "the snapshot {} is dated {ahead} s after now: a clock was wrong, or is. If what was rebuilt is too old, move this snapshot \
         and its tails out of each pool's .ullage-mirror and rebuild again",
        generation.snapshot()
    ))
}
