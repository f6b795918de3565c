//! `ullage rebuild`: a new state from pools alone.
//!
//! The newest snapshot that is whole, the tails that follow it, then what the backing files themselves say: a file made since
//! comes to `lost+found` with its owner, one removed since is dropped, and every length is measured. With no snapshot
//! left all files come to `lost+found`.

mod restore;

use super::facts::{Progress, Seen, refuse, survey};
use crate::error::io_error;
use crate::mirror::{Generation, generations, read_settings};
use crate::settings::bounds;
use crate::settings::config::refuse_users_of;
use crate::{Error, Kind, Layout, PoolSettings, Result, SpaceSettings, State, refuse_places};
use serde::Serialize;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use ullage_catalog::RepairMode;
use ullage_pool::{Survey, Uuid};
use ullage_types::PoolId;

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
    /// Snapshots and tails that were not whole.
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
/// are gone for good are named in `without`: their files are dropped. Nothing in the pools is changed.
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
    let (settings, gone, uuid) = settle_pools(mountpoint, pools, without)?;
    refuse_places(&settings, state)?;
    let mut seen = survey(&settings.pools, uuid, progress)?;
    refuse(&seen.unclear)?;
    seen.facts.mode = RepairMode::Rebuild;
    seen.facts.gone = gone;
    let is_new = !state.dir().exists();
    let mut in_place = false;
    let report = build(state, &settings, &seen, &mut in_place, progress);
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
    settings: &SpaceSettings,
    seen: &Seen,
    in_place: &mut bool,
    progress: &mut Progress<'_>,
) -> Result<RebuildReport> {
    let dir = state.dir().join(DRAFT);
    match fs::remove_file(state.settings_path()) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(io_error("remove what an earlier rebuild left at", state.settings_path())(error));
        }
        _ => {}
    }
    let files: Vec<PathBuf> =
        settings.pools.iter().filter(|pool| pool.kind == Kind::Dir).map(PoolSettings::files).collect();
    let mut damaged = Vec::new();
    let (store, generation, tails) = restore::restore(&dir, &files, &mut damaged, progress)?;
    progress("records", 0);
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
        done: repaired.done,
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

type Settled = (SpaceSettings, rustc_hash::FxHashSet<PoolId>, Uuid);

/// The settings of the space from what the pools say: their numbers as before, their names and paths as given.
fn settle_pools(mountpoint: &Path, pools: Vec<PoolSettings>, without: &[String]) -> Result<Settled> {
    let mut given = Vec::new();
    let mut space: Option<Uuid> = None;
    for mut pool in pools {
        if pool.kind == Kind::Null {
            let text = format!(
                "pool '{}': nothing is kept in a null pool that a space could be made from; leave it out",
                pool.name
            );
            return Err(Error::Refused(text));
        }
        let layout = PoolSettings::layout_of(&pool.path);
        if pool.layout == Layout::Mirror && layout != pool.layout {
            let (name, path) = (&pool.name, pool.path.display());
            return Err(Error::Refused(format!(
                "pool '{name}': there is no mirror pool at {path}; its layout is {}",
                layout.name()
            )));
        }
        pool.layout = layout;
        // Not kept: this is only who they are.
        let survey = Survey::open(&pool.files(), space, None)
            .map_err(|source| Error::Pool { name: pool.name.clone(), source })?;
        space = Some(survey.space());
        given.push((pool, survey.pool().to_string()));
    }
    let space = space.ok_or_else(|| Error::Refused("name every pool of the space with --pool NAME=PATH".into()))?;
    let mut newest: Option<(Option<Generation>, SpaceSettings)> = None;
    for (pool, _) in &given {
        let Some(settings) = read_settings(&pool.files()).filter(|settings| settings.uuid == space.to_string()) else {
            continue;
        };
        let begun = generations(&pool.files())?.1.into_iter().next();
        if newest.as_ref().is_none_or(|(other, _)| *other < begun) {
            newest = Some((begun, settings));
        }
    }
    let fresh: Vec<PoolSettings> = given.iter().map(|(pool, _)| pool.clone()).collect();
    let spread = newest.as_ref().map_or_else(|| "most-free".to_owned(), |(_, settings)| settings.spread.clone());
    // Gives numbers in order, which stand where nobody knows better.
    let mut settings = SpaceSettings::new(mountpoint, fresh, spread)?;
    if let Some(at) =
        given.iter().enumerate().position(|(at, (_, own))| given[..at].iter().any(|(_, other)| other == own))
    {
        return Err(Error::Refused(format!("the pool '{}' was named twice; name each pool once", given[at].0.name)));
    }
    settings.uuid = space.to_string();
    let mut gone = rustc_hash::FxHashSet::default();
    let known = newest.map(|(_, settings)| settings);
    settings.next_pool = known.as_ref().and_then(SpaceSettings::next_number);
    for (pool, (_, uuid)) in settings.pools.iter_mut().zip(&given) {
        pool.uuid = Some(uuid.clone());
        if let Some(before) = known.iter().flat_map(|known| &known.pools).find(|p| p.uuid.as_deref() == Some(uuid)) {
            pool.id = before.id;
            pool.draining = before.draining;
            if pool.reserve_bytes.0 == 0 {
                pool.reserve_bytes = before.reserve_bytes;
            }
            if pool.sparse.is_usual() {
                pool.sparse = before.sparse;
            }
        } else if let Some(next) = settings.next_pool {
            // Added since: no copy tells its number, and none names a file in it.
            pool.id = next;
            settings.next_pool = next.checked_add(1);
        }
    }
    // The others may be given up.
    if settings.pools.iter().all(|pool| pool.draining) {
        settings.pools.iter_mut().for_each(|pool| pool.draining = false);
    }
    if let Some(known) = known {
        settings.mirror_seconds = known.mirror_seconds;
        let here = |uuid: &Option<String>| given.iter().any(|(_, own)| Some(own) == uuid.as_ref());
        for missing in known.pools.iter().filter(|pool| !here(&pool.uuid)) {
            // What is in a `null` pool nothing brings back.
            if missing.kind == Kind::Dir && !without.contains(&missing.name) {
                return Err(Error::Refused(format!(
                    "the space has a pool '{0}' too, last at {1}: name it with --pool {0}=PATH, or give up the files in it \
                     with --without {0}",
                    missing.name,
                    missing.path.display()
                )));
            }
            gone.insert(PoolId(missing.id));
        }
    }
    if let Some(why) = bounds::wrong(&settings) {
        return Err(Error::Refused(why));
    }
    Ok((settings, gone, space))
}
