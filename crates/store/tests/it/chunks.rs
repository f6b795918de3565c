//! The chunk store against a plain model: what it holds, what it charges, and what survives an unclean end.

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use ullage_journal::Durability;
use ullage_store::chunk::{CHARGED_MAX, ChunkName, ChunkStore, Expected, Ledger, OpError, Options, Posting};

/// Counts per user, up to a limit each.
struct Counting {
    limit: i64,
    used: BTreeMap<Arc<str>, i64>,
}

impl Counting {
    fn new(limit: i64) -> Self {
        Self { limit, used: BTreeMap::new() }
    }

    fn add(&mut self, postings: &[Posting]) -> Vec<u8> {
        let mut note = Vec::new();
        for posting in postings {
            *self.used.entry(posting.user.clone()).or_default() += posting.delta_bytes;
            note.extend(format!("{} {}\n", posting.user, posting.delta_bytes).bytes());
        }
        note
    }
}

impl Ledger for Counting {
    type Payment = ();
    type Receipt = ();
    type Refusal = &'static str;

    fn book(&mut self, postings: &[Posting], (): &()) -> Result<(Vec<u8>, ()), &'static str> {
        for posting in postings {
            if self.used.get(&posting.user).unwrap_or(&0) + posting.delta_bytes > self.limit {
                return Err("over the limit");
            }
        }
        Ok((self.add(postings), ()))
    }

    fn correct(&mut self, postings: &[Posting]) -> Vec<u8> {
        self.add(postings)
    }

    fn replay(&mut self, note: &[u8]) -> Result<(), String> {
        for line in std::str::from_utf8(note).unwrap().lines() {
            let (user, delta) = line.split_once(' ').unwrap();
            *self.used.entry(user.into()).or_default() += delta.parse::<i64>().unwrap();
        }
        Ok(())
    }

    fn save(&self) -> Vec<u8> {
        self.used.iter().map(|(user, used)| format!("{user} {used}\n")).collect::<String>().into_bytes()
    }

    fn load(&mut self, state: &[u8]) -> Result<(), String> {
        self.used.clear();
        self.replay(state)
    }
}

type Store = ChunkStore<Counting>;

fn open(root: &Path) -> Store {
    open_limited(root, i64::MAX / 2)
}

fn open_limited(root: &Path, limit: i64) -> Store {
    let options = Options { durability: Durability::Process, ..Options::default() };
    ChunkStore::open(root, Counting::new(limit), options).unwrap()
}

fn name(text: &str) -> ChunkName {
    text.parse().unwrap()
}

fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed) | 1).collect()
}

/// What the file system says all chunks occupy.
fn on_disk(root: &Path) -> u64 {
    let mut sum = 0;
    for shard in fs::read_dir(root.join("chunks")).unwrap() {
        for file in fs::read_dir(shard.unwrap().path()).unwrap() {
            sum += file.unwrap().metadata().unwrap().blocks() * 512;
        }
    }
    sum
}

fn assert_exact(store: &Store, root: &Path) {
    let chunks: u64 = store.charged().values().sum();
    let ledger: i64 = store.with_ledger(|l| (None, l.used.values().sum())).unwrap();
    assert_eq!(chunks, on_disk(root), "the index says what the file system says");
    assert_eq!(ledger as u64, chunks, "the ledger says what the index says");
}

fn put(store: &Store, chunk: &str, data: &[u8]) -> Result<(), OpError<&'static str>> {
    let owner: Arc<str> = "alice".into();
    store.put(&name(chunk), &owner, &owner, &owner, Some(0o600), data, true, &()).map(drop)
}

/// The second one took the place of the first.
#[test]
fn strangers_of_one_name_are_all_kept() {
    let root = tempfile::tempdir().unwrap();
    for text in ["one", "two", "three"] {
        drop(open(root.path()));
        fs::write(root.path().join("chunks/00/stray"), text).unwrap();
    }
    assert_eq!(open(root.path()).recount().lost, 1);
    let read = |name| fs::read_to_string(root.path().join("lost").join(name)).unwrap();
    assert_eq!(["stray", "stray.1", "stray.2"].map(read), ["one", "two", "three"]);
}

