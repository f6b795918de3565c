//! Evicting where there is no `memory.reclaim`: the limit of a group is lowered by a step, which makes the kernel evict that
//! much, and set back at once.

use super::SHRINK_STEP;
use super::lowered::Lowered;
use crate::PAGE;
use crate::error::{Error, Result};
use crate::system::place::NO_LIMIT;
use crate::system::read_number;
use std::path::Path;

/// Evicts up to `bytes` from a group without a limit of its own; gives how many went. From a group that ends meanwhile none did, nor
/// from one of another user.
pub fn dip(group: &Path, bytes: u64, journal: Option<&Path>) -> Result<u64> {
    dip_and(group, bytes, journal, || ())
}

/// The same; `lowered` happens before the limit is set back.
fn dip_and(group: &Path, bytes: u64, journal: Option<&Path>, lowered: impl FnOnce()) -> Result<u64> {
    let evicted = match lower_and_raise(group, bytes, journal, lowered) {
        Err(error) if matches!(error.errno(), Some(libc::ENOENT | libc::ENODEV)) => 0,
        // The journal stays: whoever cleans up tries again to set the limit back.
        other => return other,
    };
    journal.map_or(Ok(()), forget)?;
    Ok(evicted)
}

/// What a group holds that may be evicted from by its limit. One that somebody set is not ours to touch: dying in between would
/// change it for good, while "no limit" is restored by any cleaning up. Nor is a group of another user.
pub fn dippable(group: &Path) -> Result<u64> {
    let limit = read_number(group.join("memory.limit_in_bytes"))?;
    let none = limit < NO_LIMIT || !Lowered::may_be(group);
    if none { Ok(0) } else { read_number(group.join("memory.usage_in_bytes")) }
}

fn lower_and_raise(group: &Path, bytes: u64, journal: Option<&Path>, lowered: impl FnOnce()) -> Result<u64> {
    let usage = dippable(group)?;
    if usage < PAGE {
        return Ok(0);
    }
    let step = bytes.min(SHRINK_STEP).min(usage / 2);
    let limit = Lowered::about_to(group)?;
    // On a full disk, say: should this process die in between, nobody would set the limit back. Then the kernel chooses by itself.
    if journal.is_some_and(|journal| std::fs::write(journal, limit.note()).is_err()) {
        return Ok(0);
    }
    let result = limit.lower(usage - step);
    lowered();
    // Who was not allowed to lower it (by SELinux, say) may not set it back either.
    if !result.as_ref().is_err_and(is_forbidden) {
        limit.set_back()?;
    }
    journal.map_or(Ok(()), forget)?;
    if result.is_err() {
        return Ok(0);
    }
    Ok(usage.saturating_sub(read_number(group.join("memory.usage_in_bytes"))?).min(step))
}

fn is_forbidden(error: &Error) -> bool {
    matches!(error.errno(), Some(libc::EACCES | libc::EPERM | libc::EROFS))
}

