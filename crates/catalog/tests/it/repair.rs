//! Each record deleted, flipped, swapped: found by the check, and brought into a state that is clean, opens, and has lost
//! nothing that could be kept.

use crate::memory::{Map, MemoryKv};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use ullage_catalog::{Backing, Catalog, Facts, Found, Inode, New, RepairMode, Repaired, XattrMode, repair, verify};
use ullage_types::{Class, FileId, Generation, Kind, PoolId, ROOT, Timestamp};

fn at(seconds: i64) -> Timestamp {
    Timestamp { seconds, nanoseconds: 0 }
}

const LEAF: &str = "2-512/000.0/000";

fn new(catalog: &Catalog, kind: Kind, uid: u32) -> New {
    let (id, generation) = catalog.numbers().pair();
    let locator = format!("{LEAF}/{:x}.{:x}", id.0, generation.0).into_bytes().into();
    New {
        id,
        kind,
        class: if uid == 7 { Class::Elastic } else { Class::Persistent },
        mode: 0o644,
        uid,
        gid: uid,
        rdev: 0,
        target: if kind == Kind::Symlink { (*b"some/where").into() } else { Box::default() },
        backing: (kind == Kind::Regular).then_some(Backing { pool: PoolId(0), generation, locator }),
        xattrs: Vec::new(),
        brought: None,
    }
}

/// A space with one of everything, and what its pool holds.
fn sound() -> &'static (Map, Facts) {
    static SOUND: OnceLock<(Map, Facts)> = OnceLock::new();
    SOUND.get_or_init(|| {
        let kv = Arc::new(MemoryKv::default());
        let catalog = Catalog::open(kv.clone(), 0, 0, at(1)).unwrap();
        let root = catalog.root().clone();
        let make = |parent: &Arc<Inode>, name: &str, kind, uid| {
            catalog.create(parent, name.as_bytes(), new(&catalog, kind, uid), at(2)).unwrap()
        };
        let upper = make(&root, "upper", Kind::Directory, 5);
        let lower = make(&upper, "lower", Kind::Directory, 5);
        make(&upper, "empty-directory", Kind::Directory, 6);
        let mut files = Vec::new();
        for (at, parent) in [&root, &upper, &lower, &lower].into_iter().enumerate() {
            files.push(make(parent, &format!("file-{at}"), Kind::Regular, 5 + at as u32));
        }
        for (n, file) in files.iter().enumerate() {
            let grow = |record: &mut ullage_catalog::Record| {
                (record.size, record.blocks) = (1000 * (n as u64 + 1), 8);
                Ok(())
            };
            catalog.update(file, grow).unwrap();
        }
        catalog.link(&files[3], &upper, b"second-name", at(3)).unwrap();
        catalog.link(&files[3], &root, b"third-name", at(3)).unwrap();
        make(&lower, "symlink", Kind::Symlink, 5);
        make(&root, "fifo", Kind::Fifo, 5);
        catalog.set_xattr(&files[1], b"user.a", b"value", XattrMode::Any, at(4), |_| {}).unwrap();
        catalog.set_xattr(&lower, b"user.b", &[1; 300], XattrMode::Any, at(4), |_| {}).unwrap();
        let open = make(&lower, "removed-while-open", Kind::Regular, 5);
        let grow = |record: &mut ullage_catalog::Record| {
            (record.size, record.blocks) = (77, 8);
            Ok(())
        };
        catalog.update(&open, grow).unwrap();
        catalog.unlink(&lower, b"removed-while-open", at(5)).unwrap();
        files.push(open.clone());
        catalog.marks(PoolId(0)).unwrap().mark(&[b"2-512/001.0/000"]).unwrap();
        catalog.sync().unwrap();
        let mut facts = Facts::default();
        facts.pools.insert(PoolId(0));
        for file in &files {
            let record = file.record();
            let backing = record.backing.unwrap();
            let (size, blocks, locator) = (record.size, record.blocks, backing.locator.clone());
            let (atime, mtime, ctime) = (record.atime, record.mtime, record.ctime);
            let owner = Some((record.class, record.uid, record.gid));
            let found = Found {
                pool: PoolId(0),
                locator,
                size,
                blocks,
                atime,
                mtime,
                ctime,
                bare: false,
                unreadable: false,
                owner,
            };
            facts.found.insert((file.id, backing.generation), found);
        }
        drop((files, open, upper, lower, root));
        drop(catalog);
        let map = kv.dump();
        assert_eq!(verify(&MemoryKv::new(map.clone())).unwrap().findings, []);
        (map, facts)
    })
}

