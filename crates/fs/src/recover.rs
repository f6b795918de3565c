//! After an unclean end: only what was recorded as being changed is looked at again, never the whole tree
//! (DESIGN, invariant 5).

use crate::open_file::Measure;
use crate::{Errno, Outcome, Space};
use ullage_catalog::{CatalogMarks, Error};
use ullage_pool::{Access, Suspect};
use ullage_types::PoolId;

/// What recovery did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Recovered {
    /// Leaf directories that had been marked.
    pub leaves: u64,
    /// Backing files looked at in them.
    pub files: u64,
    /// Files whose size, blocks or times were brought up to their backing file.
    pub measured: u64,
    /// Backing files that no file of the catalog is bound to, given back to their pool.
    pub discarded: u64,
    /// Files without a name, removed.
    pub orphans: u64,
}

impl Space {
    /// Brings catalog and pools into agreement. Call before the space is attached.
    pub fn recover(&self, marks: &[(PoolId, &CatalogMarks)]) -> Outcome<Recovered> {
        let mut done = Recovered::default();
        for file in self.catalog.orphans()? {
            let inode = self.catalog.get(file)?;
            let node = self.nodes.enter(inode);
            self.forget_node(node.id, 1);
            done.orphans += 1;
        }
        let mut stray = Vec::new();
        for &(id, marks) in marks {
            let pool = self.pools.get(id)?;
            for leaf in marks.marked() {
                done.leaves += 1;
                let mut suspects = Vec::new();
                pool.suspects(&leaf, &mut |suspect| suspects.push(suspect))?;
                for suspect in suspects {
                    done.files += 1;
                    if let Some(suspect) = self.compare(id, suspect, &mut done)? {
                        done.discarded += 1;
                        stray.push((id, suspect));
                    }
                }
            }
        }
        for &(_, marks) in marks {
            for leaf in marks.marked() {
                marks.clear(&leaf).map_err(Errno::from)?;
            }
        }
        // Only now, since it marks their leaves anew.
        for (id, suspect) in stray {
            self.pools.get(id)?.discard(suspect);
        }
        self.catalog.sync()?;
        if done != Recovered::default() {
            tracing::info!(
                leaves = done.leaves,
                files = done.files,
                measured = done.measured,
                discarded = done.discarded,
                orphans = done.orphans,
                "recovered from an unclean end"
            );
        }
        Ok(done)
    }

    /// Measures a backing file that belongs to a file, and gives back one that does not.
    fn compare(&self, id: PoolId, suspect: Suspect, done: &mut Recovered) -> Outcome<Option<Suspect>> {
        let pool = self.pools.get(id)?;
        let Some(binding) = &suspect.binding else { return Ok(Some(suspect)) };
        let inode = match self.catalog.get(binding.file) {
            Ok(inode) => inode,
            Err(Error::NotFound) => return Ok(Some(suspect)),
            Err(error) => return Err(error.into()),
        };
        let bound = inode.record().backing.is_some_and(|backing| {
            backing.pool == id && backing.generation == binding.generation && backing.locator == binding.locator.0
        });
        if !bound {
            return Ok(Some(suspect));
        }
        let file = pool.open(binding, Access::Read)?;
        let now = Measure::of(&file)?;
        let changed = self.catalog.update(&inode, |record| {
            let changed = (record.size, record.blocks) != (now.size, now.blocks);
            if changed {
                record.size = now.size;
                record.blocks = now.blocks;
                record.mtime = record.mtime.max(now.mtime);
                record.ctime = record.ctime.max(now.ctime);
            }
            Ok(changed)
        })?;
        done.measured += u64::from(changed);
        Ok(None)
    }
}
