//! Loads that take blocks: tmpfs gives a hole its page as soon as somebody reads it through a mapping.
//!
//! So there a handle that only reads a limited file is like one that does both: alone its pages are the server's, who takes nothing
//! by reading holes, and beside others the file has none (`solid.rs`). Where nothing is limited a file with holes counts as written.

use crate::ending::measured;
use crate::headroom::holes::Holes;
use crate::node::Node;
use crate::open_file::{Measure, OpenBacking, OpenFile};
use crate::{Outcome, Space, sys};
use std::fs::File;
use std::sync::Arc;
use ullage_pool::{Lease, probe_lease};
use ullage_types::PoolId;

impl Space {
    /// Whether a handle, opened with these flags, may be mapped so that holes get blocks which nobody asks for.
    pub(crate) fn may_fill_unseen(&self, pool: PoolId, flags: i32) -> bool {
        match flags & libc::O_ACCMODE {
            libc::O_RDWR => true,
            libc::O_RDONLY => self.pools.fills_when_read(pool),
            _ => false,
        }
    }

    /// Who comes to only read a file that nothing limits may fill its holes in the kernel: it is measured from here on, also after a kill.
    pub(crate) fn expects_loads(&self, node: &Arc<Node>, open: &mut OpenFile, flags: i32) {
        let only_reads = flags & libc::O_ACCMODE == libc::O_RDONLY;
        let fills = |backing: &OpenBacking| self.pools.fills_when_read(backing.pool) && has_holes(&backing.file);
        // Where it cannot be opened so, as in a pool that takes nothing more, it is read all the same.
        if only_reads
            && open.backing.as_deref().is_some_and(fills)
            && self.uses_passthrough()
            && self.back(node, open, true).is_ok()
            && let Some(backing) = &mut open.backing
        {
            backing.written = true;
            backing.mappable = true;
        }
    }
}

/// Whether nobody can give blocks to a file any more, by stores or loads. `file` is as [`measured::nobody_writes`] needs it.
pub(crate) fn nobody_fills(file: &File) -> bool {
    let loads = has_holes(file) && is_in_memory(file);
    measured::nobody_writes(file) && !(loads && probe_lease(file, Lease::Write) == Err(rustix::io::Errno::AGAIN))
}

fn has_holes(file: &File) -> bool {
    Measure::of(file).is_ok_and(|now| now.blocks * 512 < now.size)
}

/// Loads what was a hole and has memory now, as far as `end` or that of the file: tmpfs tells it from a hole then. Zeros written there instead
/// would take the place of what somebody stores meanwhile.
pub(crate) fn load(file: &File, holes: &Holes, end: u64) -> Outcome<()> {
    let end = end.min(Measure::of(file)?.size);
    for hole in holes.ranges.iter().filter(|hole| hole.start < end) {
        match sys::load(file, hole.start..hole.end.min(end)) {
            // Whoever makes the file shorter takes that away, too; before Linux 5.14 there is no such call, and a write may be refused.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EFAULT | libc::EINVAL)) => {}
            done => done?,
        }
    }
    Ok(())
}

/// Whether a file lies on tmpfs.
pub(crate) fn is_in_memory(file: &File) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|below| below.f_type == libc::TMPFS_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn who_has_a_file_with_holes_open_for_reading_may_fill_it_on_tmpfs_alone() {
        for (dir, fills) in [("/dev/shm", true), (env!("CARGO_MANIFEST_DIR"), false)] {
            let file = tempfile::tempfile_in(dir).unwrap();
            file.set_len(8192).unwrap();
            let again = || File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
            let (own, other) = (again(), again());
            drop(file);
            assert_eq!(nobody_fills(&own), !fills, "{dir}");
            drop(other);
            assert!(nobody_fills(&own), "{dir}");
        }
    }
}