/// Every name below the root with its file, its kind and its owner.
type Tree = BTreeMap<String, (u64, Kind, u32)>;

fn tree(kv: &Arc<MemoryKv>) -> Tree {
    let catalog = Catalog::open(kv.clone(), 0, 0, at(9)).unwrap();
    let mut tree = Tree::new();
    let mut todo = vec![(String::new(), ROOT)];
    while let Some((path, id)) = todo.pop() {
        let directory = catalog.get(id).unwrap();
        for entry in catalog.list(&directory, 0, u64::MAX, usize::MAX).unwrap() {
            let path = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
            let inode = catalog.lookup(&directory, &entry.name).unwrap().unwrap();
            let record = inode.record();
            catalog.xattrs(&inode).unwrap();
            if record.kind == Kind::Directory {
                todo.push((path.clone(), inode.id));
            }
            assert!(tree.insert(path, (inode.id.0, record.kind, record.uid)).is_none());
        }
    }
    // It can be worked with.
    let root = catalog.root().clone();
    let made = catalog.create(&root, b"made-afterwards", new(&catalog, Kind::Regular, 5), at(9)).unwrap();
    assert!(!tree.values().any(|(id, _, _)| *id == made.id.0), "a number is given out twice");
    tree
}

/// Repairs a damaged map; what follows must be clean, and stay as it is in a second run.
fn mend(map: &Map, facts: &Facts) -> (Repaired, Tree) {
    let kv = Arc::new(MemoryKv::new(map.clone()));
    let found = verify(&*kv).unwrap().findings;
    let repaired = repair(&*kv, facts, (0, 0), at(8)).unwrap();
    assert!(found.is_empty() || repaired.changes > 0, "found and not mended: {found:?}");
    assert_eq!(repaired.changes > 0, !repaired.done.is_empty() || !repaired.lost.is_empty(), "{repaired:?}");
    let after = verify(&*kv).unwrap().findings;
    assert_eq!(after, [], "found: {found:?}\ndone: {repaired:#?}");
    let again = repair(&*kv, facts, (0, 0), at(8)).unwrap();
    assert_eq!(again.changes, 0, "a second repair: {again:?}\nafter {repaired:?}");
    (repaired, tree(&kv))
}

fn ids(tree: &Tree, kind: Kind) -> BTreeSet<u64> {
    tree.values().filter(|(_, of, _)| *of == kind).map(|(id, _, _)| *id).collect()
}

#[test]
fn a_sound_space_is_left_alone() {
    let (map, facts) = sound();
    let kv = MemoryKv::new(map.clone());
    let repaired = repair(&kv, facts, (0, 0), at(8)).unwrap();
    assert_eq!((repaired.changes, repaired.done.len(), repaired.lost.len()), (0, 0, 0), "{repaired:?}");
    assert_eq!(&kv.dump(), map);
    let fresh = Arc::new(MemoryKv::default());
    drop(Catalog::open(fresh.clone(), 0, 0, at(1)).unwrap());
    assert_eq!(repair(&*fresh, &Facts::default(), (0, 0), at(8)).unwrap().changes, 0);
}

