//! Which sampler can be used here, and why the others cannot.

use super::{ClearRefs, IdleBitmap, LruGen, Sampler};
use crate::error::{Error, Result};
use crate::system::mounts::Mounts;
use crate::system::smaps;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What was found out about one sampler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Its name on the command line.
    pub name: String,
    /// Why it cannot be used; `None` if it can.
    pub why_not: Option<String>,
}

/// The sampler chosen, and what was found out about all.
pub struct Choice {
    /// The sampler.
    pub sampler: Box<dyn Sampler>,
    /// In order of preference.
    pub candidates: Vec<Candidate>,
}

/// Names of the samplers, best first.
const NAMES: [&str; 3] = ["mglru", "idle-bitmap", "clear-refs"];

/// Chooses the best sampler that works, or the one named. `group` is the contributed group, which is
/// not watched; `base` is what contains it.
pub fn choose(mounts: &Mounts, base: &Path, group: &Path, only: Option<&str>) -> Result<Choice> {
    if let Some(name) = only.filter(|name| !NAMES.contains(name)) {
        return Err(Error::Invalid(format!("no sampler is called '{name}': choose from {}", NAMES.join(", "))));
    }
    let mut candidates = Vec::new();
    let mut chosen: Option<Box<dyn Sampler>> = None;
    for name in NAMES.into_iter().filter(|name| only.is_none_or(|only| only == *name)) {
        let tried = match name {
            "mglru" => mglru(mounts, base, group),
            "idle-bitmap" => idle_bitmap(),
            _ => clear_refs(),
        };
        candidates.push(Candidate { name: name.to_owned(), why_not: tried.as_ref().err().cloned() });
        if let (None, Ok(sampler)) = (&chosen, tried) {
            chosen = Some(sampler);
        }
    }
    match chosen {
        Some(sampler) => Ok(Choice { sampler, candidates }),
        None => Err(Error::NoSampler(
            candidates
                .iter()
                .map(|one| format!("  {}: {}", one.name, one.why_not.as_deref().unwrap_or("works")))
                .collect::<Vec<_>>()
                .join("\n"),
        )),
    }
}

type Tried = std::result::Result<Box<dyn Sampler>, String>;

fn mglru(mounts: &Mounts, base: &Path, group: &Path) -> Tried {
    if !Path::new("/sys/kernel/mm/lru_gen").exists() {
        return Err("this kernel has no MGLRU (CONFIG_LRU_GEN)".into());
    }
    let debugfs = mounts.debugfs.as_deref().ok_or("debugfs is not mounted")?;
    let hierarchy = mounts
        .v2
        .as_deref()
        .filter(|root| group.starts_with(root))
        .ok_or("ages are per cgroup v2 group, and the group is not in v2")?;
    let sampler = LruGen::new(debugfs.join("lru_gen"), hierarchy, base, group).map_err(|error| error.to_string())?;
    Ok(Box::new(sampler))
}

fn idle_bitmap() -> Tried {
    let path = Path::new("/sys/kernel/mm/page_idle/bitmap");
    if !path.exists() {
        return Err("this kernel has no idle page tracking (CONFIG_IDLE_PAGE_TRACKING)".into());
    }
    IdleBitmap::open(path).map(|sampler| Box::new(sampler) as Box<dyn Sampler>).map_err(|error| error.to_string())
}

fn clear_refs() -> Tried {
    let me = std::process::id() as i32;
    smaps::clear_refs(me).map_err(|error| format!("/proc/PID/clear_refs cannot be written: {error}"))?;
    smaps::Rollup::read(me).map_err(|error| format!("/proc/PID/smaps_rollup cannot be read: {error}"))?;
    Ok(Box::new(ClearRefs::default()))
}
