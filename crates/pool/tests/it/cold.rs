//! Files of which nothing is in memory, and who may not wait for a disk.

use crate::common::{config, hint, mount, open};
use std::os::unix::fs::FileExt;
use ullage_pool::{Access, Error, Pool, PoolConfig, Wait};
use ullage_types::Generation;

/// A thread that answers the kernel stood still with the disk for all whose requests it takes.
#[test]
fn who_may_not_wait_opens_what_is_in_memory_and_nothing_else() {
    for kind in ["ext4", "xfs", "btrfs"] {
        let Some(mounted) = mount(kind, 320) else { continue };
        let path = mounted.path().join("pool");
        std::fs::create_dir(&path).unwrap();
        let opened = open(&path, config(), 10).unwrap();
        let (pool, binding) = (opened.pool.uuid(), opened.pool.create(hint(1)).unwrap().binding);
        opened.pool.open(&binding, Access::Write).unwrap().write_all_at(b"there", 0).unwrap();
        opened.pool.close().unwrap();
        drop(opened);
        mounted.forget();

        let opened = open(&path, PoolConfig { pool: Some(pool), ..config() }, 100).unwrap();
        let at_once = |access| opened.pool.open_waiting(&binding, access, Wait::Nothing);
        assert!(at_once(Access::Read).unwrap_err().would_wait(), "{kind}");
        assert!(at_once(Access::Write).unwrap_err().would_wait(), "{kind}");
        opened.pool.open(&binding, Access::Read).unwrap();
        let mut there = [0; 5];
        at_once(Access::Write).unwrap().read_exact_at(&mut there, 0).unwrap();
        assert_eq!(&there, b"there", "{kind}");
        let another = ullage_pool::Binding { generation: Generation(binding.generation.0 + 1), ..binding.clone() };
        let refused = opened.pool.open_waiting(&another, Access::Read, Wait::Nothing);
        assert!(matches!(refused, Err(Error::Mismatch { .. })), "{kind}");
        opened.pool.close().unwrap();
    }
}