#[test]
fn each_record_deleted_is_found_and_made_again() {
    let (map, facts) = sound();
    let whole = mend(map, facts).1;
    for key in map.keys() {
        let what = ullage_catalog::describe_key(key);
        let mut damaged = map.clone();
        damaged.remove(key);
        // A space without its counter is one that has given out none, if nothing is in it: this one is not empty.
        let found = verify(&MemoryKv::new(damaged.clone())).unwrap().findings;
        assert!(!found.is_empty() || key[0] == b'm', "{what} is gone and nothing is found");
        let (repaired, tree) = mend(&damaged, facts);
        let special = whole.values().find(|(id, kind, _)| {
            key[0] == b'i' && key[1..] == id.to_be_bytes() && !matches!(kind, Kind::Regular | Kind::Directory)
        });
        match (key[0], special) {
            // What only the record knew is lost, and said.
            (_, Some((id, _, _))) => {
                assert!(repaired.lost.iter().any(|text| text.contains(&format!("inode {id} "))), "{repaired:?}");
                assert_eq!(tree.len(), whole.len() - 1);
            }
            // Whether it was removed or lost cannot be told: it is kept.
            (b'o', _) => assert_eq!(ids(&tree, Kind::Regular).len(), ids(&whole, Kind::Regular).len() + 1, "{tree:?}"),
            (b'i', _)
                if !whole.values().any(|(id, _, _)| key[1..] == id.to_be_bytes())
                    && key[1..] != ROOT.0.to_be_bytes() =>
            {
                assert!(tree.keys().any(|name| name.starts_with("/lost+found/#")), "{what}: {tree:?}");
            }
            (b'i', _) => {
                let names = |tree: &Tree| tree.iter().map(|(name, (id, ..))| (name.clone(), *id)).collect::<Vec<_>>();
                assert_eq!(names(&tree), names(&whole), "{what}");
            }
            _ => assert_eq!(tree, whole, "{what}: {repaired:?}"),
        }
        // Permission bits, of directories the owner too, and attributes are in no other record.
        let named = whole.values().any(|(id, ..)| key[1..] == id.to_be_bytes()) || key[1..] == ROOT.0.to_be_bytes();
        let is_told = key[0] == b'x' || key[0] == b'i' && named;
        assert_eq!(repaired.lost.len(), usize::from(is_told), "{what}: {repaired:?}");
    }
}

/// A counter flipped beyond all numbers was believed in: `lost+found` got a number that the next run took for an impossible one.
#[test]
fn a_counter_beyond_all_numbers_is_not_believed_in() {
    let (map, facts) = sound();
    let mut map = map.clone();
    map.insert(b"N".to_vec(), ((1u64 << 60) + 65_538).to_le_bytes().to_vec());
    let entry = map.keys().find(|key| key[0] == b'd').unwrap().clone();
    let value = map.remove(&entry).unwrap();
    map.insert([&entry[..entry.len() - 1], b"/"].concat(), value);
    mend(&map, facts);
    mend(&map, &Facts::default());
}

#[test]
fn each_byte_flipped_loses_no_file_that_has_its_data() {
    let (map, facts) = sound();
    let whole = mend(map, facts).1;
    for (key, value) in map {
        for byte in 0..value.len() {
            for flip in [1, 0xff] {
                let mut damaged = map.clone();
                damaged.get_mut(key).unwrap()[byte] ^= flip;
                let what = format!("{}, byte {byte} ^ {flip:#x}", ullage_catalog::describe_key(key));
                if key == b"S" {
                    // A later version it may be: nothing is touched.
                    let _ = verify(&MemoryKv::new(damaged));
                    continue;
                }
                let (repaired, tree) = mend(&damaged, facts);
                for kind in [Kind::Regular, Kind::Directory] {
                    let (before, after) = (ids(&whole, kind), ids(&tree, kind));
                    assert!(before.is_subset(&after), "{what}: {kind:?} {before:?} became {after:?}: {repaired:?}");
                }
            }
        }
    }
}

#[test]
fn any_two_records_of_a_kind_swapped_lose_no_file_that_has_its_data() {
    let (map, facts) = sound();
    let whole = mend(map, facts).1;
    let keys: Vec<_> = map.keys().collect();
    for (n, a) in keys.iter().enumerate() {
        for b in keys[n + 1..].iter().filter(|b| b[0] == a[0] && map[**b] != map[*a]) {
            let mut damaged = map.clone();
            damaged.insert((*a).clone(), map[*b].clone());
            damaged.insert((*b).clone(), map[*a].clone());
            let what = format!("{} and {}", ullage_catalog::describe_key(a), ullage_catalog::describe_key(b));
            let (repaired, tree) = mend(&damaged, facts);
            let before = ids(&whole, Kind::Regular);
            assert!(before.is_subset(&ids(&tree, Kind::Regular)), "{what}: {repaired:?}");
            let regular = |id: u64| before.contains(&id);
            if a[0] == b'd' {
                let file = |key: &[u8]| u64::from_le_bytes(map[key][..8].try_into().unwrap());
                let alone = |id: u64| whole.values().filter(|(other, ..)| *other == id).count() == 1;
                if [file(a), file(b)].iter().all(|id| regular(*id) && alone(*id)) {
                    assert_eq!(tree, whole, "{what}: {repaired:?}");
                }
            }
        }
    }
}