/// Regression: who removed a chunk whose file somebody had taken away stopped the store, for everybody.
#[test]
fn a_chunk_whose_file_is_gone_is_damaged_and_can_be_replaced_and_removed() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let take_away = |chunk: &str| {
        let shard = format!("{:02x}", xxhash_rust::xxh3::xxh3_64(chunk.as_bytes()) as u8);
        fs::remove_file(root.path().join("chunks").join(shard).join(format!("{}.chunk", chunk.replace('/', "%"))))
            .unwrap();
    };
    for chunk in ["alice/a", "alice/b"] {
        put(&store, chunk, &pattern(5000, 1)).unwrap();
        take_away(chunk);
        assert!(matches!(store.read(&name(chunk), "alice", 0, 10), Err(OpError::Damaged { .. })));
    }
    put(&store, "alice/a", &pattern(5000, 2)).unwrap();
    assert_eq!(store.read(&name("alice/a"), "alice", 0, 5000).unwrap().0, pattern(5000, 2));
    store.delete(&name("alice/b"), "alice", &()).unwrap();
    assert_exact(&store, root.path());
    put(&store, "alice/c", &pattern(5000, 3)).unwrap();
}

/// Regression: where much of a user's was forgotten at once the store stopped, and after each restart again: no record holds more than 64 MiB.
#[test]
fn what_the_ledger_changes_at_once_may_be_more_than_a_record_holds() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    put(&store, "alice/a", &pattern(5000, 1)).unwrap();
    let user: Arc<str> = "u".repeat(1000).into();
    let postings = vec![Posting { user: user.clone(), delta_bytes: 1 }; 70_000];
    store.with_ledger(|ledger| (Some(ledger.add(&postings)), ())).unwrap();
    put(&store, "alice/b", &pattern(5000, 2)).unwrap();
    drop(store);
    let store = open(root.path());
    assert_eq!(store.with_ledger(|ledger| (None, ledger.used.get(&user).copied())).unwrap(), Some(70_000));
    assert_eq!(store.read(&name("alice/b"), "alice", 0, 5000).unwrap().0, pattern(5000, 2));
}

/// A read was let in by the chunk that was there before it waited for memory, and was given what had come in its place: of another mode.
#[test]
fn who_reads_is_asked_for_when_it_is_read() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let alice: Arc<str> = "alice".into();
    for (mode, is_let) in [(0o644, true), (0o600, false)] {
        store.put(&name("a/own"), "alice", &alice, &alice, Some(mode), b"data", true, &()).unwrap();
        assert_eq!(store.read(&name("a/own"), "alice", 0, 4).unwrap().0, b"data");
        let read = store.read(&name("a/own"), "bob", 0, 4);
        assert!(if is_let { read.is_ok() } else { matches!(read, Err(OpError::Forbidden(_))) }, "{mode:o}");
    }
}

/// A writer could set the mode of another's chunk to 0, for good; and a request that was let in before the chunk was made wrote to it after.
#[test]
fn the_mode_binds_when_a_change_is_made_and_only_the_owner_sets_it() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let (alice, bob): (Arc<str>, Arc<str>) = ("alice".into(), "bob".into());
    let put_as = |by: &Arc<str>, chunk: &str, mode: Option<u16>| {
        store.put(&name(chunk), by, &alice, by, mode, b"data", true, &()).map(|done| done.info.unwrap().mode)
    };
    assert_eq!(put_as(&alice, "a/shared", Some(0o666)).unwrap(), 0o666);
    assert_eq!(put_as(&bob, "a/shared", Some(0)).unwrap(), 0o666);
    assert_eq!(put_as(&alice, "a/shared", None).unwrap(), 0o666);
    assert_eq!(put_as(&alice, "a/own", None).unwrap(), 0o600);
    let refused = [
        put_as(&bob, "a/own", None).map(drop),
        store.write_at(&name("a/own"), "bob", &bob, 0, b"x", &()).map(drop),
        store.truncate(&name("a/own"), "bob", &bob, 0, &()).map(drop),
        store.delete(&name("a/own"), "bob", &()).map(drop),
    ];
    for refusal in refused {
        assert!(matches!(refusal, Err(OpError::Forbidden(_))), "{refusal:?}");
    }
    // Whoever locks the door has the key.
    assert_eq!(put_as(&alice, "a/own", Some(0o400)).unwrap(), 0o400);
    assert!(store.write_at(&name("a/own"), "alice", &alice, 0, b"x", &()).is_err());
    assert_eq!(put_as(&alice, "a/own", Some(0)).unwrap(), 0);
    store.delete(&name("a/own"), "alice", &()).unwrap();
}

