//! Files are where the rule says, ready or not, and leaves never overflow; what is full or was killed is survived.

use crate::common::{self, config, each_file_system, files, hint, mount, open, until};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;
use ullage_policy::place::Sparse;
use ullage_pool::{Access, Binding, Hint, Pool, PoolConfig};

/// A child that is being started holds a copy of every descriptor for a moment, and a lease probe at that moment says
/// that the file is in use: tests that start children and tests that count what is left take turns.
static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
fn every_file_is_where_the_rule_says_and_no_leaf_overflows() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    each_file_system(64, |kind, path| {
        let sparse = Sparse { entries: 16, buckets: 4, ..Sparse::default() };
        let config = PoolConfig { sparse, node: 3, ..config() };
        let mut first = 10;
        for round in 0..2 {
            let opened = open(path, config.clone(), first).unwrap();
            for number in 0..400 {
                let parent = hint(number % 3);
                let fresh = opened.pool.create(parent).unwrap();
                assert!(is_placed(sparse, parent, &fresh.binding), "{kind}: {fresh:?}");
                opened.pool.closed(&fresh.binding);
                let binding = fresh.binding.clone();
                drop(fresh);
                if number % 2 == 0 {
                    opened.pool.release(binding);
                }
            }
            opened.pool.close().unwrap();
            first += 10_000;
            assert_eq!(count_in_leaves(path, 16), 200 * (round + 1), "{kind}");
        }
    });
}

/// Whether a backing file of node 3 is where the rule says.
fn is_placed(sparse: Sparse, hint: Hint, binding: &Binding) -> bool {
    let locator = str::from_utf8(&binding.locator.0).unwrap();
    let (series, _) = sparse.parse(locator.rsplit_once('/').unwrap().0).unwrap();
    (0..2).any(|bit| sparse.place(3, hint.parent, hint.pid, bit) == series)
}

/// All files in leaves, of which none has more than its entries.
fn count_in_leaves(path: &Path, entries: u32) -> u32 {
    let mut full = BTreeMap::<_, u32>::new();
    for file in files(path) {
        *full.entry(file.parent().unwrap().to_owned()).or_default() += 1;
    }
    assert!(full.values().all(|count| *count <= entries), "{full:?}");
    full.values().sum()
}

/// A new process was given no ready file, while those of one that had ended were full of them.
#[test]
fn ready_files_of_one_process_are_moved_to_where_the_rule_puts_those_of_another() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    each_file_system(64, |kind, path| {
        let sparse = Sparse { entries: 16, buckets: 8, ..Sparse::default() };
        let opened = open(path, PoolConfig { sparse, node: 3, ..config() }, 10).unwrap();
        opened.pool.begin();
        let mut kept = Vec::new();
        let mut create = |hint: Hint| {
            let fresh = opened.pool.create(hint).unwrap();
            assert!(is_placed(sparse, hint, &fresh.binding), "{kind}: {fresh:?}");
            assert!(opened.marks.has(&fresh.binding.locator), "{kind}");
            fresh.file.write_all_at(&kept.len().to_le_bytes(), 0).unwrap();
            kept.push(fresh.binding);
        };
        for _ in 0..10 {
            (0..64).for_each(|_| create(hint(1)));
            std::thread::sleep(Duration::from_millis(10));
        }
        until("files are ready and nobody takes any", || {
            let ready = opened.pool.ready();
            std::thread::sleep(Duration::from_millis(300));
            ready >= 128 && ready == opened.pool.ready()
        });
        let before = opened.pool.stats();
        // In series of others alone: one that files are taken from spares none for a moment.
        let series = |hint: Hint| sparse.place(3, hint.parent, hint.pid, 0);
        let others = (2..).map(|pid| Hint { pid, ..hint(1) }).filter(|other| series(*other) != series(hint(1)));
        others.take(10).for_each(&mut create);
        let after = opened.pool.stats();
        assert!(after.moved > before.moved, "{kind}: {before:?} {after:?}");
        assert_eq!(after.misses, before.misses, "{kind}: {after:?}");
        for (number, binding) in kept.iter().enumerate() {
            let mut bytes = [0; 8];
            opened.pool.open(binding, Access::Read).unwrap().read_exact_at(&mut bytes, 0).unwrap();
            assert_eq!(usize::from_le_bytes(bytes), number, "{kind}: another file's bytes");
            opened.pool.closed(binding);
        }
        opened.pool.close().unwrap();
        assert!(opened.marks.set.lock().unwrap().is_empty(), "{kind}: nothing is in doubt");
        assert_eq!(count_in_leaves(path, 16) as usize, kept.len(), "{kind}");
    });
}

