//! Real source packages to build, fetched once.

use crate::shell::run;
use anyhow::{Context, Result, ensure};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The upstream archive of a Debian source package, from `cache` or else from Debian by apt.
///
/// apt's own configuration is read, not changed: the list of sources with `deb-src` lives in the cache.
pub fn package(cache: &Path, name: &str) -> Result<PathBuf> {
    make_ours(cache)?;
    if let Some(archive) = cached(cache, name) {
        return Ok(archive);
    }
    fs::create_dir_all(cache.join("lists/partial")).with_context(|| format!("create {}", cache.display()))?;
    let list = cache.join("deb-src.list");
    let release = fs::read_to_string("/etc/os-release").context("tell which Debian this is")?;
    let codename = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME=")).unwrap_or("stable");
    fs::write(&list, format!("deb-src http://deb.debian.org/debian {codename} main\n"))?;
    let apt = || {
        let mut command = Command::new("apt-get");
        command.current_dir(cache).arg("-q");
        for setting in [
            format!("Dir::Etc::sourcelist={}", list.display()),
            "Dir::Etc::sourceparts=/dev/null".into(),
            format!("Dir::State::lists={}", cache.join("lists").display()),
            "Acquire::Languages=none".into(),
            "APT::Sandbox::User=root".into(),
        ] {
            command.arg("-o").arg(setting);
        }
        command
    };
    run(apt().arg("update"))?;
    run(apt().args(["--download-only", "source", name]))?;
    cached(cache, name).with_context(|| format!("apt-get source {name} brought no .orig archive"))
}

/// Makes a directory for this user alone. One that is there must be such already: what lies in it is built, and run, as this
/// user, and it may lie where everybody makes directories.
fn make_ours(cache: &Path) -> Result<()> {
    let above = cache.parent().context("a cache lies in a directory")?;
    fs::create_dir_all(above).with_context(|| format!("create {}", above.display()))?;
    let made = DirBuilder::new().mode(0o700).create(cache);
    let found = fs::symlink_metadata(cache).or_else(|error| made.and(Err(error)));
    let found = found.with_context(|| format!("create {}", cache.display()))?;
    let is_ours = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o022 == 0;
    ensure!(
        is_ours,
        "{} may be another user's work, and is not used: remove it, or give another --work",
        cache.display()
    );
    Ok(())
}

fn cached(cache: &Path, name: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(cache).ok()?.flatten();
    let mut archives = entries.map(|entry| entry.path()).filter(|path| {
        let file = path.file_name().map(|file| file.to_string_lossy().into_owned()).unwrap_or_default();
        file.starts_with(&format!("{name}_"))
            && file.contains(".orig.tar.")
            && path.extension().is_none_or(|kind| kind != "asc")
    });
    archives.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cached_archive_is_used() {
        let cache = tempfile::tempdir().unwrap();
        for file in ["abc_1.0.dsc", "abc_1.0.orig.tar.xz.asc", "abcd_1.0.orig.tar.xz", "abc_1.0.orig.tar.xz"] {
            fs::write(cache.path().join(file), "").unwrap();
        }
        assert_eq!(package(cache.path(), "abc").unwrap(), cache.path().join("abc_1.0.orig.tar.xz"));
    }

    /// Regression: whoever put an archive into `/var/tmp/ullage-bench-sources` had root build it.
    #[test]
    fn an_archive_that_another_user_may_have_put_there_is_not_used() {
        use std::os::unix::fs::{PermissionsExt, chown, symlink};
        let ground = tempfile::tempdir().unwrap();
        let (cache, link) = (ground.path().join("cache"), ground.path().join("link"));
        fs::create_dir(&cache).unwrap();
        fs::write(cache.join("abc_1.0.orig.tar.xz"), "").unwrap();
        symlink(&cache, &link).unwrap();
        let refused = |cache: &Path| {
            let error = package(cache, "abc").unwrap_err().to_string();
            assert!(error.contains("another user's work") && error.contains("--work"), "{error}");
        };
        let permit = |mode| fs::set_permissions(&cache, fs::Permissions::from_mode(mode)).unwrap();
        for mode in [0o777, 0o1777, 0o775] {
            permit(mode);
            refused(&cache);
        }
        permit(0o755);
        package(&cache, "abc").unwrap();
        refused(&link);
        if chown(&cache, Some(65534), None).is_ok() && rustix::process::geteuid().is_root() {
            refused(&cache);
        }
    }
}