/// A file system of its own, as small as a disk can be; nothing where tests may not mount.
struct Disk(tempfile::TempDir);

impl Disk {
    fn new() -> Option<Self> {
        let point = tempfile::tempdir().unwrap();
        let flags = rustix::mount::MountFlags::empty();
        match rustix::mount::mount(c"tmpfs", point.path(), c"tmpfs", flags, Some(c"size=32m")) {
            Ok(()) => Some(Self(point)),
            Err(error) => {
                println!("skipped: no file system can be mounted ({error})");
                None
            }
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}

/// The journal had no room of its own: changes that take none filled the disk, after which nothing could be read or removed any more,
/// and the store did not start again.
#[test]
fn a_store_on_a_full_disk_reads_removes_and_starts_again() {
    let Some(disk) = Disk::new() else { return };
    let root = disk.0.path().join("store");
    fs::create_dir(&root).unwrap();
    let alice: Arc<str> = "alice".into();
    let mut stored = 0;
    for round in 0..3 {
        let store = open(&root);
        while put(&store, &format!("a/{stored}"), &pattern(100_000, 1)).is_ok() {
            stored += 1;
        }
        assert!(matches!(put(&store, "a/x", &pattern(100_000, 1)), Err(OpError::NoSpace)));
        // In place: only the journal grows, until the room held for it is all there is.
        let full =
            (0..2000).find_map(|_| store.write_at(&name("a/0"), "alice", &alice, 0, &pattern(60_000, 2), &()).err());
        assert!(matches!(full, Some(OpError::NoSpace)), "{full:?}");
        // And that of others.
        let other = fs::File::create(disk.0.path().join("other")).unwrap();
        let mut length = 0;
        while other.write_all_at(&[1; 4096], length).is_ok() {
            length += 4096;
        }
        assert_eq!(store.read(&name("a/1"), "alice", 0, u64::MAX).unwrap().0, pattern(100_000, 1));
        stored -= 1;
        store.delete(&name(&format!("a/{stored}")), "alice", &()).unwrap();
        drop(store);
        let store = open(&root);
        store.hold_room();
        assert!(matches!(put(&store, "a/x", &pattern(100, 1)), Err(OpError::NoSpace)), "round {round}");
        store.delete(&name("a/0"), "alice", &()).unwrap();
        fs::remove_file(disk.0.path().join("other")).unwrap();
        for _ in 0..60 {
            stored -= 1;
            store.delete(&name(&format!("a/{stored}")), "alice", &()).unwrap();
        }
        store.hold_room();
        put(&store, "a/0", &pattern(100_000, 1)).unwrap();
        assert_exact(&store, &root);
    }
}

fn file_of(root: &Path, chunk: &str) -> PathBuf {
    let shard = format!("{:02x}", xxhash_rust::xxh3::xxh3_64(chunk.as_bytes()) as u8);
    root.join("chunks").join(shard).join(format!("{}.chunk", chunk.replace('/', "%")))
}

/// The last snapshot said that the chunk was new, and dropped the record that would have redone it: a change that its client
/// was told of was gone, or the chunk with it.
#[test]
fn a_stopped_store_keeps_what_a_restart_must_redo() {
    for before in [None, Some(pattern(90_000, 1))] {
        let root = tempfile::tempdir().unwrap();
        let store = open(root.path());
        let file = file_of(root.path(), "a/0");
        let aside = root.path().join("aside");
        if let Some(before) = &before {
            put(&store, "a/0", before).unwrap();
            fs::rename(&file, &aside).unwrap();
        }
        // Nothing can be renamed to where a directory is.
        fs::create_dir(&file).unwrap();
        let stopped = put(&store, "a/0", &pattern(100_000, 2)).unwrap_err();
        assert!(matches!(stopped, OpError::Stopped(_)), "{stopped}");
        fs::remove_dir(&file).unwrap();
        if before.is_some() {
            fs::rename(&aside, &file).unwrap();
        }
        assert!(matches!(store.snapshot(), Err(OpError::Stopped(_))));
        assert!(!store.snapshot_due());
        drop(store);
        let store = open(root.path());
        assert_eq!(store.recount().missing, 0);
        assert_eq!(store.read(&name("a/0"), "alice", 0, u64::MAX).unwrap().0, pattern(100_000, 2));
        assert_exact(&store, root.path());
    }
}

#[test]
fn a_file_of_an_earlier_change_is_damage() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    put(&store, "a/0", &pattern(90_000, 1)).unwrap();
    let file = file_of(root.path(), "a/0");
    let old = fs::read(&file).unwrap();
    put(&store, "a/0", &pattern(100_000, 2)).unwrap();
    fs::write(&file, old).unwrap();
    let read = store.read(&name("a/0"), "alice", 0, u64::MAX);
    assert!(matches!(read, Err(OpError::Damaged { offset: 0, .. })), "{read:?}");
    put(&store, "a/0", &pattern(100_000, 3)).unwrap();
    assert_eq!(store.read(&name("a/0"), "alice", 0, u64::MAX).unwrap().0, pattern(100_000, 3));
}

#[test]
fn what_is_written_is_read_back_and_charged_at_what_it_occupies() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    for (chunk, length) in [("a/0", 0), ("a/1", 1), ("a/2", 4096), ("a/3", 65_537), ("a/4", 4 << 20)] {
        put(&store, chunk, &pattern(length, 3)).unwrap();
        assert_eq!(store.read(&name(chunk), "alice", 0, u64::MAX).unwrap().0, pattern(length, 3));
    }
    assert_exact(&store, root.path());
    let alice: Arc<str> = "alice".into();
    store.write_at(&name("a/1"), "alice", &alice, 100_000, b"far", &()).unwrap();
    let read = store.read(&name("a/1"), "alice", 0, u64::MAX).unwrap().0;
    assert_eq!((read.len(), read[0], read[50_000], &read[100_000..]), (100_003, pattern(1, 3)[0], 0, &b"far"[..]));
    store.truncate(&name("a/4"), "alice", &alice, 70_000, &()).unwrap();
    assert_eq!(store.read(&name("a/4"), "alice", 69_999, 10).unwrap().0, pattern(70_000, 3)[69_999..]);
    store.delete(&name("a/3"), "alice", &()).unwrap();
    assert!(matches!(store.read(&name("a/3"), "alice", 0, 1), Err(OpError::NotFound(_))));
    assert_exact(&store, root.path());
    let names: Vec<String> = store.list("a/", "", 10).into_iter().map(|(name, _)| name.to_string()).collect();
    assert_eq!(names, ["a/0", "a/1", "a/2", "a/4"]);
    let names: Vec<String> = store.list("a/", "a/1", 1).into_iter().map(|(name, _)| name.to_string()).collect();
    assert_eq!(names, ["a/2"]);
}