/// A ready file that cannot be moved is nobody's reason to fail.
#[test]
fn files_are_made_where_ready_ones_of_others_have_disappeared() {
    let dir = tempfile::tempdir().unwrap();
    let opened = open(dir.path(), config(), 10).unwrap();
    for _ in 0..20 {
        opened.pool.create(hint(1)).unwrap();
    }
    until("files are ready", || opened.pool.ready() >= 16);
    std::thread::sleep(Duration::from_millis(300));
    for file in files(dir.path()) {
        std::fs::remove_file(dir.path().join(file)).unwrap();
    }
    let sparse = config().sparse;
    let series = |hint: Hint| sparse.place(0, hint.parent, hint.pid, 0);
    let others = (2..40).map(|pid| Hint { pid, ..hint(1) }).filter(|other| series(*other) != series(hint(1)));
    for other in others {
        let fresh = opened.pool.create(other).unwrap();
        assert!(opened.pool.open(&fresh.binding, Access::Write).is_ok());
    }
}

#[test]
fn marks_are_cleared_when_a_leaf_is_idle_and_not_while_a_file_is_open_for_writing() {
    let dir = tempfile::tempdir().unwrap();
    let sparse = Sparse { entries: 2, random_bits: 0, buckets: 1, ..Sparse::default() };
    let config = PoolConfig { clear_after: Duration::from_millis(100), ready: false, sparse, ..config() };
    let opened = open(dir.path(), config, 1).unwrap();
    opened.pool.begin();
    // Two to a leaf: the first leaf is no longer filled.
    let fresh: Vec<_> = (0..4).map(|_| opened.pool.create(hint(1)).unwrap().binding).collect();
    std::thread::sleep(Duration::from_millis(1500));
    assert!(fresh.iter().all(|binding| opened.marks.has(&binding.locator)));
    for binding in &fresh {
        opened.pool.closed(binding);
    }
    until("the mark is cleared", || !opened.marks.has(&fresh[0].locator));
    assert!(opened.marks.has(&fresh[3].locator), "files will be made there");
    let _reader = opened.pool.open(&fresh[0], Access::Read).unwrap();
    assert!(!opened.marks.has(&fresh[0].locator), "reading leaves nothing in doubt");
    opened.pool.doom(&fresh[0]).unwrap();
    assert!(opened.marks.has(&fresh[0].locator));
    opened.pool.closed(&fresh[0]);
    opened.pool.close().unwrap();
    assert!(opened.marks.set.lock().unwrap().is_empty(), "an orderly end leaves none");
}

/// What recovery removed first left its leaf, whose mark and note went when it had come to rest: recovery, if it took longer or was
/// broken off, did not look at what else had been written there.
#[test]
fn no_mark_is_cleared_before_recovery_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let sparse = Sparse { entries: 2, random_bits: 0, buckets: 1, ..Sparse::default() };
    let config = PoolConfig { clear_after: Duration::from_millis(100), ready: false, sparse, ..config() };
    let opened = open(dir.path(), config.clone(), 1).unwrap();
    // Two to a leaf: the first leaf is no longer filled.
    let fresh: Vec<_> = (0..4).map(|_| opened.pool.create(hint(1)).unwrap().binding).collect();
    let config = PoolConfig { pool: Some(opened.pool.uuid()), ..config };
    drop(opened);
    let again = || open(dir.path(), config.clone(), 100).unwrap();
    let opened = again();
    opened.pool.doom(&fresh[0]).unwrap();
    opened.pool.release(fresh[0].clone());
    until("it is gone", || !opened.pool.backing_path(&fresh[0].locator).unwrap().exists());
    std::thread::sleep(Duration::from_millis(1500));
    assert!(opened.marks.has(&fresh[0].locator), "the mark is gone and nobody has looked yet");
    opened.pool.begin();
    until("the mark is cleared", || !opened.marks.has(&fresh[0].locator));
    opened.pool.close().unwrap();
    drop(opened);
    // A start that is broken off leaves what it found.
    let opened = again();
    opened.pool.doom(&fresh[2]).unwrap();
    opened.pool.closed(&fresh[2]);
    opened.pool.close().unwrap();
    assert!(opened.marks.has(&fresh[2].locator), "a start that failed took a mark away");
}