#[test]
fn a_ring_of_directories_is_cut_and_kept_in_lost_and_found() {
    let (map, facts) = sound();
    let whole = mend(map, facts).1;
    let (upper, lower) = (whole["/upper"].0, whole["/upper/lower"].0);
    let entry = |directory: u64, name: &str| [b"d".as_slice(), &directory.to_be_bytes(), name.as_bytes()].concat();
    let mut damaged = map.clone();
    let value = damaged.remove(&entry(1, "upper")).unwrap();
    damaged.insert(entry(lower, "upper"), value);
    let record = [b"i".as_slice(), &upper.to_be_bytes()].concat();
    let place = 4 + 7 * 4 + 2 * 8;
    damaged.get_mut(&record).unwrap()[place..place + 8].copy_from_slice(&lower.to_le_bytes());
    assert!(!verify(&MemoryKv::new(damaged.clone())).unwrap().findings.is_empty());
    let (_, tree) = mend(&damaged, facts);
    assert!(tree.keys().any(|name| name.starts_with("/lost+found/#")), "{tree:?}");
    assert!(ids(&whole, Kind::Regular).is_subset(&ids(&tree, Kind::Regular)));
}

#[test]
fn a_catalog_of_a_later_version_is_refused_unchanged() {
    let (map, facts) = sound();
    let mut later = map.clone();
    later.insert(b"S".to_vec(), 9u32.to_le_bytes().to_vec());
    let kv = MemoryKv::new(later.clone());
    let newer = |error: ullage_catalog::Error| {
        matches!(error, ullage_catalog::Error::Kv(ullage_kv::Error::Newer { found: 9, .. }))
    };
    assert!(newer(repair(&kv, facts, (0, 0), at(8)).unwrap_err()));
    assert!(newer(verify(&kv).unwrap_err()));
    assert_eq!(kv.dump(), later);
}

#[test]
fn what_changed_since_a_snapshot_is_read_from_the_pools() {
    let (map, facts) = sound();
    let whole = mend(map, facts).1;
    let mut now = facts.clone();
    now.mode = RepairMode::Rebuild;
    let removed = whole["/file-0"].0;
    now.found.retain(|(file, _), _| file.0 != removed);
    let grown = now.found.iter_mut().find(|((file, _), _)| file.0 == whole["/upper/file-1"].0).unwrap().1;
    (grown.size, grown.blocks) = (77_777, 160);
    let found = Found { owner: Some((Class::Elastic, 77, 78)), ..grown.clone() };
    now.found.insert((FileId(500), Generation(500)), found.clone());
    now.found.insert((FileId(501), Generation(501)), Found { size: 0, blocks: 0, ..found.clone() });
    // One that says itself that it is nobody's, and what was written to one by mistake.
    now.found.insert((FileId(0), Generation(502)), Found { size: 0, blocks: 0, ..found.clone() });
    now.found.insert((FileId(0), Generation(503)), found);
    let (repaired, tree) = mend(map, &now);
    assert_eq!((repaired.dropped, repaired.lost.len()), (1, 0), "{repaired:?}");
    assert!(!tree.contains_key("/file-0"));
    assert_eq!(tree["/lost+found/#500"], (500, Kind::Regular, 77));
    assert!(!tree.values().any(|(id, ..)| [0, 501].contains(id)), "an empty file that nobody knows is a spare one");
    // A pool that is given up takes its files with it, and no others.
    now.gone.insert(PoolId(0));
    now.pools.clear();
    now.found.clear();
    let (repaired, tree) = mend(map, &now);
    assert_eq!(repaired.dropped, 5);
    assert!(ids(&tree, Kind::Regular).is_empty());
    assert_eq!(ids(&tree, Kind::Directory), ids(&whole, Kind::Directory));
}