/// What a chunk had as a hole was written as zeros when it was cut: that cost all its size.
#[test]
fn zeros_cost_nothing_and_come_back() {
    let root = tempfile::tempdir().unwrap();
    let store = open_limited(root.path(), 40_000);
    let alice: Arc<str> = "alice".into();
    put(&store, "a/0", &pattern(1, 1)).unwrap();
    for size in [16 << 20, (16 << 20) - 1, 9 << 20] {
        store.truncate(&name("a/0"), "alice", &alice, size, &()).unwrap();
        assert_eq!(store.charged()["alice"], 8192);
    }
    assert_exact(&store, root.path());
    let before = fs::metadata(file_of(root.path(), "a/0")).unwrap().ino();
    store.truncate(&name("a/0"), "alice", &alice, 9 << 20, &()).unwrap();
    let after = fs::metadata(file_of(root.path(), "a/0")).unwrap().ino();
    assert_eq!(after, before, "the same size is no new file");
    // Some pages of data, with zeros before, between and after them, and ends that are no page's.
    for length in [200_000, 196_608, 110_000] {
        let mut data = vec![0; length];
        for page in [2, 3, 20, 26] {
            data[page * 4096..length.min((page + 1) * 4096)].fill(page as u8);
        }
        put(&store, "a/1", &data).unwrap();
        assert_eq!(store.stat(&name("a/1")).unwrap().allocated(), 5 * 4096, "{length}");
        assert_eq!(store.read(&name("a/1"), "alice", 0, u64::MAX).unwrap().0, data);
        data[..70_000].fill(0);
        store.write_at(&name("a/1"), "alice", &alice, 0, &data[..70_000], &()).unwrap();
        assert_eq!(store.stat(&name("a/1")).unwrap().allocated(), 3 * 4096, "{length}");
        assert_eq!(store.read(&name("a/1"), "alice", 0, u64::MAX).unwrap().0, data);
    }
    put(&store, "a/1", &[0; 5000]).unwrap();
    std::mem::forget(store);
    let store = open(root.path());
    assert_eq!(store.read(&name("a/1"), "alice", 0, u64::MAX).unwrap().0, [0; 5000]);
    assert_eq!(store.read(&name("a/0"), "alice", 0, 2).unwrap().0, [pattern(1, 1)[0], 0]);
    assert_exact(&store, root.path());
}

