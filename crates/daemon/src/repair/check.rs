//! `ullage check [--repair]`: a space that is not mounted, record by record against its pools.

use super::facts::{Progress, refuse, survey};
use crate::pools::bring_back::bring_back;
use crate::process::owner::go_on_as_owner_of;
use crate::{Error, Kind, PoolSettings, Result, SpaceSettings, State, command};
use rustc_hash::FxHashSet;
use serde::Serialize;
use std::path::PathBuf;
use ullage_catalog::{Facts, Report, begin_repair, describe_key, is_told_once, is_under_way};
use ullage_kv::{Batch, EngineKind, Kv, Options, Store};
use ullage_pool::{DirPool, leaf_of};
use ullage_types::PoolId;

/// What a check found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CheckReport {
    /// Files of all kinds.
    pub files: u64,
    /// Directories among them.
    pub directories: u64,
    /// Directory entries.
    pub entries: u64,
    /// Files without a name.
    pub orphans: u64,
    /// Backing files that are due and there.
    pub backing_files: u64,
    /// Everything found wrong; empty for a clean space.
    pub findings: Vec<String>,
    /// What was done about it, where that was asked for and anything was to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repair: Option<RepairReport>,
}

/// What a repair did.
#[derive(Clone, Debug, Serialize)]
pub struct RepairReport {
    /// A copy of the catalog as it was before: put in place of `catalog` it undoes the repair.
    #[serde(serialize_with = "crate::settings::paths::show")]
    pub saved: PathBuf,
    /// What was set right.
    pub done: Vec<String>,
    /// What could not be restored.
    pub lost: Vec<String>,
    /// Records changed.
    pub changes: u64,
}

/// Checks the catalog against itself and against the pools, and with `repair` sets right what is wrong. The space must be
/// down. Repair saves the catalog as it was, asks nothing, and ends in a clean space or an error that changed nothing. Where a
/// pool holds none of its files it is refused, but for pools that are named in `without`; these need not be there. Where root checks a space
/// of an ordinary user's, the calling thread is that user's from then on.
pub fn check(state: &State, repair: bool, without: &[String], progress: &mut Progress<'_>) -> Result<CheckReport> {
    if repair {
        state.refuse_users()?;
    } else {
        go_on_as_owner_of(state)?;
    }
    let mut settings = state.existing()?;
    let space = state.uuid_in(&settings)?;
    state.refuse_without_catalog()?;
    let mut gone = FxHashSet::default();
    for name in without {
        let pool = settings.pool_called(name)?;
        if is_gone(pool)? {
            gone.insert(PoolId(pool.id));
            settings.leave_out(name)?;
        }
    }
    // For as long as this takes, nobody else opens the pools.
    let _given = crate::ballast::Given::of(state)?;
    let store = open(state)?;
    let mut seen = survey(&settings.pools, space, progress)?;
    seen.facts.gone = gone;
    let facts = &seen.facts;
    let (mut report, records) = look(&store, &settings, facts, progress)?;
    store.close()?;
    report.findings.extend(seen.unclear.iter().chain(&seen.unreadable).cloned());
    let older = crate::turns::older(state, &settings)?;
    report.findings.extend(older.clone());
    if !repair || report.findings.is_empty() {
        return Ok(report);
    }
    refuse(&seen.unclear)?;
    refuse(&seen.unreadable)?;
    if let Some(why) = older {
        return Err(Error::Refused(why));
    }
    let mut done = Vec::new();
    if let Some(records) = &records {
        done = bring_back(&settings, space, &mut seen, records, progress)?;
    }
    refuse_empty(state, &settings, &seen.facts, records.as_ref(), without)?;
    let saved = super::saved::save(state)?;
    let store = open(state)?;
    // Plain trees show what the catalog says now: the next start has to look at all of them.
    crate::open::take_in_step(state)?;
    let (dropped, mut lost) = drop_damaged(&store)?;
    done.extend(dropped);
    if records.is_none() {
        done.extend(bring_back(&settings, space, &mut seen, &ullage_catalog::verify(&store)?, progress)?);
    }
    let facts = &seen.facts;
    progress("records", 0);
    let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let repaired = ullage_catalog::repair(&store, facts, owner, ullage_fs::now())?;
    done.extend(repaired.done);
    lost.extend(repaired.lost);
    let (after, _) = look(&store, &settings, facts, progress)?;
    store.close()?;
    if !after.findings.is_empty() {
        return Err(Error::Refused(format!(
            "the repair left something wrong ({}); the catalog as it was is in {}; `ullage rebuild` makes a new one from \
             the pools",
            after.findings[0],
            saved.display()
        )));
    }
    report.repair = Some(RepairReport { saved, done, lost, changes: repaired.changes });
    Ok(report)
}

/// Whether there is nothing of a pool where it lay: another disk, or none.
fn is_gone(pool: &PoolSettings) -> Result<bool> {
    let files = pool.files();
    if pool.kind == Kind::Null {
        return Ok(false);
    }
    let is_there = DirPool::is_in(&files).map_err(|error| {
        let (name, files) = (&pool.name, files.display());
        Error::Refused(format!(
            "cannot look for the pool '{name}' at {files} ({error}): unmount what is left of its disk, and try again"
        ))
    })?;
    Ok(!is_there)
}

pub(crate) fn open(state: &State) -> Result<Store> {
    let options = Options { interval: None, ..Options::default() };
    Store::open(&state.catalog_path(), EngineKind::Fjall, options).map_err(|error| Error::from(error).with_holder())
}

