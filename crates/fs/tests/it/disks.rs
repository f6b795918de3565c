//! A catalog and a pool on two disks, of which one is older than the other.

use crate::bed::{Bed, CALLER, ROOT, Times, eventually};
use std::collections::BTreeSet;
use std::time::Duration;
use ullage_fs::Filesystem;
use ullage_types::FileId;

const RDWR: u32 = libc::O_RDWR as u32;

fn write(bed: &Bed, name: &str, offset: u64, data: &[u8]) {
    let space = bed.space();
    let entry = space.lookup(ROOT, name.as_bytes()).unwrap();
    let opened = space.open(CALLER, entry.node, RDWR).unwrap();
    space.write(entry.node, opened.handle, offset, data, 0, None).unwrap();
    space.release(entry.node, opened.handle);
    space.forget(entry.node, 1);
}

/// The leaf that holds a file's data.
fn leaf(bed: &Bed, name: &str) -> Box<[u8]> {
    let space = bed.space();
    let entry = space.lookup(ROOT, name.as_bytes()).unwrap();
    let inode = space.catalog().get(FileId(entry.attributes.attributes.ino)).unwrap();
    space.forget(entry.node, 1);
    let locator = inode.record().backing.unwrap().locator;
    let end = locator.iter().rposition(|byte| *byte == b'/').unwrap();
    locator[..end].into()
}

fn read(bed: &Bed, name: &str) -> Vec<u8> {
    let space = bed.space();
    let entry = space.lookup(ROOT, name.as_bytes()).unwrap();
    let opened = space.open(CALLER, entry.node, RDWR).unwrap();
    let mut data = Vec::new();
    space.read(entry.node, opened.handle, 0, 1 << 20, &mut data).unwrap();
    space.release(entry.node, opened.handle);
    let size = space.getattr(entry.node, None).unwrap().attributes.size;
    assert_eq!(size, data.len() as u64, "{name}");
    space.forget(entry.node, 1);
    data
}

/// The catalog's disk was cut first: of the leaves that were at rest then, and were changed until the pool's was cut too, it
/// knows nothing. They were left to `check --repair`.
#[test]
fn leaves_that_were_changed_after_the_catalogs_disk_was_cut_come_right_by_themselves() {
    let bed = Bed::with(Times { clear_after: Duration::from_secs(1), ..Times::default() });
    let space = bed.space();
    for number in 0..60 {
        let (entry, opened) = space.create(CALLER, ROOT, format!("f{number}").as_bytes(), 0o644, 0, RDWR).unwrap();
        space.write(entry.node, opened.handle, 0, b"first", 0, None).unwrap();
        space.fsync(entry.node, opened.handle, false).unwrap();
        space.release(entry.node, opened.handle);
        space.forget(entry.node, 1);
    }
    let mut leaves: BTreeSet<Box<[u8]>> = (0..40).map(|number| leaf(&bed, &format!("f{number}"))).collect();
    assert!(leaves.len() >= 5);
    // But those where the pool, which makes files ready beside all this, holds one.
    eventually("the leaves come to rest", || {
        bed.marked().iter().filter(|marked| leaves.contains(*marked)).count() <= 2
    });
    for marked in bed.marked() {
        leaves.remove(&marked);
    }
    space.syncfs().unwrap();
    bed.copy_catalog();
    assert!(bed.marked().iter().all(|marked| !leaves.contains(marked)));
    for number in 0..20 {
        write(&bed, &format!("f{number}"), 5, &vec![b'x'; 100_000]);
    }
    for number in 20..40 {
        space.unlink(ROOT, format!("f{number}").as_bytes()).unwrap();
    }
    // What was removed is taken back to be used again.
    std::thread::sleep(Duration::from_millis(200));
    assert!(bed.marked().iter().any(|marked| leaves.contains(marked)), "changed, and not at rest again");
    let mut after = bed.after_a_crash();
    for number in (0..20).chain(40..60) {
        let data = read(&after, &format!("f{number}"));
        assert_eq!(&data[..5], b"first");
        assert_eq!(data.len(), if number < 20 { 100_005 } else { 5 });
    }
    after.reopen();
}