#[test]
fn a_refused_write_changes_neither_chunk_nor_charge() {
    let root = tempfile::tempdir().unwrap();
    let store = open_limited(root.path(), 20_000);
    let alice: Arc<str> = "alice".into();
    put(&store, "a/0", &pattern(4096, 1)).unwrap();
    assert!(matches!(put(&store, "a/1", &pattern(100_000, 1)), Err(OpError::Refused(_))));
    let refused = store.write_at(&name("a/0"), "alice", &alice, 8192, &pattern(40_000, 2), &());
    assert!(matches!(refused, Err(OpError::Refused(_))));
    let refused = store.write_at(&name("a/0"), "alice", &alice, 8192, &pattern(400_000, 2), &());
    assert!(matches!(refused, Err(OpError::Refused(_))));
    assert_eq!(store.read(&name("a/0"), "alice", 0, u64::MAX).unwrap().0, pattern(4096, 1));
    assert_exact(&store, root.path());
}

#[test]
fn damage_on_the_medium_is_never_served_and_never_gets_a_new_checksum() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let alice: Arc<str> = "alice".into();
    put(&store, "a/0", &pattern(200_000, 1)).unwrap();
    let file = fs::File::options().write(true).open(file_of(root.path(), "a/0")).unwrap();
    file.write_all_at(b"X", 4096 + 70_000).unwrap();
    assert!(matches!(store.read(&name("a/0"), "alice", 65_536, 1), Err(OpError::Damaged { offset: 65_536, .. })));
    assert!(store.write_at(&name("a/0"), "alice", &alice, 65_600, b"y", &()).is_err());
    assert_eq!(store.read(&name("a/0"), "alice", 0, 65_536).unwrap().0, pattern(65_536, 1), "other blocks are fine");
    file.write_all_at(b"X", 20).unwrap();
    assert!(matches!(store.read(&name("a/0"), "alice", 0, 1), Err(OpError::Damaged { offset: 0, .. })));
}

