//! The kernel's list of mounts. Its paths are bytes: any user can mount on one that is no text.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its number, as long as it is there: one device may be mounted at several places.
    pub id: u64,
    /// Major and minor number of its device.
    pub device: (u32, u32),
    /// Where.
    pub point: PathBuf,
    /// The kind of its file system.
    pub kind: String,
    /// What it says it comes from: for a space, its state directory.
    pub source: PathBuf,
    /// Who has mounted it, where that is shown, as FUSE's are: the helper of ordinary users lets nobody say another.
    pub owner: Option<u32>,
}

impl Listed {
    /// Whether it is of the kind that spaces are.
    #[must_use]
    pub fn may_be_a_space(&self) -> bool {
        matches!(self.kind.as_str(), "fuse" | "fuse.ullage")
    }
}

/// All mounts as a process sees them, this one when none is named. Of several on one point the last is the one that is seen.
///
/// # Errors
/// When the list cannot be read.
pub fn list_mounts(process: Option<u32>) -> io::Result<Vec<Listed>> {
    let whose = process.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    let table = std::fs::read(format!("/proc/{whose}/mountinfo"))?;
    Ok(table.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

fn parse(line: &[u8]) -> Option<Listed> {
    let mut words = line.split(|byte| *byte == b' ');
    let id = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    let mut words = words.skip(1);
    let (major, minor) = std::str::from_utf8(words.next()?).ok()?.split_once(':')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let point = unescape(words.nth(1)?);
    // So many options follow, and a dash after them.
    let mut words = words.skip_while(|word| *word != b"-").skip(1);
    let kind = String::from_utf8_lossy(words.next()?).into_owned();
    let source = unescape(words.next()?);
    let mut options = words.next().unwrap_or_default().split(|byte| *byte == b',');
    let owner = options.find_map(|option| std::str::from_utf8(option.strip_prefix(b"user_id=")?).ok()?.parse().ok());
    Some(Listed { id, device, point, kind, source, owner })
}

/// Blanks and backslashes are in octal.
fn unescape(text: &[u8]) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((first, more)) = rest.split_first() {
        let octal = more.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => (bytes.push(byte), rest = &more[3..]),
            None => (bytes.push(*first), rest = more),
        };
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn mount_points_with_blanks_are_read() {
        assert_eq!(unescape(b"/a\\040b\\134c"), Path::new("/a b\\c"));
    }

    #[test]
    fn a_line_of_the_table_is_read() {
        let text =
            br"36 35 0:321 / /mnt\040a\134b rw,noatime shared:1 - fuse.ullage /a\040state rw,user_id=1000,group_id=0";
        let (point, kind) = (r"/mnt a\b".into(), "fuse.ullage".into());
        assert_eq!(
            parse(text),
            Some(Listed { id: 36, device: (0, 321), point, kind, source: "/a state".into(), owner: Some(1000) })
        );
        assert_eq!(parse(b"36 35 what"), None);
    }

    /// Regression: one mount on such a path, of whatever user, and nobody's space was found any more.
    #[test]
    fn mount_points_that_are_no_text_are_read() {
        let line = b"36 35 0:98 / /mnt/\xFF\\040x rw,noatime shared:1 master:2 - fuse.ullage /srv/a,b rw,user_id=0";
        let mount = parse(line).unwrap();
        assert_eq!(mount.point.as_os_str().as_encoded_bytes(), b"/mnt/\xFF x");
        assert_eq!((mount.source.as_path(), mount.may_be_a_space()), (Path::new("/srv/a,b"), true));
        assert!(parse(b"").is_none());
        assert!(list_mounts(None).unwrap().iter().any(|mount| mount.point == Path::new("/proc")));
    }
}
