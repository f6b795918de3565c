//! From a group's name to its directory. A name begins at the top of the hierarchy, or of the namespace; what is mounted may begin
//! elsewhere, in a container above all.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// A hierarchy as it is mounted.
#[derive(Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// The group that is mounted.
    root: PathBuf,
    /// Where.
    point: PathBuf,
}

impl Hierarchy {
    /// The one that a directory lies in.
    pub fn of(directory: &Path) -> Option<Self> {
        Self::find(&fs::read("/proc/self/mountinfo").ok()?, directory)
    }

    /// By the text of `/proc/self/mountinfo`; of several mounts on each other the last is seen.
    fn find(mountinfo: &[u8], directory: &Path) -> Option<Self> {
        let mounts = mountinfo.split(|byte| *byte == b'\n').filter_map(|line| {
            let mut fields = line.split(|byte| *byte == b' ').skip(3);
            let [root, point] = [fields.next()?, fields.next()?].map(unescaped);
            Some(Self { root, point })
        });
        mounts.filter(|mount| directory.starts_with(&mount.point)).max_by_key(|mount| mount.point.components().count())
    }

    /// The directory of a group that `/proc/PID/cgroup` names so, if it can be seen from here.
    pub fn directory(&self, group: &Path) -> Option<PathBuf> {
        let below = group.strip_prefix(&self.root).ok()?;
        // Outside of the namespace a name goes up.
        let named = below.components().all(|part| matches!(part, Component::Normal(_)));
        named.then(|| self.point.join(below))
    }
}

/// Blanks, line ends and backslashes are written as three octal digits after a backslash.
fn unescaped(text: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        let code = after.get(..3).filter(|_| *first == b'\\').and_then(|code| std::str::from_utf8(code).ok());
        let byte = code.and_then(|code| u8::from_str_radix(code, 8).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[3..] } else { after };
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: names were joined to the mount point as they are, so that in a container no process found back.
    #[test]
    fn a_name_begins_where_what_is_mounted_does() {
        let text = b"31 23 0:28 / /c rw - tmpfs tmpfs rw\n35 31 0:32 / /c/mem rw - cgroup cgroup rw,memory\n\
                     36 35 0:32 /pod\\040\xff/one /c/mem rw - cgroup cgroup rw,memory\n37 31 0:33 /.. /c/up rw - cgroup cgroup rw\n";
        let of = |directory: &str| Hierarchy::find(text, Path::new(directory)).unwrap();
        let named =
            |hierarchy: &Hierarchy, name: &[u8]| hierarchy.directory(&PathBuf::from(OsString::from_vec(name.to_vec())));
        let container = of("/c/mem/box/ullage.contributed");
        assert_eq!(named(&container, b"/pod \xff/one/a"), Some("/c/mem/a".into()));
        assert_eq!(named(&container, b"/pod \xff/one"), Some("/c/mem".into()));
        assert_eq!([named(&container, b"/pod"), named(&container, b"/")], [None, None]);
        let whole = Hierarchy { root: "/".into(), point: "/c/mem".into() };
        assert_eq!(named(&whole, b"/a/b"), Some("/c/mem/a/b".into()));
        assert_eq!(named(&whole, b"/../b"), None, "outside of the namespace");
        assert_eq!([named(&of("/c/up/x"), b"/../b"), named(&of("/c/up/x"), b"/")], [Some("/c/up/b".into()), None]);
    }
}