#[test]
fn an_unclean_end_loses_nothing_and_counts_nothing_twice() {
    let root = tempfile::tempdir().unwrap();
    let alice: Arc<str> = "alice".into();
    for round in 0..4u8 {
        let store = open(root.path());
        assert_exact(&store, root.path());
        assert_eq!(store.recount().missing + store.recount().lost + store.recount().credited_bytes, 0);
        for i in 0..5u8 {
            let chunk = format!("a/{i}");
            put(&store, &chunk, &pattern(usize::from(i) * 30_000, round)).unwrap();
            store.write_at(&name(&chunk), "alice", &alice, u64::from(i) * 1000, &[round; 5000], &()).unwrap();
        }
        store.delete(&name("a/0"), "alice", &()).unwrap();
        // What a crash leaves: a file not yet in place, and no destructor run.
        fs::write(root.path().join("new/ffff"), b"half").unwrap();
        std::mem::forget(store);
    }
    let store = open(root.path());
    assert_eq!(store.recount().unfinished, 1);
    assert_eq!(store.recount().chunks, 4);
    let mut expected = pattern(90_000, 3);
    expected[3000..8000].fill(3);
    assert_eq!(store.read(&name("a/3"), "alice", 0, u64::MAX).unwrap().0, expected);
    assert_exact(&store, root.path());
}

/// The journal is replayed over every older state of the chunks' files: as if none, or only some, of the changes had reached
/// the disk.
#[test]
fn replay_restores_chunks_that_never_reached_the_disk() {
    let root = tempfile::tempdir().unwrap();
    let alice: Arc<str> = "alice".into();
    let store = open(root.path());
    put(&store, "a/0", &pattern(10_000, 1)).unwrap();
    put(&store, "a/1", &pattern(10_000, 1)).unwrap();
    store.write_at(&name("a/0"), "alice", &alice, 5000, &pattern(10_000, 2), &()).unwrap();
    store.delete(&name("a/1"), "alice", &()).unwrap();
    put(&store, "a/1", &pattern(3000, 4)).unwrap();
    let expected: Vec<Vec<u8>> = ["a/0", "a/1"].map(|c| store.read(&name(c), "alice", 0, u64::MAX).unwrap().0).into();
    std::mem::forget(store);
    for entry in fs::read_dir(root.path().join("chunks")).unwrap() {
        for file in fs::read_dir(entry.unwrap().path()).unwrap() {
            fs::remove_file(file.unwrap().path()).unwrap();
        }
    }
    // The patch needs its chunk, which an earlier record makes again.
    let store = open(root.path());
    let found: Vec<Vec<u8>> = ["a/0", "a/1"].map(|c| store.read(&name(c), "alice", 0, u64::MAX).unwrap().0).into();
    assert_eq!(found, expected);
    assert_exact(&store, root.path());
}

/// A torn header said nothing of how new its file was: an older delete took the file away, or older content came over it.
#[test]
fn a_torn_header_does_not_bring_back_what_was_before() {
    for first in ["put", "delete", "large"] {
        let root = tempfile::tempdir().unwrap();
        let alice: Arc<str> = "alice".into();
        let store = open(root.path());
        put(&store, "a/0", &pattern(if first == "large" { 300_000 } else { 1000 }, 1)).unwrap();
        if first == "delete" {
            store.delete(&name("a/0"), "alice", &()).unwrap();
        }
        put(&store, "a/0", &pattern(200_000, 2)).unwrap();
        store.write_at(&name("a/0"), "alice", &alice, 10, &[7; 10], &()).unwrap();
        std::mem::forget(store);
        let file = fs::File::options().write(true).open(file_of(root.path(), "a/0")).unwrap();
        file.write_all_at(&[0xff; 2048], 2048).unwrap();
        let mut expected = pattern(200_000, 2);
        expected[10..20].fill(7);
        let store = open(root.path());
        assert_eq!(store.recount().missing + store.recount().lost, 0, "{first}");
        assert_eq!(store.read(&name("a/0"), "alice", 0, u64::MAX).unwrap().0, expected, "{first}");
        assert_exact(&store, root.path());
    }
}