/// Removes the journal, if there is one.
fn forget(journal: &Path) -> Result<()> {
    match std::fs::remove_file(journal) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io("removing", journal)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::RuntimeDir;
    use crate::system::mounts::Mounts;
    use crate::system::{keyed, read};
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    /// Regression: a full disk ended the controller, and with it all limits.
    #[test]
    fn what_cannot_be_written_down_is_not_done() {
        let dir = tempfile::tempdir().unwrap();
        let (limit, journal) = (dir.path().join("memory.limit_in_bytes"), dir.path().join("eviction"));
        std::fs::write(&limit, "9223372036854771712").unwrap();
        std::fs::write(dir.path().join("memory.usage_in_bytes"), "104857600").unwrap();
        std::fs::write(dir.path().join("memory.oom_control"), "oom_kill_disable 0").unwrap();
        std::os::unix::fs::symlink("/dev/full", &journal).unwrap();
        assert_eq!(dip(dir.path(), 1 << 20, Some(&journal)).unwrap(), 0);
        assert_eq!(read_number(&limit).unwrap(), 9_223_372_036_854_771_712);
    }

    /// Regression: a group of another user in the box ended an ordinary user's controller at the first eviction.
    #[test]
    fn from_another_users_group_nothing_is_evicted() {
        let dir = tempfile::tempdir().unwrap();
        let (limit, journal) = (dir.path().join("memory.limit_in_bytes"), dir.path().join("eviction"));
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let files = [("memory.limit_in_bytes", "9223372036854771712"), ("memory.usage_in_bytes", "104857600")];
        for (name, text) in files.into_iter().chain([("memory.oom_control", "oom_kill_disable 0")]) {
            std::fs::write(dir.path().join(name), text).unwrap();
            std::fs::set_permissions(dir.path().join(name), std::fs::Permissions::from_mode(0o444)).unwrap();
        }
        // SAFETY: setfsuid takes an integer; it changes what this thread alone may open, and root's rights do not help any more.
        unsafe { libc::setfsuid(65534) };
        assert_eq!(dip(dir.path(), 1 << 20, Some(&journal)).unwrap(), 0);
        assert_eq!(dippable(dir.path()).unwrap(), 0, "what it does not give is asked of the others");
        assert_eq!(read_number(&limit).unwrap(), 9_223_372_036_854_771_712);
        assert!(!journal.exists());
        // SAFETY: as above; who may not change back stays as it is, which only this thread's end sees.
        unsafe { libc::setfsuid(0) };
    }

    /// A group of its own, with a file in its cache that can be evicted.
    fn group_with_cache(name: &str, file: &Path) -> Option<PathBuf> {
        let group = Mounts::read().ok()?.v1_memory?.join(format!("ullage-dip-{}-{name}", std::process::id()));
        if std::fs::create_dir(&group).is_err() {
            eprintln!("skipped: needs root and a cgroup v1 memory hierarchy");
            return None;
        }
        let script = "echo $$ > \"$0/cgroup.procs\" && exec dd if=/dev/zero of=\"$1\" bs=1M count=8 conv=fsync";
        let mut fill = std::process::Command::new("sh");
        let filled =
            fill.args(["-c", script]).args([&group, file]).stderr(std::process::Stdio::null()).status().unwrap();
        assert!(filled.success());
        Some(group)
    }

    /// Regression: held up before the limit was set back, it had the kernel end the user's own process there.
    #[test]
    fn nobody_is_ended_while_the_limit_is_lowered_and_all_is_set_back() {
        // On a disk: what tmpfs holds cannot be evicted without swap.
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let Some(group) = group_with_cache("ends", &dir.path().join("file")) else { return };
        let runtime = RuntimeDir::new(Some(dir.path().join("runtime")));
        let _lock = runtime.claim().unwrap();
        let ends = || keyed(&read(group.join("memory.oom_control")).unwrap(), "oom_kill_disable") == 0;
        let bounded = || read_number(group.join("memory.limit_in_bytes")).unwrap() < NO_LIMIT;
        let (mut met, journal) = (Vec::new(), runtime.journal());
        for killed in [false, true] {
            let dipped = dip_and(&group, 1 << 20, Some(&journal), || {
                met.push((ends(), bounded()));
                if killed {
                    assert!(crate::runtime::lift(&runtime).is_empty());
                    met.push((ends(), bounded()));
                }
            });
            met.push((ends(), bounded()));
            dipped.unwrap();
        }
        crate::system::write(group.join("memory.oom_control"), "1").unwrap();
        dip(&group, 1 << 20, Some(&journal)).unwrap();
        let told_otherwise = ends();
        std::fs::remove_dir(&group).unwrap();
        let back = (true, false);
        assert_eq!(met, [(false, true), back, (false, true), back, back]);
        assert!(!told_otherwise, "what somebody has set stays");
    }
}
