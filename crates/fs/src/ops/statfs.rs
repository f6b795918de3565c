//! STATFS.

use crate::{Outcome, Space, Statfs};
use ullage_types::{Bytes, NodeId};

const BLOCK: u64 = 4096;
/// A space has as many inodes as its catalog has room for; where a pool knows no number this one stands.
const MANY: u64 = 1 << 32;

impl Space {
    pub(crate) fn do_statfs(&self, _node: NodeId) -> Outcome<Statfs> {
        let (mut total, mut free, mut available, mut files, mut files_free) = (0, 0, 0, 0, 0);
        for member in self.pools.members() {
            let usage = member.pool.usage()?;
            total += usage.total.0;
            free += usage.free.0;
            available += usage.free.saturating_sub(member.reserve).0;
            if usage.inodes_total == 0 {
                files += MANY;
                files_free += MANY;
            } else {
                files += usage.inodes_total;
                files_free += usage.inodes_free;
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