/// Regression: the header on disk was of the later of two changes, and of the earlier one, whose data had not come so far, nothing was redone: the
/// chunk was damaged.
#[test]
fn a_header_that_reached_the_disk_hides_no_data_that_did_not() {
    for first in ["put", "write"] {
        let root = tempfile::tempdir().unwrap();
        let alice: Arc<str> = "alice".into();
        let store = open(root.path());
        let mut expected = pattern(60_000, 1);
        put(&store, "a/0", &expected).unwrap();
        let mut before = vec![0; 4096 + expected.len()];
        if first == "write" {
            store.snapshot().unwrap();
            before = fs::read(file_of(root.path(), "a/0")).unwrap();
        }
        for (number, offset) in [(1, 10_000), (2, 40_000)] {
            store.write_at(&name("a/0"), "alice", &alice, offset as u64, &[number; 5000], &()).unwrap();
            expected[offset..offset + 5000].fill(number);
        }
        std::mem::forget(store);
        let file = fs::File::options().write(true).open(file_of(root.path(), "a/0")).unwrap();
        file.write_all_at(&before[4096..], 4096).unwrap();
        let store = open(root.path());
        let read = store.read(&name("a/0"), "alice", 0, u64::MAX).map(|(bytes, _)| bytes == expected);
        assert!(matches!(read, Ok(true)), "{first}: {read:?}");
        assert_exact(&store, root.path());
    }
}

/// What could not be opened was taken for older than the change.
#[test]
fn a_file_that_cannot_be_looked_at_ends_the_start() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    put(&store, "a/0", &pattern(1000, 2)).unwrap();
    store.snapshot().unwrap();
    store.write_at(&name("a/0"), "alice", &"alice".into(), 0, &pattern(1000, 1), &()).unwrap();
    std::mem::forget(store);
    let file = file_of(root.path(), "a/0");
    fs::rename(&file, root.path().join("aside")).unwrap();
    std::os::unix::fs::symlink(&file, &file).unwrap();
    let options = Options { durability: Durability::Process, ..Options::default() };
    assert!(ChunkStore::open(root.path(), Counting::new(1 << 30), options).is_err());
    fs::rename(root.path().join("aside"), &file).unwrap();
    assert_eq!(open(root.path()).read(&name("a/0"), "alice", 0, u64::MAX).unwrap().0, pattern(1000, 1));
}

#[test]
fn a_missing_chunk_is_credited_to_its_owner() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    put(&store, "a/0", &pattern(10_000, 1)).unwrap();
    put(&store, "a/1", &pattern(10_000, 1)).unwrap();
    drop(store);
    let store = open(root.path());
    drop(store);
    for entry in fs::read_dir(root.path().join("chunks")).unwrap() {
        for file in fs::read_dir(entry.unwrap().path()).unwrap() {
            let file = file.unwrap();
            if file.file_name() == "a%1.chunk" {
                fs::remove_file(file.path()).unwrap();
            }
        }
    }
    for round in 0..2 {
        let store = open(root.path());
        assert_eq!(store.recount().missing, u64::from(round == 0), "credited once");
        assert_exact(&store, root.path());
    }
}

#[derive(Debug, Clone)]
enum Op {
    Put(u8, usize),
    Write(u8, u64, usize),
    Truncate(u8, u64),
    Delete(u8),
    Reopen,
    Snapshot,
}