/// A spare file that nobody knew had its leaf marked, and a file with data in the same leaf was left to the next start, which
/// takes away what nobody knows.
#[test]
fn a_mark_that_a_repair_sets_excuses_nothing_in_its_leaf() {
    let (map, facts) = sound();
    let mut facts = facts.clone();
    let data = Found { owner: Some((Class::Elastic, 77, 78)), ..facts.found.values().next().unwrap().clone() };
    facts.found.insert((FileId(500), Generation(500)), Found { size: 0, blocks: 0, ..data.clone() });
    facts.found.insert((FileId(501), Generation(501)), Found { size: 7, blocks: 8, ..data });
    let (repaired, tree) = mend(map, &facts);
    assert_eq!((repaired.adopted, repaired.lost.len()), (1, 0), "{repaired:?}");
    assert_eq!(tree["/lost+found/#501"], (501, Kind::Regular, 77));
    // A file that was never written to and has no backing file has its leaf marked as well: one with data is lost, and said.
    let regular: Vec<_> =
        facts.found.iter().filter(|(_, found)| found.size > 77).map(|(numbers, _)| *numbers).collect();
    let (empty, full) = (regular.iter().min().unwrap(), regular.iter().max().unwrap());
    let mut map = map.clone();
    let record = map.iter_mut().find(|(key, _)| key[0] == b'i' && key[1..] == empty.0.0.to_be_bytes()).unwrap().1;
    let mut now = ullage_catalog::Record::decode(empty.0, record).unwrap();
    (now.size, now.blocks) = (0, 0);
    *record = now.encode();
    facts.found.retain(|numbers, _| numbers != empty && numbers != full);
    let (repaired, _) = mend(&map, &facts);
    assert!(repaired.lost.iter().any(|text| text.contains("its data with it")), "{repaired:?}");
}

/// The next start removed it: it had no name when the snapshot was begun, and got one before the state was lost.
#[test]
fn a_file_that_may_have_got_its_name_after_the_snapshot_is_kept() {
    let (map, facts) = sound();
    let whole = mend(map, facts).1;
    let (&(open, _), _) = facts.found.iter().find(|(_, found)| found.size == 77).unwrap();
    assert!(!whole.values().any(|(id, ..)| *id == open.0), "what was removed while it was open stays so in a repair");
    let mut now = facts.clone();
    now.mode = RepairMode::Rebuild;
    let (repaired, tree) = mend(map, &now);
    assert_eq!((repaired.adopted, repaired.dropped), (1, 0), "{repaired:?}");
    assert_eq!(tree[&format!("/lost+found/#{open}")], (open.0, Kind::Regular, 5));
    // Without data there is nothing to keep.
    now.found.values_mut().filter(|found| found.size == 77).for_each(|found| found.size = 0);
    let (repaired, tree) = mend(map, &now);
    assert_eq!(repaired.adopted, 0, "{repaired:?}");
    assert!(!tree.values().any(|(id, ..)| *id == open.0));
}

