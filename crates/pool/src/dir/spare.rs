//! Ready files that one series can spare, for another that has none. A new process creates in a series that is empty, while
//! those of processes that ended, or removed much, are full; to move a file takes a fraction of making one.

use super::core::Core;
use super::name;
use super::series::Series;
use super::stats::count;
use crate::{Binding, Error, Fresh};
use rustix::fs::RenameFlags;
use std::sync::atomic::Ordering;

impl Core {
    /// A ready file of another series, now in the leaf where the rule puts those of this one; nothing where none can be spared.
    pub fn move_ready(&self, index: usize) -> Option<Fresh> {
        let others = self.series.iter().enumerate().filter(|(other, _)| *other != index);
        let (_, from) = others.map(|(other, series)| (series.spare(), other)).max().filter(|(spare, _)| *spare > 0)?;
        let fresh = self.series[from].give()?;
        match self.move_to(index, &fresh.binding) {
            Ok(binding) => {
                self.ready.fetch_sub(1, Ordering::Relaxed);
                count(&self.counters.moved);
                let prepared = self.prepared_again(fresh.prepared, &fresh.file);
                Some(Fresh { binding, prepared, file: fresh.file })
            }
            Err(error) => {
                tracing::debug!(%error, "a ready file stays where it is");
                self.series[from].put(fresh);
                None
            }
        }
    }

    /// A file for a series where the file system below could make none: what others hold ready, where it is, or what the inodes of
    /// emptied ones make room for.
    pub fn make_of_others(&self, index: usize, error: Error) -> Result<Fresh, Error> {
        if let Some(fresh) = self.series.iter().find_map(Series::give) {
            self.ready.fetch_sub(1, Ordering::Relaxed);
            return Ok(fresh);
        }
        if self.stocked.load(Ordering::Relaxed) == 0 {
            return Err(error);
        }
        self.part(true);
        self.make(index)
    }

    /// Both leaves are marked while the file is between them: a crash leaves it in one of them, under a name that no catalog
    /// knows. Its numbers and its record stay what they are.
    fn move_to(&self, index: usize, binding: &Binding) -> Result<Binding, Error> {
        let (old_path, file_name) = name::split_binding(binding)?;
        let old = self.leaves.get(old_path);
        let old_dir = self.leaf_dir(&old).map_err(Error::io("open", self.path.join(old_path)))?;
        let (number, new) = {
            let mut guard = self.series[index].leaves.lock();
            let (leaves, number, leaf) = self.next_leaf(index, &mut guard)?;
            leaf.enter(binding.generation, &self.marks)?;
            leaves.took(number);
            (number, leaf)
        };
        let moved = self.leaf_dir(&new).and_then(|new_dir| {
            let rename = || rustix::fs::renameat_with(&old_dir, file_name, &new_dir, file_name, RenameFlags::NOREPLACE);
            self.take_out(&old, rename)
        });
        if let Err(errno) = moved {
            new.leave(binding.generation);
            if let Some(leaves) = &mut *self.series[index].leaves.lock() {
                leaves.gave_back(number);
            }
            return Err(Error::io("move", self.full_path(old_path, file_name))(errno));
        }
        old.leave(binding.generation);
        Ok(Binding { locator: name::locator(&new.path, file_name), ..binding.clone() })
    }
}
