//! Finding a file by name.

use crate::inode::Inode;
use crate::ops::check_directory;
use crate::{Catalog, Error, Result};
use std::sync::Arc;

impl Catalog {
    /// The file that `name` in `directory` names, or none.
    pub fn lookup(&self, directory: &Inode, name: &[u8]) -> Result<Option<Arc<Inode>>> {
        Ok(self.lookup_counted(directory, name)?.0)
    }

    /// The same, and whether the file had to be read into memory.
    pub fn lookup_counted(&self, directory: &Inode, name: &[u8]) -> Result<(Option<Arc<Inode>>, bool)> {
        // Between reading the entry and finding the file the name may go, and the file with it: look again.
        loop {
            let dirent = {
                let mut state = directory.lock();
                check_directory(&state)?;
                state.find(&*self.kv, directory.id, name)?
            };
            let Some(dirent) = dirent else { return Ok((None, false)) };
            if let Some(found) = self.get_cached(dirent.file) {
                return Ok((Some(found), false));
            }
            match self.get(dirent.file) {
                Err(Error::NotFound) => {
                    let again = directory.lock().find(&*self.kv, directory.id, name)?;
                    if again == Some(dirent) && self.table.find(dirent.file).is_err() {
                        return Err(Error::Damaged(format!(
                            "directory {} names inode {}, which does not exist",
                            directory.id, dirent.file
                        )));
                    }
                }
                found => return found.map(|inode| (Some(inode), true)),
            }
        }
    }

    /// The parent of a directory; the root's is the root.
    pub fn parent(&self, directory: &Arc<Inode>) -> Arc<Inode> {
        directory.parent.read().clone().unwrap_or_else(|| directory.clone())
    }
}
