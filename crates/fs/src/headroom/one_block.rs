//! Files on xfs that get one block at a time. xfs gives a file that grows more than was asked for, without bound, and what
//! nobody sees being written could pass a limit by that; but not where the file was told to ask for extents of one block, which
//! can be said to one that has none. Then blocks are found with the write, those of copies of shared ones too.

use super::Blocks;
use crate::Space;
use crate::node::Node;
use crate::open_file::{Measure, OpenBacking, OpenFile};
use std::io;

impl Space {
    /// Whether what is written to a file in the kernel takes no more than it needs: only then room can be lent for it.
    pub(crate) fn takes_what_it_needs(&self, node: &Node, open: &mut OpenFile) -> bool {
        let Some((pool, counting)) = self.counting_of(open) else { return false };
        // Else it is told for nothing.
        let plenty = || self.has_plenty(node, pool, counting);
        match (self.pools.blocks(pool), &mut open.backing) {
            (Blocks::AtOnce | Blocks::Later, _) => !self.may_be_late(open),
            (Blocks::Ahead, Some(backing)) => one_block(backing, plenty).unwrap_or_else(|error| {
                tracing::debug!(%error, "a file takes more than is written to it");
                false
            }),
            _ => false,
        }
    }
}

fn one_block(backing: &mut OpenBacking, plenty: impl Fn() -> bool) -> io::Result<bool> {
    let block = backing.baseline.block;
    if ullage_pool::extent_size(&backing.file)?.map(u64::from) == Some(block) {
        return Ok(true);
    }
    let now = Measure::of(&backing.file)?;
    if now.blocks > 0 || now.size > 0 || !plenty() {
        return Ok(false);
    }
    ullage_pool::set_extent_size(&backing.file, block as u32)?;
    // That it changes the file's times is no news of its data.
    if now == backing.baseline {
        backing.baseline = Measure::of(&backing.file)?;
    }
    Ok(true)
}
