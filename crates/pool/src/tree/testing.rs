//! A plain tree for tests.

use super::{Directory, FILES, Tree};
use crate::Uuid;

/// Whose it is.
pub const SPACE: Uuid = Uuid([1; 16]);

/// A new one, the directory that it is in, and its root.
pub fn tree() -> (tempfile::TempDir, Tree, Directory) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join(FILES)).unwrap();
    let tree = Tree::open(dir.path(), SPACE).unwrap();
    let root = tree.root();
    (dir, tree, root)
}
