//! STATFS.

use crate::{Outcome, Space, Statfs};
use ullage_types::{Bytes, NodeId};

const BLOCK: u64 = 4096;
/// A space has as many inodes as its catalog has room for; where a pool knows no number this one stands.
const MANY: u64 = 1 << 32;

impl Space {
    pub(crate) fn do_statfs(&self, node: NodeId) -> Outcome<Statfs> {
        let (mut total, mut free, mut available, mut files, mut files_free) = (0, 0, 0, 0, 0);
        for (member, reserve) in self.pools.disks() {
            let usage = self.pools.usage(member.id);
            let Some(reserve) = reserve else {
                // What is free there is nobody's.
                total += usage.total.saturating_sub(usage.free).0;
                files += usage.inodes_total.saturating_sub(usage.inodes_free);
                continue;
            };
            total += usage.total.0;
            free += usage.free.0;
            available += usage.free.saturating_sub(reserve).0;
            if usage.inodes_total == 0 {
                files += MANY;
                files_free += MANY;
            } else {
                files += usage.inodes_total;
                files_free += usage.inodes_free;
            }
        }
        // Below a limit there is no more than the limit: what is used of it and what is left.
        let inode = self.inode(node)?;
        let directory = if inode.is_directory() { inode } else { self.catalog.get(inode.record().parent)? };
        if let Some(bound) = self.catalog.tightest(&directory) {
            if let Some(left) = bound.bytes_left {
                free = free.min(left);
                available = available.min(left);
                total = total.min(bound.bytes_used.saturating_add(free));
            }
            if let Some(left) = bound.inodes_left {
                files_free = files_free.min(left);
                files = files.min(bound.inodes_used.saturating_add(files_free));
            }
        }
        Ok(Statfs {
            block: Bytes(BLOCK),
            blocks: total / BLOCK,
            free: free / BLOCK,
            available: available / BLOCK,
            files,
            files_free,
            name_max: 255,
        })
    }
}