/// It was bound to what it had left behind in its old pool, and the next start took its data for nobody's.
#[test]
fn a_file_that_went_to_another_pool_since_a_snapshot_is_bound_where_its_data_is() {
    let (map, facts) = sound();
    let whole = mend(map, facts).1;
    let file = FileId(whole["/file-0"].0);
    let (numbers, old) = facts.found.iter().find(|((of, _), _)| *of == file).unwrap();
    let empty = |found: &Found| Found { size: 0, blocks: 0, ..found.clone() };
    let newer = Generation(numbers.1.0 + 1000);
    let locator = format!("{LEAF}/{:x}.{:x}", file.0, newer.0).into_bytes().into_boxed_slice();
    let new = Found { pool: PoolId(1), locator, size: 5555, blocks: 16, owner: None, ..old.clone() };
    let bound = |old: Option<Found>, new: Option<Found>, more: &dyn Fn(&mut Facts)| {
        let mut now = facts.clone();
        now.mode = RepairMode::Rebuild;
        now.pools.insert(PoolId(1));
        now.found.remove(numbers);
        now.found.extend(old.map(|old| (*numbers, old)));
        now.found.extend(new.map(|new| ((file, newer), new)));
        more(&mut now);
        let kv = Arc::new(MemoryKv::new(map.clone()));
        let repaired = repair(&*kv, &now, (0, 0), at(8)).unwrap();
        assert_eq!(verify(&*kv).unwrap().findings, []);
        mend(map, &now);
        let catalog = Catalog::open(kv, 0, 0, at(9)).unwrap();
        let root = catalog.root().clone();
        let inode = catalog.lookup(&root, b"file-0").unwrap();
        let record = inode.map(|inode| inode.record());
        let bound = record.map(|record| (record.backing.unwrap().pool.0, record.size, record.uid));
        (bound, repaired.done.iter().any(|text| text.contains("the next start takes it away")))
    };
    let plain = |_: &mut Facts| {};
    // Emptied, used again, or not given back yet.
    assert_eq!(bound(Some(empty(old)), Some(new.clone()), &plain), (Some((1, 5555, 5)), false));
    assert_eq!(bound(None, Some(new.clone()), &plain), (Some((1, 5555, 5)), false));
    assert_eq!(bound(Some(old.clone()), Some(new.clone()), &plain), (Some((1, 5555, 5)), true));
    // It stayed where it was, as a crash came before the catalog knew of its copy, and that was emptied.
    assert_eq!(bound(Some(old.clone()), Some(empty(&new)), &plain), (Some((0, 1000, 5)), false));
    assert_eq!(bound(Some(empty(old)), Some(empty(&new)), &plain), (Some((0, 0, 5)), false));
    // It cannot be read now, but its data is there.
    assert_eq!(bound(Some(empty(old)), Some(Found { unreadable: true, ..empty(&new) }), &plain).0, Some((1, 1000, 5)));
    // The pool where it was is given up; then the one where it is.
    let give_up = |pool: u16| {
        move |now: &mut Facts| {
            now.gone.insert(PoolId(pool));
            now.pools.remove(&PoolId(pool));
            now.found.retain(|_, found| found.pool != PoolId(pool));
        }
    };
    assert_eq!(bound(None, Some(new.clone()), &give_up(0)).0, Some((1, 5555, 5)));
    assert_eq!(bound(Some(old.clone()), Some(new.clone()), &give_up(1)).0, Some((0, 1000, 5)));
    // A pool from last week brings an older one than the records name.
    let older = |now: &mut Facts| {
        now.found.insert((file, Generation(1)), Found { size: 77, ..old.clone() });
    };
    assert_eq!(bound(Some(empty(old)), None, &older), (Some((0, 0, 5)), true));
    // Records of now are right.
    let repairs = |now: &mut Facts| now.mode = RepairMode::Repair;
    assert_eq!(bound(Some(old.clone()), Some(new.clone()), &repairs), (Some((0, 1000, 5)), true));
}

/// The record of a file that stayed where it was is made again from its data, not from the copy that was given back.
#[test]
fn a_lost_record_is_made_again_from_the_backing_file_with_data() {
    let (map, facts) = sound();
    let whole = mend(map, facts).1;
    let file = FileId(whole["/file-0"].0);
    let mut facts = facts.clone();
    let old = facts.found.iter().find(|((of, _), _)| *of == file).unwrap().1.clone();
    let locator = format!("{LEAF}/{:x}.ffff", file.0).into_bytes().into_boxed_slice();
    facts.found.insert((file, Generation(0xffff)), Found { size: 0, blocks: 0, locator, ..old });
    let mut map = map.clone();
    map.retain(|key, _| !(key[0] == b'i' && key[1..] == file.0.to_be_bytes()));
    let kv = Arc::new(MemoryKv::new(map));
    repair(&*kv, &facts, (0, 0), at(8)).unwrap();
    let catalog = Catalog::open(kv, 0, 0, at(9)).unwrap();
    assert_eq!(catalog.get(file).unwrap().record().size, 1000);
}

