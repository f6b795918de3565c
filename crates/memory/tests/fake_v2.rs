//! The back end of v2 on directories that look like groups, since this kernel may have no such controller.

use std::fs;
use ullage_memory::PAGE;
use ullage_memory::backend::{Backend, V2};

/// Regression: whichever group the directory listed first lost all, at each tick.
#[test]
fn eviction_is_divided_among_the_groups_by_what_they_hold() {
    let dir = tempfile::tempdir().unwrap();
    let group = dir.path().join("ullage.contributed");
    let mut backend = V2::create(dir.path(), group).unwrap();
    let [large, small] = ["large", "small"].map(|name| dir.path().join(name));
    for (sibling, mib) in [(&large, 300u64), (&small, 100)] {
        fs::create_dir(sibling).unwrap();
        fs::write(sibling.join("memory.current"), (mib << 20).to_string()).unwrap();
        fs::write(sibling.join("memory.reclaim"), "").unwrap();
    }
    // Nothing goes, as without swap.
    assert_eq!(backend.evict((16 << 20) / PAGE).unwrap(), 0);
    let asked = [large, small].map(|group| fs::read_to_string(group.join("memory.reclaim")).unwrap());
    assert_eq!(asked, [12u64 << 20, 4 << 20].map(|bytes| bytes.to_string()));
}
