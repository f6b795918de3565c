//! The ext4 that every system under test stands on: fresh, on a loop device.

use crate::cleanup::Undo;
use crate::shell::{installed, mount_points, run, unmount};
use anyhow::{Context, Result, ensure};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

const PREFIX: &str = "ullage-bench.";

/// A mounted ext4 that vanishes when dropped.
pub struct Ground {
    work: PathBuf,
    root: PathBuf,
    device: String,
    // Dropped in this order: the mount, the device, the directory.
    _mount: Undo,
    _device: Undo,
    _directory: Undo,
}

impl Ground {
    /// Makes a file system of `size_bytes` on an image in `work`, after clearing what killed runs left there.
    pub fn new(work: &Path, size_bytes: u64) -> Result<Self> {
        ensure!(rustix::process::geteuid().is_root(), "the bench mounts file systems: it needs root");
        for program in ["mkfs.ext4", "losetup", "mount", "umount"] {
            ensure!(installed(program), "{program} is not installed");
        }
        fs::create_dir_all(work).with_context(|| format!("create {}", work.display()))?;
        // As the kernel names what is mounted below it: whole, and without links.
        let work = fs::canonicalize(work).with_context(|| format!("look for {}", work.display()))?;
        sweep(&work);
        let directory = work.join(format!("{PREFIX}{}", std::process::id()));
        // Everybody may write in `work`: what is below one that another user made could lead anywhere.
        let made = DirBuilder::new().mode(0o700).create(&directory);
        made.with_context(|| format!("create {} (or give another --work)", directory.display()))?;
        let doomed = directory.clone();
        let undo_directory = Undo::new(move || {
            let _ = fs::remove_dir_all(doomed);
        });
        let image = directory.join("image");
        let root = directory.join("root");
        fs::create_dir(&root)?;
        // Reserved in full: a full disk must fail here, not in the middle of a sample.
        run(Command::new("fallocate").arg("-l").arg(size_bytes.to_string()).arg(&image))?;
        run(Command::new("mkfs.ext4").args(["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"]).arg(&image))?;
        // Both are registered before there is anything to undo: a signal may come while it is being done.
        let attached = image.clone();
        let undo_device = Undo::new(move || detach(&attached));
        let mounted = root.clone();
        let undo_mount = Undo::new(move || unmount(&mounted));
        // Direct: the image must not be cached a second time by the file system it lies on.
        let device = run(Command::new("losetup").args(["--find", "--show", "--direct-io=on"]).arg(&image))?;
        let device = device.trim().to_owned();
        run(Command::new("mount").arg(&device).arg(&root))?;
        Ok(Self { work, root, device, _mount: undo_mount, _device: undo_device, _directory: undo_directory })
    }

    /// The directory of its image.
    pub fn work(&self) -> &Path {
        &self.work
    }

    /// Where it is mounted.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Mounts it anew, so that nothing of it is cached. Nothing may stand on it meanwhile.
    pub fn remount(&self) -> Result<()> {
        unmount(&self.root);
        run(Command::new("mount").arg(&self.device).arg(&self.root))?;
        Ok(())
    }
}

/// Lets go of whatever loop devices an image is on.
fn detach(image: &Path) {
    let devices = run(Command::new("losetup").args(["-n", "-O", "NAME", "-j"]).arg(image)).unwrap_or_default();
    for device in devices.split_whitespace() {
        let _ = run(Command::new("losetup").arg("--detach").arg(device));
    }
}

/// Clears the places of runs whose process is gone.
fn sweep(work: &Path) {
    for entry in fs::read_dir(work).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(pid) = name.strip_prefix(PREFIX).and_then(|pid| pid.parse::<u32>().ok()) else { continue };
        // One of this number was another process.
        let runs = pid != std::process::id() && Path::new(&format!("/proc/{pid}")).exists();
        // Nor is anything done to what another user made.
        let is_ours = fs::symlink_metadata(entry.path())
            .is_ok_and(|found| found.is_dir() && found.uid() == rustix::process::geteuid().as_raw());
        if runs || !is_ours {
            continue;
        }
        unmount_below(&entry.path());
        detach(&entry.path().join("image"));
        let _ = fs::remove_dir_all(entry.path());
    }
}

