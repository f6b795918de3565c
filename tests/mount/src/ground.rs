//! Where a test's pools, state and mount lie: a temporary directory, with a file system of its own where needed.

use crate::recount::each_below;
use crate::run::program;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Whether a btrfs can be made and mounted here, which not every kernel can; why not is printed where a test is skipped for it.
pub fn has_btrfs() -> bool {
    static REFUSED: OnceLock<Option<String>> = OnceLock::new();
    let refused = REFUSED.get_or_init(|| Ground::new().try_made_with("mkfs.btrfs", "tried", 128).err());
    if let Some(reason) = refused {
        eprintln!("skipped on btrfs: {reason}");
    }
    refused.is_none()
}

/// A temporary directory; what is mounted in it goes with it.
#[derive(Debug)]
pub struct Ground {
    dir: tempfile::TempDir,
    mounted: Vec<PathBuf>,
}

impl Default for Ground {
    fn default() -> Self {
        Self::new()
    }
}

impl Ground {
    /// A directory that every user may enter.
    pub fn new() -> Self {
        let dir =
            tempfile::Builder::new().prefix("ullage-mount-").tempdir().expect("a temporary directory can be made");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        Self { dir, mounted: Vec::new() }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A path in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// An empty directory in it.
    pub fn directory(&self, name: &str) -> PathBuf {
        let path = self.join(name);
        fs::create_dir_all(&path).expect("a directory can be made");
        path
    }

    /// A new ext4 of this many megabytes in a file, mounted; needs root.
    pub fn ext4(&mut self, name: &str, megabytes: u64) -> PathBuf {
        let image = self.join(&format!("{name}.img"));
        fs::File::create(&image).and_then(|file| file.set_len(megabytes << 20)).expect("an image can be made");
        program("mkfs.ext4", ["-q".as_ref(), "-F".as_ref(), "-O".as_ref(), "^has_journal".as_ref(), image.as_os_str()])
            .ok();
        self.mount_image(name, &image)
    }

    /// A new file system of this many megabytes in a file, made by a program with these flags, and mounted.
    pub fn image(&mut self, name: &str, megabytes: u64, mkfs: &str, flags: &[&str], options: &str) -> PathBuf {
        let image = self.join(&format!("{name}.img"));
        fs::File::create(&image).and_then(|file| file.set_len(megabytes << 20)).expect("an image can be made");
        program(mkfs, flags.iter().map(AsRef::as_ref).chain([image.as_os_str()])).ok();
        self.mount_image_with(name, &image, options)
    }

    /// A new xfs of this many megabytes (300 at least) in a file, mounted; needs root.
    pub fn xfs(&mut self, name: &str, megabytes: u64) -> PathBuf {
        self.made_with("mkfs.xfs", name, megabytes)
    }

    /// A new btrfs of this many megabytes (120 at least) in a file, mounted; needs root.
    pub fn btrfs(&mut self, name: &str, megabytes: u64) -> PathBuf {
        self.made_with("mkfs.btrfs", name, megabytes)
    }

    fn made_with(&mut self, tool: &str, name: &str, megabytes: u64) -> PathBuf {
        self.try_made_with(tool, name, megabytes).expect("a file system can be made and mounted")
    }

    fn try_made_with(&mut self, tool: &str, name: &str, megabytes: u64) -> Result<PathBuf, String> {
        let image = self.join(&format!("{name}.img"));
        fs::File::create(&image).and_then(|file| file.set_len(megabytes << 20)).expect("an image can be made");
        let outcome = program(tool, ["-q".as_ref(), "-f".as_ref(), image.as_os_str()]);
        if outcome.code != Some(0) {
            return Err(outcome.err);
        }
        self.try_mount(name, &image, "loop")
    }

    /// Mounts an image in a directory of this name.
    pub fn mount_image(&mut self, name: &str, image: &Path) -> PathBuf {
        self.mount_image_with(name, image, "loop")
    }

    /// The same with other options.
    pub fn mount_image_with(&mut self, name: &str, image: &Path, options: &str) -> PathBuf {
        self.try_mount(name, image, options).expect("the image can be mounted")
    }

    /// The same of an image that may be damaged; else what mount(8) says.
    pub fn try_mount(&mut self, name: &str, image: &Path, options: &str) -> Result<PathBuf, String> {
        let path = self.directory(name);
        let outcome = program("mount", ["-o".as_ref(), options.as_ref(), image.as_os_str(), path.as_os_str()]);
        if outcome.code != Some(0) {
            return Err(outcome.err);
        }
        self.mounted.push(path.clone());
        Ok(path)
    }

    /// Something was mounted here, to be unmounted with the rest.
    pub fn will_unmount(&mut self, path: &Path) {
        self.mounted.push(path.to_owned());
    }

    /// A tmpfs of this many kilobytes, mounted; needs root.
    pub fn tmpfs(&mut self, name: &str, kilobytes: u64) -> PathBuf {
        let path = self.directory(name);
        let size = format!("size={kilobytes}k");
        program(
            "mount",
            ["-t".as_ref(), "tmpfs".as_ref(), "-o".as_ref(), size.as_ref(), "tmpfs".as_ref(), path.as_os_str()],
        )
        .ok();
        self.mounted.push(path.clone());
        path
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        for path in self.mounted.iter().rev() {
            // A test that fails may leave descriptors in it.
            let _ = std::process::Command::new("umount").arg("-l").arg(path).output();
        }
    }
}

/// Every path below a directory with its length, sorted: to see that nothing was changed.
pub fn listing(dir: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    each_below(dir, |path, meta| {
        if path != dir {
            found.push((path.to_owned(), if meta.is_file() { meta.len() } else { 0 }));
        }
    });
    found.sort();
    found
}
