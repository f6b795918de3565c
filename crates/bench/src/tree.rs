//! Trees of files that are the same for everybody.

use crate::random::Random;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// The shape of a tree.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Directories, the top one not counted.
    pub directories: usize,
    /// Regular files.
    pub files: usize,
    /// Files are smaller than this.
    pub file_bytes: u64,
}

/// Makes the tree below `top`, an existing empty directory, and gives the paths of its files.
///
/// Each directory's parent is chosen among those before it and each file's directory among all, so depths and sizes
/// vary as in a source tree: a few directories are large, most are small.
pub fn make(top: &Path, shape: Shape, seed: u64) -> Result<Vec<PathBuf>> {
    let mut random = Random::new(seed);
    let text = random.text(shape.file_bytes as usize);
    let mut directories = vec![top.to_path_buf()];
    for number in 0..shape.directories {
        let parent = random.below(directories.len() as u64) as usize;
        let path = directories[parent].join(format!("directory{number}"));
        fs::create_dir(&path).with_context(|| format!("create {}", path.display()))?;
        directories.push(path);
    }
    let mut files = Vec::with_capacity(shape.files);
    for number in 0..shape.files {
        let parent = random.below(directories.len() as u64) as usize;
        let path = directories[parent].join(format!("file{number}.c"));
        let size = random.below(shape.file_bytes) as usize;
        let start = random.below((text.len() - size) as u64) as usize;
        fs::write(&path, &text[start..start + size]).with_context(|| format!("write {}", path.display()))?;
        files.push(path);
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_tree_has_its_shape_and_is_the_same_every_time() {
        let shape = Shape { directories: 20, files: 90, file_bytes: 100 };
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        make(one.path(), shape, 5).unwrap();
        make(two.path(), shape, 5).unwrap();
        let count = |kind| {
            let found = Command::new("find").arg(one.path()).args(["-mindepth", "1", "-type", kind]).output().unwrap();
            found.stdout.split(|byte| *byte == b'\n').count() - 1
        };
        assert_eq!((count("d"), count("f")), (20, 90));
        assert!(Command::new("diff").arg("-r").args([one.path(), two.path()]).status().unwrap().success());
    }
}