fn op() -> impl Strategy<Value = Op> {
    let length = prop_oneof![0usize..9000, 60_000usize..70_000, 120_000usize..140_000];
    prop_oneof![
        4 => (0u8..3, length.clone()).prop_map(|(c, l)| Op::Put(c, l)),
        6 => (0u8..3, 0u64..200_000, length).prop_map(|(c, o, l)| Op::Write(c, o, l)),
        2 => (0u8..3, 0u64..250_000).prop_map(|(c, s)| Op::Truncate(c, s)),
        1 => (0u8..3).prop_map(Op::Delete),
        1 => Just(Op::Reopen),
        1 => Just(Op::Snapshot),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Whatever is done, in whatever order, with unclean ends between: contents and charges are the model's.
    #[test]
    fn any_sequence_agrees_with_a_model(ops in prop::collection::vec(op(), 1..25)) {
        let root = tempfile::tempdir().unwrap();
        let alice: Arc<str> = "alice".into();
        let mut store = open(root.path());
        let mut model: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for (step, op) in ops.into_iter().enumerate() {
            let key = |c: u8| format!("a/{c}");
            match op {
                Op::Put(c, length) => {
                    put(&store, &key(c), &pattern(length, step as u8)).unwrap();
                    model.insert(key(c), pattern(length, step as u8));
                }
                Op::Write(c, offset, length) => {
                    let data = pattern(length, step as u8);
                    let result = store.write_at(&name(&key(c)), "alice", &alice, offset, &data, &());
                    prop_assert_eq!(result.is_ok(), model.contains_key(&key(c)));
                    if let Some(chunk) = model.get_mut(&key(c)).filter(|_| length > 0) {
                        let end = offset as usize + length;
                        chunk.resize(chunk.len().max(end), 0);
                        chunk[offset as usize..end].copy_from_slice(&data);
                    }
                }
                Op::Truncate(c, size) => {
                    let result = store.truncate(&name(&key(c)), "alice", &alice, size, &());
                    prop_assert_eq!(result.is_ok(), model.contains_key(&key(c)));
                    if let Some(chunk) = model.get_mut(&key(c)) {
                        chunk.resize(size as usize, 0);
                    }
                }
                Op::Delete(c) => {
                    let result = store.delete(&name(&key(c)), "alice", &());
                    prop_assert_eq!(result.is_ok(), model.remove(&key(c)).is_some());
                }
                Op::Reopen => {
                    std::mem::forget(store);
                    store = open(root.path());
                    prop_assert_eq!(store.recount().missing + store.recount().lost, 0);
                }
                Op::Snapshot => store.snapshot().unwrap(),
            }
            for (chunk, data) in &model {
                prop_assert_eq!(&store.read(&name(chunk), "alice", 0, u64::MAX).unwrap().0, data);
            }
            assert_exact(&store, root.path());
        }
    }
}

/// Regression: of a chunk that 257 users had made larger nothing could be freed any more: to credit each takes a step, of which an operation
/// has 256. Its owner could not remove it.
#[test]
fn what_is_charged_to_as_many_users_as_can_be_grows_for_them_alone_and_can_be_removed() {
    // More than a block: where two pieces of the file turn out to lie side by side, a block that said where they lie comes back, and who adds
    // no more than one then makes the chunk no larger.
    const PAGE: u64 = 16 << 10;
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path());
    let (chunk, owner) = (name("o/shared"), Arc::from("user0"));
    store.put(&chunk, "user0", &owner, &owner, Some(0o666), &pattern(10, 1), false, &()).unwrap();
    let grow = |user: usize, page: usize| {
        let by = Arc::from(format!("user{user}"));
        store.write_at(&chunk, &by, &by, page as u64 * PAGE, &pattern(PAGE as usize, 2), &()).map(drop)
    };
    for user in 1..CHARGED_MAX {
        grow(user, user).unwrap();
    }
    assert_eq!(store.charged().len(), CHARGED_MAX);
    let before = (store.charged(), on_disk(root.path()));
    for page in [CHARGED_MAX, CHARGED_MAX + 30] {
        assert!(matches!(grow(CHARGED_MAX, page), Err(OpError::Crowded(_))));
    }
    assert_eq!(store.charged(), before.0);
    // What was reserved is gone with the file it was reserved in; its copy may lie in fewer pieces or more.
    assert!(on_disk(root.path()).abs_diff(before.1) <= 4096, "{} of {} bytes", on_disk(root.path()), before.1);
    grow(CHARGED_MAX, 1).unwrap();
    grow(7, CHARGED_MAX).unwrap();
    assert_eq!(store.charged().len(), CHARGED_MAX);
    store.delete_expected(&chunk, "user0", Expected::Anything, &()).unwrap();
    assert_eq!(store.charged().values().sum::<u64>(), 0);
}
