//! A space that ends while a pool is emptied.

use crate::pools::away::tests::{space_of, space_with};
use crate::pools::pool_of;
use crate::test_kernel::TestKernel;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use ullage_pool::{Tree, Uuid};
use ullage_types::PoolId;

fn eventually(what: &str, is: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !is() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Its tree lacked the file, and the next start believed that it was in step: for good.
#[test]
fn a_plain_tree_is_not_said_to_be_in_step_when_a_file_is_still_on_its_way_to_its_pool() {
    let (dir, plain) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    Tree::prepare(plain.path(), false).unwrap();
    let tree = Arc::new(Tree::open(plain.path(), Uuid([1; 16])).unwrap());
    let (space, pools, node) = space_with(dir.path(), 1, Some(tree));
    space.set_kernel(Arc::new(TestKernel::default()));
    let held = pools[1].keeps.lock();
    space.drain(PoolId(0)).unwrap();
    eventually("it is asked for a name", || pools[1].kept.load(Relaxed) > 0);
    space.do_detach();
    drop(held);
    eventually("it goes there all the same", || pool_of(&node.inode) == Some(PoolId(1)));
    assert!(!space.trees_in_step());
}

/// It was bound to the copy however long that had been on its way to the disk.
#[test]
fn a_copy_that_is_ready_when_no_more_is_to_be_moved_is_thrown_away() {
    let dir = tempfile::tempdir().unwrap();
    let (space, pools, node) = space_of(dir.path(), 1);
    // There is nothing to copy, so that nobody asks on the way.
    node.open.lock().backing.as_deref().unwrap().file.set_len(0).unwrap();
    let held = pools[1].drafts.lock();
    space.drain(PoolId(0)).unwrap();
    eventually("it is asked for a draft", || !pools[1].drafted.lock().is_empty());
    space.stop_draining(PoolId(0));
    assert!(!space.drains.stop(), "one is still at a file");
    drop(held);
    eventually("it is done", || !pools[1].closed.lock().is_empty() || pool_of(&node.inode) == Some(PoolId(1)));
    assert_eq!(pool_of(&node.inode), Some(PoolId(0)));
}

#[test]
fn no_pool_is_emptied_any_more_when_the_space_ends() {
    let dir = tempfile::tempdir().unwrap();
    let (space, ..) = space_of(dir.path(), 1);
    space.drain(PoolId(0)).unwrap();
    assert!(space.drains.stop());
    assert!(space.drain(PoolId(1)).is_err());
    assert!(!space.pools.is_draining(PoolId(1)));
}
