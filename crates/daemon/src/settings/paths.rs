//! Paths that are not UTF-8. Settings and messages are: no space is made at such a path, and answers show one as well as they can.

use crate::{Error, Result, SpaceSettings, State, settled};
use serde::Serializer;
use std::path::{Path, PathBuf};

/// Refuses what `space.toml`, or the kernel's list of mounts, could not hold; to be asked before anything is made.
pub(crate) fn refuse_odd_paths(settings: &SpaceSettings, state: &State) -> Result<()> {
    let pools = settings.pools.iter().map(|pool| ("pool", pool.path.as_path()));
    let all =
        [("mount point", settings.mountpoint.as_path()), ("state directory", state.dir())].into_iter().chain(pools);
    for (what, path) in all {
        if path.to_str().is_none() {
            return Err(Error::Refused(format!(
                "the path of the {what} {} is not UTF-8, and could not be written down; use another, or rename its directories",
                path.display()
            )));
        }
    }
    Ok(())
}

/// A path as a word of a command that a message names.
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+,:@%=".contains(c);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// A command as messages name it: `ullage up MNT`, and what else has it find this state and no other.
pub fn command(what: &str, state: &State, mountpoint: &Path) -> String {
    let command = format!("ullage {what} {}", quoted(mountpoint));
    // Where that of a space that is up is by now.
    let dir = ullage_kv::shown(&state.place());
    if is_usual(&dir, mountpoint) { command } else { format!("{command} --state {}", quoted(&dir)) }
}

/// A state elsewhere is the usual one if a link to it lies at the usual place.
fn is_usual(state: &Path, mountpoint: &Path) -> bool {
    let real = |path: &Path| settled(path).unwrap_or_else(|_| path.to_owned());
    // As the space is known by: who is asked for it may be its daemon, and is not to look into it.
    let usual = State::of_mountpoint(mountpoint);
    real(usual.dir()) == real(state)
}

/// Writes a path for people to read.
pub(crate) fn show<S: Serializer>(path: &Path, to: S) -> std::result::Result<S::Ok, S::Error> {
    to.collect_str(&path.display())
}

/// The same where there may be none.
#[allow(clippy::ref_option, reason = "what serde gives")]
pub(crate) fn show_any<S: Serializer>(path: &Option<PathBuf>, to: S) -> std::result::Result<S::Ok, S::Error> {
    match path {
        Some(path) => to.serialize_some(&path.to_string_lossy()),
        None => to.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use crate::control::messages::{Answer, LimitReport, LimitSubject};
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::{Path, PathBuf};
    use ullage_types::Bytes;

    #[test]
    fn what_a_shell_would_take_apart_is_quoted() {
        for (path, word) in
            [("/srv/a-b.c", "/srv/a-b.c"), ("/srv/a b", "'/srv/a b'"), ("/a'b$", "'/a'\\''b$'"), ("/ä", "/ä")]
        {
            assert_eq!(super::quoted(Path::new(path)), word);
        }
    }

    /// Regression: there was no answer, and the connection was closed.
    #[test]
    fn an_answer_with_a_path_that_is_no_text_can_be_written_and_read() {
        let of = |path| {
            let limit = LimitReport {
                subject: LimitSubject::Directory(7),
                path,
                used: Bytes(0),
                held: Bytes(0),
                inodes: 1,
                limit: None,
                limit_inodes: None,
            };
            let text = serde_json::to_string(&Answer::Limits { limits: vec![limit] }).unwrap();
            match serde_json::from_str(&text).unwrap() {
                Answer::Limits { mut limits } => limits.remove(0).path,
                other => panic!("{other:?}"),
            }
        };
        let odd = Path::new(OsStr::from_bytes(b"/mnt/\xFFx")).to_owned();
        assert_eq!(of(Some(odd)), Some(PathBuf::from("/mnt/\u{FFFD}x")));
        assert_eq!(of(Some("/mnt/x".into())), Some(PathBuf::from("/mnt/x")));
        assert_eq!(of(None), None);
    }
}
