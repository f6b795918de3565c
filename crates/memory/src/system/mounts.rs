//! Where cgroup hierarchies and debugfs are mounted.

use super::read;
use crate::error::Result;
use std::path::PathBuf;

/// Mount points of the control group hierarchies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounts {
    /// The v1 hierarchy with the memory controller.
    pub v1_memory: Option<PathBuf>,
    /// The v1 hierarchy with the freezer.
    pub v1_freezer: Option<PathBuf>,
    /// The unified hierarchy.
    pub v2: Option<PathBuf>,
    /// debugfs.
    pub debugfs: Option<PathBuf>,
}

impl Mounts {
    /// As they are now.
    pub fn read() -> Result<Self> {
        Ok(Self::parse(&read("/proc/self/mounts")?))
    }

    /// From the text of `/proc/mounts`; the first mount of each kind counts.
    pub fn parse(text: &str) -> Self {
        let mut mounts = Self::default();
        for line in text.lines() {
            let mut fields = line.split(' ').skip(1);
            let (Some(point), Some(kind), Some(options)) = (fields.next(), fields.next(), fields.next()) else {
                continue;
            };
            let has = |controller: &str| kind == "cgroup" && options.split(',').any(|option| option == controller);
            let path = || Some(PathBuf::from(point.replace("\\040", " ")));
            let slots = [
                (has("memory"), &mut mounts.v1_memory),
                (has("freezer"), &mut mounts.v1_freezer),
                (kind == "cgroup2", &mut mounts.v2),
                (kind == "debugfs", &mut mounts.debugfs),
            ];
            for (_, slot) in slots.into_iter().filter(|(matches, slot)| *matches && slot.is_none()) {
                *slot = path();
            }
        }
        mounts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_are_found_by_their_options() {
        let mounts = Mounts::parse(
            "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
             cgroup /sys/fs/cgroup/mem\\040ory cgroup rw,relatime,memory 0 0\n\
             cgroup /f cgroup rw,freezer,cpu 0 0\ncgroup2 /u cgroup2 rw 0 0\n",
        );
        assert_eq!(mounts.v1_memory.as_deref(), Some("/sys/fs/cgroup/mem ory".as_ref()));
        assert_eq!(mounts.v1_freezer.as_deref(), Some("/f".as_ref()));
        assert_eq!(mounts.v2.as_deref(), Some("/u".as_ref()));
        assert_eq!(mounts.debugfs, None);
    }
}
