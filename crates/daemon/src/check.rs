//! `ullage check`: a space that is not mounted, record by record against its pools.

use crate::{Error, Kind, Result, State};
use serde::Serialize;
use ullage_kv::{EngineKind, Options, Store};

/// What a check found.
#[derive(Clone, Debug, Serialize)]
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
}

/// Checks the catalog against itself and against the pools. The space must be down.
pub fn check(state: &State) -> Result<CheckReport> {
    let settings =
        state.load()?.ok_or_else(|| Error::Refused(format!("there is no space at {}", state.dir().display())))?;
    let options = Options { interval: None, ..Options::default() };
    let store = Store::open(&state.catalog_path(), EngineKind::Fjall, options)?;
    let report = ullage_catalog::verify(&store)?;
    let mut findings: Vec<String> = report.findings.into_iter().map(|finding| finding.0).collect();
    let mut present = 0;
    let mut scan = |pool: &crate::PoolSettings| {
        for ((id, generation), file) in &report.bindings {
            if id.0 != pool.id {
                continue;
            }
            let Some(locator) = report.locators.get(&(*id, *generation)) else { continue };
            let path = pool.path.join(std::ffi::OsStr::new(&*String::from_utf8_lossy(locator)));
            if path.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
                present += 1;
            } else {
                findings.push(format!("the backing file {} of inode {file} is missing", path.display()));
            }
        }
    };
    for pool in settings.pools.iter().filter(|pool| pool.kind == Kind::Dir) {
        scan(pool);
    }
    store.close()?;
    Ok(CheckReport {
        files: report.files,
        directories: report.directories,
        entries: report.entries,
        orphans: report.orphans,
        backing_files: present,
        findings,
    })
}