/// Refuses to drop all that lies in a pool: more likely its files cannot be seen than that each of them is gone.
fn refuse_empty(
    state: &State,
    settings: &SpaceSettings,
    facts: &Facts,
    records: Option<&Report>,
    without: &[String],
) -> Result<()> {
    for pool in settings.pools.iter().filter(|pool| !without.contains(&pool.name)) {
        let id = PoolId(pool.id);
        let empty = facts.pools.contains(&id) && facts.found.values().all(|found| found.pool != id);
        // What cannot be read may say so, too.
        let due = records.is_none_or(|records| {
            let mut due = records.due.iter().filter(|((pool, _), _)| *pool == id);
            due.any(|(_, due)| !records.marks.contains(&(id, leaf_of(&due.locator).into())))
        });
        if empty && due {
            return Err(Error::Refused(format!(
                "there is not one backing file in the pool '{0}' ({1}), and a repair would drop all files that lie in it: \
                 mount the right disk there, or bring its files back; if they are gone for good, give them up with `{2}`",
                pool.name,
                pool.files().display(),
                command(&format!("check --repair --without {}", pool.name), state, &settings.mountpoint)
            )));
        }
    }
    Ok(())
}

/// Looks at every record and every backing file; gives the records too, where they can be read.
fn look(
    store: &Store,
    settings: &SpaceSettings,
    facts: &Facts,
    progress: &mut Progress<'_>,
) -> Result<(CheckReport, Option<Report>)> {
    let damaged = store.damaged()?;
    if !damaged.is_empty() {
        let mut findings: Vec<String> =
            damaged.iter().map(|key| format!("{} fails its checksum", describe_key(key))).collect();
        findings.push("nothing else could be checked while records fail their checksums".into());
        return Ok((CheckReport { findings, ..CheckReport::default() }, None));
    }
    progress("records", 0);
    let report = ullage_catalog::verify(store)?;
    let mut findings: Vec<String> = report.findings.iter().map(|finding| finding.0.clone()).collect();
    let backing_files = compare(&report, facts, settings, &mut findings);
    let (files, directories, entries, orphans) = (report.files, report.directories, report.entries, report.orphans);
    let looked = CheckReport { files, directories, entries, orphans, backing_files, findings, repair: None };
    Ok((looked, Some(report)))
}

/// Bindings against backing files. In a marked leaf they may differ: the next start settles that.
fn compare(report: &Report, facts: &Facts, settings: &SpaceSettings, findings: &mut Vec<String>) -> u64 {
    let shown = |id: ullage_types::PoolId, locator: &[u8]| {
        let pool = settings.pools.iter().find(|pool| pool.id == id.0);
        let root = pool.map_or_else(PathBuf::new, PoolSettings::files);
        root.join(String::from_utf8_lossy(locator).as_ref()).display().to_string()
    };
    let mut present = 0;
    for (&(pool, generation), due) in &report.due {
        let (file, locator) = (due.file, &due.locator);
        if facts.gone.contains(&pool) {
            let name = settings.pools.iter().find(|settings| settings.id == pool.0).map_or("", |pool| &pool.name);
            findings.push(format!("inode {file} lies in the pool '{name}', of which there is nothing"));
            continue;
        }
        if !facts.pools.contains(&pool) {
            if !settings.pools.iter().any(|settings| settings.id == pool.0) {
                findings.push(format!("inode {file} lies in pool {pool}, which the space does not have"));
            }
            continue;
        }
        let marked = report.marks.contains(&(pool, leaf_of(locator).into()));
        match facts.found.get(&(file, generation)) {
            Some(found) if found.pool == pool && found.locator == *locator => {
                present += 1;
                if found.unreadable {
                    continue;
                }
                if !marked && due.size != found.size {
                    findings.push(format!("inode {file} has another length than {}", shown(pool, locator)));
                }
                if !marked && found.bare {
                    findings.push(format!(
                        "the backing file {} has lost its attribute: inode {file} cannot be opened until a repair, and the \
                         start after it, have written it again",
                        shown(pool, locator)
                    ));
                }
            }
            Some(found) => findings.push(format!(
                "the backing file of inode {file} is not at {} but at {}",
                shown(pool, locator),
                shown(found.pool, &found.locator)
            )),
            None if marked && !due.unreadable => {}
            None => findings.push(format!("the backing file {} of inode {file} is missing", shown(pool, locator))),
        }
    }
    for (&(file, generation), found) in &facts.found {
        let is_due = report.due.get(&(found.pool, generation)).is_some_and(|due| due.file == file);
        if !is_due && !report.marks.contains(&(found.pool, leaf_of(&found.locator).into())) {
            findings.push(format!("no file is bound to the backing file {}", shown(found.pool, &found.locator)));
        }
    }
    present
}

/// Takes the records that fail their checksum out of the way; says of which that is mended by others, and of which it is not. Until the repair is
/// over nobody opens the catalog: what is not there would pass for what never was.
fn drop_damaged(store: &Store) -> Result<(Vec<String>, Vec<String>)> {
    let damaged = store.damaged()?;
    // What cannot be read of an interrupted one's word is among what is dropped.
    let mut lost = is_under_way(store).ok().flatten().unwrap_or_default();
    let mut done = Vec::new();
    if damaged.is_empty() {
        return Ok((done, lost));
    }
    let mut batch = Batch::new();
    for key in &damaged {
        let told = if is_told_once(key) { &mut lost } else { &mut done };
        told.push(format!("{} failed its checksum and was dropped", describe_key(key)));
    }
    for key in damaged {
        batch.del(key);
    }
    begin_repair(&mut batch, &lost);
    store.commit(batch)?;
    store.checkpoint()?;
    Ok((done, lost))
}
