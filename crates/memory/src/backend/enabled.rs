//! Whether the children of a v2 group have the memory controller.

use super::members::children;
use crate::error::Result;
use crate::system::{read, write};
use std::path::Path;

/// What bounds or guards a group's memory, and what stands there where it does not.
const SETTINGS: [(&str, &str); 6] = [
    ("memory.max", "max"),
    ("memory.high", "max"),
    ("memory.swap.max", "max"),
    ("memory.swap.high", "max"),
    ("memory.min", "0"),
    ("memory.low", "0"),
];

/// Whether they have it.
pub fn is_enabled(base: &Path) -> Result<bool> {
    Ok(lists_memory(&read(base.join("cgroup.subtree_control"))?))
}

/// Gives it to them.
pub fn enable(base: &Path) -> Result<()> {
    write(base.join("cgroup.subtree_control"), "+memory")
}

/// Takes it from them again, unless somebody uses what they have got by it.
pub fn disable(base: &Path) -> Result<()> {
    let uses = |group: &Path| {
        let is_set =
            |(file, unset): &(&str, &str)| read(group.join(file)).is_ok_and(|setting| setting.trim() != *unset);
        is_enabled(group).unwrap_or(false) || SETTINGS.iter().any(is_set)
    };
    if !base.is_dir() || children(base, base).iter().any(|group| uses(group)) {
        return Ok(());
    }
    match write(base.join("cgroup.subtree_control"), "-memory") {
        // A child gave it to its own since, or the box is gone.
        Err(error) if matches!(error.errno(), Some(libc::EBUSY | libc::ENOENT | libc::ENODEV)) => Ok(()),
        other => other,
    }
}

/// Whether the memory controller is among those listed.
pub fn lists_memory(controllers: &str) -> bool {
    controllers.split_whitespace().any(|controller| controller == "memory")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn it_is_taken_back_unless_a_child_uses_it() {
        let dir = tempfile::tempdir().unwrap();
        let child = dir.path().join("child");
        fs::create_dir(&child).unwrap();
        let control = dir.path().join("cgroup.subtree_control");
        let taken_back = |file: &str, text: &str| {
            fs::write(&control, "memory").unwrap();
            fs::write(child.join(file), text).unwrap();
            disable(dir.path()).unwrap();
            fs::read_to_string(&control).unwrap() == "-memory"
        };
        assert!(taken_back("memory.high", "max\n") && taken_back("memory.low", "0\n"));
        assert!(!taken_back("memory.max", "4096\n") && taken_back("memory.max", "max\n"));
        assert!(
            taken_back("cgroup.subtree_control", "pids\n") && !taken_back("cgroup.subtree_control", "memory pids\n")
        );
        disable(&dir.path().join("gone")).unwrap();
    }
}