/// The start ended with EIO where the worker took a file out of a leaf that was just being looked through.
#[test]
fn a_file_that_goes_while_its_leaf_is_looked_through_is_no_suspect() {
    let dir = tempfile::tempdir().unwrap();
    let opened = open(dir.path(), PoolConfig { ready: false, ..config() }, 1).unwrap();
    let fresh: Vec<_> = (0..8).map(|_| opened.pool.create(hint(1)).unwrap().binding).collect();
    let leaf = fresh[0].locator.0.rsplitn(2, |byte| *byte == b'/').last().unwrap();
    let mut seen = 0;
    let looked = opened.pool.suspects(leaf, &mut |_| {
        seen += 1;
        for binding in &fresh {
            let _ = std::fs::remove_file(opened.pool.backing_path(&binding.locator).unwrap());
        }
    });
    assert!(looked.is_ok(), "{looked:?}");
    assert_eq!(seen, 1);
}

/// Whoever makes a file waits for no flush: one marks all leaves in which files are made next.
#[test]
fn leaves_are_marked_before_files_are_made_in_them() {
    let dir = tempfile::tempdir().unwrap();
    let opened = open(dir.path(), PoolConfig { ready: false, ..config() }, 1).unwrap();
    opened.pool.begin();
    until("leaves are marked", || opened.marks.flushes.load(Ordering::Relaxed) == 1);
    for pid in 0..100 {
        let fresh = opened.pool.create(Hint { pid, ..hint(1) }).unwrap();
        assert!(opened.marks.has(&fresh.binding.locator));
    }
    assert_eq!(opened.marks.flushes.load(Ordering::Relaxed), 1, "with one flush");
    // The next leaf of a series is marked before it is begun, by whoever begins the one before at the latest.
    let before = opened.marks.flushes.load(Ordering::Relaxed);
    for _ in 0..2048 {
        let fresh = opened.pool.create(hint(1)).unwrap();
        assert!(opened.marks.has(&fresh.binding.locator));
    }
    let flushes = opened.marks.flushes.load(Ordering::Relaxed) - before;
    assert!(flushes <= 4, "{flushes} flushes for four leaves");
}

