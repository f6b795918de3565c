//! The file systems that are compared; one file each.

mod bindfs;
mod mergerfs;
mod native;
mod ullage;

use anyhow::{Result, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// How many requests of each kind a file system has served so far.
pub type MessageCounts = BTreeMap<String, u64>;

/// One way to get a directory that stands on the ground.
pub trait System {
    /// Why it cannot run here, if it cannot.
    fn unavailable(&self) -> Option<String>;

    /// Makes it usable, with all it stores below `place` (an existing directory on the ground), and gives the
    /// directory that a user works in. What an earlier `up` stored there is still there.
    fn up(&mut self, place: &Path) -> Result<PathBuf>;

    /// Ends it; what it stores stays.
    fn down(&mut self) -> Result<()>;

    /// The requests it has served since `up`, when it can tell.
    fn messages(&self) -> Result<Option<MessageCounts>> {
        Ok(None)
    }

    /// Whether bytes written can be read back.
    fn keeps_data(&self) -> bool {
        true
    }
}

/// A system under test and what it is called in the report.
pub struct Named {
    /// As given by the user, so unique.
    pub name: String,
    /// Its driver.
    pub system: Box<dyn System>,
}

/// Makes a system from `KIND` or `KIND:ARGUMENTS`; `program` is the `ullage` binary to run, `extra_up` what every
/// `ullage up` is given besides.
pub fn parse(spec: &str, program: &Path, extra_up: &[String]) -> Result<Named> {
    let (kind, extra) = spec.split_once(':').unwrap_or((spec, ""));
    let extra: Vec<String> = extra.split_whitespace().map(str::to_owned).collect();
    let up = || [extra_up, &extra].concat();
    let system: Box<dyn System> = match kind {
        "native" if extra.is_empty() => Box::new(native::Native),
        "native" => bail!("native ext4 takes no arguments, as in {spec:?}"),
        "mergerfs" => Box::new(mergerfs::Mergerfs::new(extra)),
        "bindfs" => Box::new(bindfs::Bindfs::new(extra)),
        "ullage" => Box::new(ullage::Ullage::new(program, up(), false)),
        "null" => Box::new(ullage::Ullage::new(program, up(), true)),
        _ => bail!("no system {kind:?}: there are native, ullage, null (ullage over a null pool), mergerfs and bindfs"),
    };
    Ok(Named { name: spec.to_owned(), system })
}

/// A directory below `place`, made if missing.
fn directory(place: &Path, name: &str) -> Result<PathBuf> {
    let path = place.join(name);
    std::fs::create_dir_all(&path)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_names_a_kind_and_its_arguments() {
        let program = Path::new("/bin/true");
        assert_eq!(parse("ullage:--transport fuser", program, &[]).unwrap().name, "ullage:--transport fuser");
        assert!(!parse("null", program, &[]).unwrap().system.keeps_data());
        assert!(parse("native:x", program, &[]).is_err());
        let error = parse("zfs", program, &[]).err().unwrap().to_string();
        assert!(error.contains("no system \"zfs\""), "{error}");
    }
}
