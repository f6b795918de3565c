//! Which back end can be used here, and why the others cannot.

use super::enabled::{self, is_enabled, lists_memory};
use super::{Backend, V1, V2};
use crate::error::{Error, Result};
use crate::sys;
use crate::system::mounts::Mounts;
use crate::system::read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Name of the contributed group.
pub const GROUP_NAME: &str = "ullage.contributed";

/// A back end and how it was found.
pub struct Found {
    /// The back end, its group created.
    pub backend: Box<dyn Backend>,
    /// Why this one: one line per candidate.
    pub reasons: Vec<String>,
}

/// What a back end is about to make: told before, so that it can be undone whatever happens in between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The groups, in every hierarchy.
    pub directories: Vec<PathBuf>,
    /// The group whose children get the memory controller, if they have it not.
    pub enabled: Option<PathBuf>,
}

/// Takes note of a plan.
type Note<'a> = &'a mut dyn FnMut(Plan) -> Result<()>;

/// Chooses a back end: cgroup v2 where the memory controller is there, else v1.
///
/// `within` is the box: a cgroup directory whose limit is the memory to divide. Without it the whole
/// machine is meant, or for an ordinary user the part of the hierarchy delegated to them. Nothing is made that `note` has not
/// taken note of; what is tried last is what is made.
pub fn choose(mounts: &Mounts, within: Option<&Path>, note: Note) -> Result<Found> {
    let mut reasons = Vec::new();
    match v2(mounts, within, note) {
        Ok(backend) => return Ok(Found { backend, reasons: vec!["cgroup v2: memory.high".into()] }),
        Err(why) => reasons.push(format!("cgroup v2: {why}")),
    }
    match v1(mounts, within, note) {
        Ok(backend) => {
            reasons.push("cgroup v1: memory.limit_in_bytes".into());
            Ok(Found { backend, reasons })
        }
        Err(why) => {
            reasons.push(format!("cgroup v1: {why}"));
            Err(Error::NoController(reasons.iter().map(|reason| format!("  {reason}")).collect::<Vec<_>>().join("\n")))
        }
    }
}

fn v2(mounts: &Mounts, within: Option<&Path>, note: Note) -> std::result::Result<Box<dyn Backend>, String> {
    let root = mounts.v2.as_deref().ok_or("not mounted")?;
    let base = match within {
        Some(base) if base.starts_with(root) => base.to_owned(),
        Some(base) => return Err(format!("{} is not in it", base.display())),
        None => delegated(root)?,
    };
    let controllers = read(base.join("cgroup.controllers")).map_err(|error| error.to_string())?;
    if !lists_memory(&controllers) {
        return Err(format!(
            "the memory controller is not available in {}; with systemd: 'systemctl edit user@.service', \
             add '[Service]' and 'Delegate=memory'",
            base.display()
        ));
    }
    let group = base.join(GROUP_NAME);
    let enable = !is_enabled(&base).map_err(|error| error.to_string())?;
    let plan = Plan { directories: vec![group.clone()], enabled: enable.then(|| base.clone()) };
    note(plan).map_err(|error| error.to_string())?;
    if enable {
        enabled::enable(&base).map_err(|error| match error.errno() {
            Some(libc::EBUSY) => format!(
                "{} has processes of its own, so its children cannot have the memory controller; give a --box without",
                base.display()
            ),
            _ => format!("the memory controller cannot be enabled below {}: {error}", base.display()),
        })?;
    }
    match V2::create(&base, group) {
        Ok(backend) => Ok(Box::new(backend)),
        Err(error) => {
            // Another back end may be found, which needs it not.
            let _else_it_stays = if enable { enabled::disable(&base) } else { Ok(()) };
            Err(error.to_string())
        }
    }
}