/// Unmounts everything below `directory`, the innermost first.
fn unmount_below(directory: &Path) {
    for path in mounted_below(mount_points(), directory).into_iter().rev() {
        let _ = run(Command::new("umount").arg("-l").arg(path));
    }
}

/// Those of the places where something is mounted that lie below `directory`.
fn mounted_below(points: Vec<PathBuf>, directory: &Path) -> Vec<PathBuf> {
    points.into_iter().filter(|point| point != directory && point.starts_with(directory)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::{is_mounted, points_in};

    /// Regression: of a place with a blank in its name nothing was unmounted, and what was mounted there was removed with it.
    #[test]
    fn what_is_mounted_below_a_name_with_a_blank_is_found() {
        let mounts = b"/dev/loop1 /work\\040of\\134me/x/root ext4 rw 0 0\n\
                       fuse /work\\040of\\134me/x/root/a\\011b fuse rw 0 0\n\
                       /dev/sda /work\\040of\\134me ext4 rw 0 0\n/dev/sdb /work ext4 rw 0 0\n";
        let found = mounted_below(points_in(mounts), Path::new("/work of\\me"));
        assert_eq!(found, ["/work of\\me/x/root", "/work of\\me/x/root/a\tb"].map(PathBuf::from));
    }

    #[test]
    fn a_ground_is_a_file_system_of_its_own_and_leaves_nothing() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let work = tempfile::tempdir().unwrap();
        let leftover = work.path().join(format!("{PREFIX}{}", 4_000_000));
        fs::create_dir(&leftover).unwrap();
        let ground = Ground::new(work.path(), 64 << 20).unwrap();
        assert!(!leftover.exists(), "the place of a dead run is cleared");
        let root = ground.root().to_path_buf();
        assert!(is_mounted(&root));
        fs::write(root.join("file"), "kept").unwrap();
        ground.remount().unwrap();
        assert_eq!(fs::read_to_string(root.join("file")).unwrap(), "kept");
        let device = ground.device.clone();
        drop(ground);
        assert!(!is_mounted(&root));
        // Whoever looks through all loop devices has it for a moment, and another test may get it then.
        let is_kept = || {
            let backed = Command::new("losetup").arg(&device).output().unwrap().stdout;
            String::from_utf8_lossy(&backed).contains(&*work.path().to_string_lossy())
        };
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while is_kept() {
            assert!(std::time::Instant::now() < until, "the loop device is let go");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert_eq!(fs::read_dir(work.path()).unwrap().count(), 0);
    }

    /// Regression: what was mounted through a link, or below where the bench was started, was not seen to be, and stayed.
    #[test]
    fn a_ground_whose_place_is_named_through_a_link_leaves_nothing() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let (real, link) = (directory.path().join("real/below"), directory.path().join("link"));
        std::os::unix::fs::symlink("real", &link).unwrap();
        fs::create_dir(directory.path().join("real")).unwrap();
        let ground = Ground::new(&link.join("below"), 64 << 20).unwrap();
        assert_eq!(ground.work(), real);
        let mounted = is_mounted(ground.root());
        drop(ground);
        assert!(mounted && mounted_below(mount_points(), &real).is_empty());
        assert_eq!(fs::read_dir(&real).unwrap().count(), 0);
    }

    /// Regression: a file system was made in whatever file a link led to that another user had put in the image's place.
    #[test]
    fn a_place_that_another_user_made_is_not_used() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let ground = tempfile::tempdir().unwrap();
        let (work, precious) = (ground.path().join("work"), ground.path().join("precious"));
        let theirs = work.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir_all(&theirs).unwrap();
        fs::write(&precious, "precious").unwrap();
        std::os::unix::fs::symlink(&precious, theirs.join("image")).unwrap();
        std::os::unix::fs::chown(&theirs, Some(65534), None).unwrap();
        let error = format!("{:#}", Ground::new(&work, 64 << 20).err().unwrap());
        assert!(error.contains("--work") && error.contains("exists"), "{error}");
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
        assert!(theirs.join("image").exists());
    }
}
