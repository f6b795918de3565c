//! `make install` and `make uninstall`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// All that is below a directory but directories.
fn files(below: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(below).into_iter().flatten().flatten();
    entries.flat_map(|entry| if entry.path().is_dir() { files(&entry.path()) } else { vec![entry.path()] }).collect()
}

/// Regressions: `sudo make install`, and `up`, found no cargo, which is in its user's home, and did nothing; there were completions for bash
/// alone; PREFIX was passed over, and a blank in the path of what was built parted it.
#[test]
fn what_was_built_is_installed_by_who_has_no_cargo_and_all_of_it_removed_again() {
    let ground = tempfile::tempdir().unwrap();
    let at = |name: &str| ground.path().join(name);
    for directory in ["bin", "tar get/release"] {
        fs::create_dir_all(at(directory)).unwrap();
    }
    let path = std::env::var_os("PATH").unwrap();
    for tool in ["make", "install", "mkdir", "ln", "rm", "readlink"] {
        let Some(found) = std::env::split_paths(&path).map(|path| path.join(tool)).find(|path| path.exists()) else {
            eprintln!("skipped: {tool} is not there");
            return;
        };
        symlink(found, at("bin").join(tool)).unwrap();
    }
    let make = |goal: &str, prefix: &str| -> Output {
        let mut make = Command::new(at("bin/make"));
        make.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).arg(goal).arg(format!("PREFIX={prefix}"));
        // Nothing of a make(1) that runs the tests.
        make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").env_remove("MFLAGS");
        make.env("PATH", at("bin")).env("DESTDIR", at("root")).env("CARGO_TARGET_DIR", at("tar get")).output().unwrap()
    };
    for goal in ["install", "up"] {
        let refused = make(goal, "/usr/local");
        assert!(
            !refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("make build"),
            "{refused:?}"
        );
    }
    symlink(env!("CARGO_BIN_EXE_ullage"), at("tar get/release/ullage")).unwrap();
    let helper = at("root/usr/sbin/mount.fuse.ullage");
    for prefix in ["/usr/local", "/opt/of users"] {
        let installed = make("install", prefix);
        assert!(installed.status.success(), "{installed:?}");
        let below = at(&format!("root{prefix}"));
        for file in [
            "bin/ullage",
            "share/man/man1/ullage-up.1",
            "share/bash-completion/completions/ullage",
            "share/zsh/site-functions/_ullage",
            "share/fish/vendor_completions.d/ullage.fish",
        ] {
            assert!(fs::metadata(below.join(file)).is_ok_and(|file| file.len() > 0), "{file}");
        }
        assert_eq!(fs::read_link(&helper).unwrap(), Path::new(prefix).join("bin/ullage"));
        assert!(make("uninstall", "/elsewhere").status.success());
        assert!(fs::read_link(&helper).is_ok(), "it is another's");
        assert!(make("uninstall", prefix).status.success());
        assert_eq!(files(&at("root")), Vec::<PathBuf>::new());
    }
}