fn v1(mounts: &Mounts, within: Option<&Path>, note: Note) -> std::result::Result<Box<dyn Backend>, String> {
    let root = mounts.v1_memory.as_deref().ok_or("no memory hierarchy mounted")?;
    let base = within.unwrap_or(root);
    if !base.starts_with(root) {
        return Err(format!("{} is not in it", base.display()));
    }
    if !base.is_dir() {
        return Err(format!("{} does not exist", base.display()));
    }
    if sys::effective_user() != 0 && !writable(base) {
        return Err(format!(
            "{} is not yours to write: v1 hierarchies need root, or a directory given to you",
            base.display()
        ));
    }
    // The freezer is another hierarchy: there all groups are beside each other, with the number of the box, since no name made of its
    // path would be another for each, and short enough.
    let number = std::fs::metadata(base).map_err(|error| format!("{}: {error}", base.display()))?.ino();
    let name = if base == root { GROUP_NAME.to_owned() } else { format!("{GROUP_NAME}.{number}") };
    let freezer = mounts.v1_freezer.as_ref().filter(|mount| writable(mount)).map(|mount| mount.join(name));
    let group = base.join(GROUP_NAME);
    let directories = std::iter::once(group.clone()).chain(freezer.clone()).collect();
    note(Plan { directories, enabled: None }).map_err(|error| error.to_string())?;
    let backend = V1::create(base, base == root, group, freezer).map_err(|error| error.to_string())?;
    Ok(Box::new(backend))
}

/// The highest group above our own that we may write to: for root the root, else what was delegated.
fn delegated(root: &Path) -> std::result::Result<PathBuf, String> {
    if sys::effective_user() == 0 {
        return Ok(root.to_owned());
    }
    let own = read("/proc/self/cgroup").map_err(|error| error.to_string())?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::/")).ok_or("this process is in no v2 group")?;
    root.join(path)
        .ancestors()
        .take_while(|group| *group != root && writable(group) && writable(&group.join("cgroup.procs")))
        .last()
        .map(Path::to_owned)
        .ok_or_else(|| {
            format!("no part of the hierarchy is delegated to you (own group /{path}); with systemd: 'Delegate=memory' for user@.service, \
                     or start with 'systemd-run --user --scope -p Delegate=yes'")
        })
}

fn writable(path: &Path) -> bool {
    sys::may_write(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_any_controller_every_candidate_says_why() {
        let Err(error) = choose(&Mounts::default(), None, &mut |_| Ok(())) else { panic!("nothing is mounted") };
        let text = error.to_string();
        assert!(text.contains("cgroup v2: not mounted") && text.contains("cgroup v1: no memory hierarchy"), "{text}");
    }

    /// Regression: a controller killed in between left its group, and the controller for all children of the box stayed for ever.
    #[test]
    fn what_will_be_made_is_told_before() {
        let dir = tempfile::tempdir().unwrap();
        let (base, mounts) = (dir.path(), Mounts { v2: Some(dir.path().into()), ..Mounts::default() });
        let control = base.join("cgroup.subtree_control");
        std::fs::write(base.join("cgroup.controllers"), "cpu memory pids").unwrap();
        for (enabled, expected) in [("", Some(base.to_owned())), ("memory", None)] {
            std::fs::write(&control, enabled).unwrap();
            let mut plans = Vec::new();
            let found = choose(&mounts, Some(base), &mut |plan| {
                assert!(!base.join(GROUP_NAME).exists() && std::fs::read_to_string(&control).unwrap() == enabled);
                plans.push(plan);
                Ok(())
            });
            drop(found.unwrap());
            assert_eq!(plans, [Plan { directories: vec![base.join(GROUP_NAME)], enabled: expected }]);
            let now = std::fs::read_to_string(&control).unwrap();
            assert_eq!(now, if enabled.is_empty() { "+memory" } else { "memory" });
            std::fs::remove_dir(base.join(GROUP_NAME)).unwrap();
        }
        let refused = choose(&mounts, Some(base), &mut |_| Err(Error::Stopped));
        assert!(refused.is_err() && !base.join(GROUP_NAME).exists(), "what cannot be written down is not made");
    }

    #[test]
    fn a_box_outside_the_hierarchy_is_refused() {
        let mounts = Mounts { v1_memory: Some("/sys/fs/cgroup/memory".into()), ..Mounts::default() };
        let Err(error) = choose(&mounts, Some(Path::new("/tmp")), &mut |_| Ok(())) else { panic!("/tmp is no cgroup") };
        assert!(error.to_string().contains("/tmp is not in it"), "{error}");
    }
}
