//! Real source packages to build, fetched once.

use crate::shell::run;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The upstream archive of a Debian source package, from `cache` or else from Debian by apt.
///
/// apt's own configuration is read, not changed: the list of sources with `deb-src` lives in the cache.
pub fn package(cache: &Path, name: &str) -> Result<PathBuf> {
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
}