#[test]
fn without_any_record_all_files_come_to_lost_and_found_with_their_owners() {
    let (_, facts) = sound();
    let mut facts = facts.clone();
    facts.mode = RepairMode::Rebuild;
    let (_, tree) = mend(&Map::new(), &facts);
    assert_eq!(tree.len(), facts.found.len() + 1);
    for (&(file, _), found) in &facts.found {
        assert_eq!(tree[&format!("/lost+found/#{file}")], (file.0, Kind::Regular, found.owner.unwrap().1));
    }
}

/// Whoever had made a directory of that name owned what a repair saved.
#[test]
fn what_is_saved_goes_to_no_directory_that_others_made_or_may_look_into() {
    let (map, facts) = sound();
    let mut facts = facts.clone();
    let unknown = facts.found.values().next().unwrap().clone();
    facts.found.insert((FileId(500), Generation(500)), Found { owner: Some((Class::Elastic, 77, 78)), ..unknown });
    for (uid, mode, own) in [(5, 0o700, false), (0, 0o755, false), (0, 0o701, false), (0, 0o700, true)] {
        let kv = Arc::new(MemoryKv::new(map.clone()));
        let catalog = Catalog::open(kv.clone(), 0, 0, at(6)).unwrap();
        let directory = New { mode, ..new(&catalog, Kind::Directory, uid) };
        catalog.create(&catalog.root().clone(), b"lost+found", directory, at(6)).unwrap();
        catalog.sync().unwrap();
        drop(catalog);
        let (_, tree) = mend(&kv.dump(), &facts);
        assert_eq!(tree.contains_key("/lost+found/#500"), own, "{uid} {mode:o}: {tree:?}");
        assert_eq!(tree.contains_key("/lost+found+/#500"), !own, "{uid} {mode:o}: {tree:?}");
    }
}

#[derive(Clone, Debug)]
enum Damage {
    Delete(prop::sample::Index),
    Flip(prop::sample::Index, prop::sample::Index, u8),
    Swap(prop::sample::Index, prop::sample::Index),
    Rename(prop::sample::Index, prop::sample::Index, u8),
}

fn damages() -> impl Strategy<Value = Vec<Damage>> {
    let index = any::<prop::sample::Index>;
    let one = prop_oneof![
        index().prop_map(Damage::Delete),
        (index(), index(), 1u8..).prop_map(|(a, b, c)| Damage::Flip(a, b, c)),
        (index(), index()).prop_map(|(a, b)| Damage::Swap(a, b)),
        (index(), index(), 1u8..).prop_map(|(a, b, c)| Damage::Rename(a, b, c)),
    ];
    prop::collection::vec(one, 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(3),
        ..ProptestConfig::default()
    })]
    #[test]
    fn any_damage_ends_in_a_clean_space(damages in damages(), known in any::<bool>()) {
        let (map, facts) = sound();
        let mut map = map.clone();
        for damage in damages {
            let keys: Vec<_> = map.keys().filter(|key| *key != b"S").cloned().collect();
            match damage {
                Damage::Delete(at) => drop(map.remove(at.get(&keys))),
                Damage::Flip(at, byte, flip) => {
                    let value = map.get_mut(at.get(&keys)).unwrap();
                    if !value.is_empty() {
                        let byte = byte.index(value.len());
                        value[byte] ^= flip;
                    }
                }
                Damage::Swap(a, b) => {
                    let (a, b) = (a.get(&keys), b.get(&keys));
                    let (one, other) = (map[a].clone(), map[b].clone());
                    map.insert(a.clone(), other);
                    map.insert(b.clone(), one);
                }
                Damage::Rename(at, byte, flip) => {
                    let mut key = at.get(&keys).clone();
                    let value = map.remove(&key).unwrap();
                    let byte = byte.index(key.len());
                    key[byte] ^= flip;
                    map.insert(key, value);
                }
            }
        }
        let none = Facts::default();
        if verify(&MemoryKv::new(map.clone())).is_ok() {
            mend(&map, if known { facts } else { &none });
        }
    }
}