/// The worker flushed the marks itself, one new leaf at a time: as long as the disk took for that, whoever made files had to
/// make them himself.
#[test]
fn files_are_made_ready_while_the_disk_takes_its_time_over_marks() {
    let dir = tempfile::tempdir().unwrap();
    let sparse = Sparse { entries: 32, random_bits: 0, buckets: 1, ..Sparse::default() };
    let opened = open(dir.path(), PoolConfig { sparse, ..config() }, 1).unwrap();
    opened.pool.begin();
    until("leaves are marked", || opened.marks.flushes.load(Ordering::Relaxed) == 1);
    // There is demand, and leaves are marked for it.
    for _ in 0..64 {
        opened.pool.create(hint(1)).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    until("files are ready", || opened.pool.ready() >= 8);
    let flushes = opened.marks.flushes.load(Ordering::Relaxed);
    opened.marks.flush_ms.store(100, Ordering::Relaxed);
    let before = opened.pool.stats();
    for _ in 0..640 {
        let fresh = opened.pool.create(hint(1)).unwrap();
        assert!(opened.marks.has(&fresh.binding.locator));
        std::thread::sleep(Duration::from_micros(500));
    }
    let after = opened.pool.stats();
    let missed = after.misses - before.misses;
    // On a busy machine the worker comes late; with a flush for each leaf nearly all had to.
    assert!(missed < 320, "{missed} of 640 had to wait");
    let flushes = opened.marks.flushes.load(Ordering::Relaxed) - flushes;
    assert!((1..=8).contains(&flushes), "{flushes} flushes for 20 leaves");
}

#[test]
fn a_full_file_system_is_said_and_survived() {
    for kind in ["ext4", "tmpfs"] {
        let Some(mounted) = mount(kind, 16) else { return };
        let path = mounted.path().join("pool");
        std::fs::create_dir(&path).unwrap();
        let opened = open(&path, config(), 1).unwrap();
        let mut kept = Vec::new();
        // Every inode, so that not even an empty file fits. What is being made ahead may come back a moment later.
        let mut refused = 0;
        let error = loop {
            match opened.pool.create(hint(1)) {
                Ok(fresh) => kept.push(fresh.binding),
                Err(error) if refused == 5 => break error,
                Err(error) => {
                    assert!(error.is_full(), "{kind}: {error}");
                    refused += 1;
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        };
        assert!(error.is_full(), "{kind}: {error}");
        assert!(kept.len() > 100, "{kind}");
        let usage = opened.pool.usage().unwrap();
        // A file may need a leaf not made yet, and tmpfs counts extended attributes as inodes too.
        assert!(usage.free.0 == 0 || usage.inodes_free < 4, "{kind}: {usage:?}");
        for binding in kept.drain(..50) {
            opened.pool.release(binding);
        }
        until("there is room again", || opened.pool.create(hint(1)).is_ok());
        opened.pool.close().unwrap();
    }
}

/// Runs as a child of the next test: works on a pool until it is killed.
#[test]
fn child() {
    let Ok(path) = std::env::var("ULLAGE_POOL_CHILD") else { return };
    let opened = open(Path::new(&path), config(), 1).unwrap();
    for number in 0.. {
        let fresh = opened.pool.create(hint(number % 5)).unwrap();
        fresh.file.write_all_at(&number.to_le_bytes(), 0).unwrap();
        let binding = fresh.binding.clone();
        drop(fresh);
        if number % 4 == 0 {
            // Kept: told to the parent, as a catalog would write it down; the mark stays for the parent to see.
            let locator = String::from_utf8(binding.locator.0.to_vec()).unwrap();
            println!("\nkept {} {} {locator} {number}", binding.file.0, binding.generation.0);
        } else {
            opened.pool.release(binding);
        }
    }
}

#[test]
fn a_killed_process_leaves_only_what_suspects_show() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    each_file_system(64, |kind, path| {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "layout::child", "--nocapture"])
            .env("ULLAGE_POOL_CHILD", path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut output = String::new();
        while output.matches("kept").count() < 60 {
            assert!(out.read_line(&mut output).unwrap() > 0, "{kind}: the child ended by itself");
        }
        child.kill().unwrap();
        out.read_to_string(&mut output).unwrap();
        child.wait().unwrap();
        let whole = output.rfind('\n').map_or("", |end| &output[..end]);
        let mut kept = BTreeMap::new();
        for line in whole.lines().filter_map(|line| line.strip_prefix("kept ")) {
            let [file, generation, locator, number] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let binding = Binding {
                file: ullage_types::FileId(file.parse().unwrap()),
                generation: ullage_types::Generation(generation.parse().unwrap()),
                locator: ullage_pool::Locator(locator.as_bytes().into()),
            };
            kept.insert(binding.generation, (binding, number.parse::<u64>().unwrap()));
        }
        assert!(kept.len() > 10, "{kind}: {}", kept.len());
        let opened = open(path, config(), 10_000_000).unwrap();
        let leaves: BTreeSet<_> = files(path).iter().map(|file| file.parent().unwrap().to_owned()).collect();
        let mut seen = BTreeSet::new();
        for leaf in leaves.iter().filter(|leaf| !leaf.ends_with("quarantine")) {
            let mut unknown = Vec::new();
            opened
                .pool
                .suspects(leaf.to_str().unwrap().as_bytes(), &mut |suspect| match suspect
                    .binding
                    .as_ref()
                    .filter(|binding| kept.contains_key(&binding.generation))
                {
                    Some(binding) => assert!(seen.insert(binding.generation), "{kind}: twice"),
                    None => unknown.push(suspect),
                })
                .unwrap();
            for suspect in unknown {
                opened.pool.release(opened.pool.stray(suspect).unwrap());
            }
        }
        assert_eq!(seen.len(), kept.len(), "{kind}: every kept file is there");
        for (binding, number) in kept.values() {
            let mut bytes = [0; 8];
            opened.pool.open(binding, Access::Read).unwrap().read_exact_at(&mut bytes, 0).unwrap();
            assert_eq!(u64::from_le_bytes(bytes), *number, "{kind}: another file's bytes");
        }
        opened.pool.close().unwrap();
        assert_eq!(files(path).len(), kept.len(), "{kind}: everything else is gone");
    });
}

/// Nobody knew where times are cut, and that a change may not show in them.
#[test]
fn it_is_known_to_how_much_times_are_cut() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    each_file_system(64, |kind, path| {
        assert_eq!(open(path, config(), 1).unwrap().pool.granularity(), Duration::from_nanos(1), "{kind}");
    });
    let Some(old) = common::mount_made_with("ext4", 64, &["-I", "128"]) else { return };
    let path = old.path().join("pool");
    std::fs::create_dir(&path).unwrap();
    assert_eq!(open(&path, config(), 1).unwrap().pool.granularity(), Duration::from_secs(1));
}
