//! Turns of the mirror's thread, without a mount.

use super::*;
use crate::State;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use ullage_kv::{Batch, EngineKind, Kv, Options};
use ullage_types::Bytes;

fn commit(store: &Store, count: usize, value_bytes: usize) {
    for n in 0..count {
        let mut batch = Batch::new();
        let key = [&b"i"[..], &(n as u64).to_be_bytes()].concat();
        batch.put(key, vec![1; value_bytes]);
        store.commit(batch).expect("committed");
    }
    store.checkpoint().expect("applied");
}

/// A worker with two pools or one, its store, and what must live as long.
struct Bed {
    inbox: Arc<Inbox>,
    store: Arc<Store>,
    worker: Worker,
    files: PathBuf,
    other: PathBuf,
    _dirs: [tempfile::TempDir; 3],
}

impl Bed {
    fn new() -> Self {
        Self::of(1)
    }

    fn of(pools: usize) -> Self {
        let dirs = [(); 3].map(|()| tempfile::tempdir().expect("made"));
        let [state, all @ ..] = &dirs;
        let place =
            |(n, dir): (usize, &tempfile::TempDir)| format!("p{n}={}", dir.path().display()).parse().expect("a pool");
        let places = all[..pools].iter().enumerate().map(place).collect();
        let settings = SpaceSettings::new(state.path(), places, "most-free".into()).expect("settings");
        let store = Arc::new(Store::open(state.path(), EngineKind::Memory, Options::default()).expect("a store"));
        let inbox = Arc::new(Inbox::default());
        let follower: Weak<dyn Follow> = Arc::downgrade(&(inbox.clone() as Arc<dyn Follow>));
        store.follow(follower);
        let (writer, space) = (Writer::new(&settings, &|_| Left::default()).expect("there is a pool"), Weak::new());
        let [files, other] = [0, 1].map(|n| all[n].path().to_owned());
        let turns = Arc::new(Turns::hold(&State::at(state.path().to_owned()), &settings).expect("held"));
        let worker = Worker {
            inbox: inbox.clone(),
            store: store.clone(),
            space,
            settings,
            turns,
            writer,
            generation: None,
            failed: false,
            uncounted: false,
        };
        Self { inbox, store, worker, files, other, _dirs: dirs }
    }

    /// Takes what waits, and gives the generations that there are then.
    fn turn(&mut self) -> Vec<Generation> {
        let turn = self.inbox.take(Instant::now());
        self.worker.turn(turn);
        generations(&self.files).expect("read").1
    }
}

/// While a pool hung, everything that changed was kept in memory for it, until the machine had none left.
#[test]
fn what_waits_for_a_pool_that_hangs_is_bounded_and_a_snapshot_makes_up_for_the_gap() {
    let mut bed = Bed::new();
    commit(&bed.store, 10, 100);
    let first = bed.turn()[0].clone();
    commit(&bed.store, 10, 100);
    assert_eq!(bed.turn()[0], first, "a tail was enough");
    let mut most = 0;
    for _ in 0..12 {
        commit(&bed.store, 200, 64 << 10);
        most = most.max(bed.inbox.bytes());
    }
    assert!((64 << 20..136 << 20).contains(&most), "{most} bytes waited");
    let after = bed.turn()[0].clone();
    assert_ne!(after, first, "a new snapshot was due");
    commit(&bed.store, 10, 100);
    assert_eq!(bed.turn()[0], after, "a tail is enough again");
}

/// The end of a space waited for all rests of a snapshot that was begun before: 11 s for a million files.
#[test]
fn a_snapshot_that_somebody_waits_for_rests_no_more() {
    let Bed { inbox, files, worker: Worker { mut writer, .. }, _dirs, .. } = Bed::new();
    // Nothing else here takes as long.
    let pause = Duration::from_secs(60);
    let rests = std::cell::Cell::new(0);
    let rest = |asked: Duration| {
        assert!(asked > Duration::ZERO, "it does not rest");
        rests.set(rests.get() + 1);
        match rests.get() {
            1 | 2 => inbox.rest(asked),
            // Somebody comes to wait now.
            3 => std::thread::scope(|scope| {
                scope.spawn(|| inbox.stop());
                inbox.rest(pause);
            }),
            _ => inbox.rest(pause),
        }
    };
    let fill: &mut dyn FnMut(&mut dyn Write) -> _ = &mut |out| {
        for _ in 0..4 {
            out.write_all(&vec![0; 256 << 10]).expect("written");
        }
        Ok(())
    };
    let begun = Instant::now();
    writer.write_snapshot(&[files], "test", Some(&rest), fill).expect("written");
    assert_eq!(rests.get(), 4, "one after each piece");
    assert!(begun.elapsed() < pause, "it rested after somebody waited");
}

/// On a full pool every turn wrote a whole new snapshot until there was no room, and the copy stayed as old as it was.
#[test]
fn a_tail_that_finds_no_room_is_tried_again_with_what_came_since() {
    let mut bed = Bed::new();
    commit(&bed.store, 10, 100);
    let first = bed.turn();
    let dir = generations(&bed.files).expect("read").0;
    let (tail, in_its_way) = (dir.join(first[0].tail(1)), dir.join(format!("{}.new", first[0].tail(1))));
    fs::create_dir(&in_its_way).expect("made");
    for count in [30, 10] {
        commit(&bed.store, count, 100);
        assert_eq!(bed.turn(), first, "a snapshot was begun");
        assert!(bed.worker.failed && !tail.exists());
    }
    fs::remove_dir(&in_its_way).expect("removed");
    assert_eq!(bed.turn(), first);
    let written = Tail::read_from(&mut fs::File::open(&tail).expect("there")).expect("whole");
    assert_eq!(written.iter().count(), 30, "what found no room is missing");
    assert!(!bed.worker.failed);
    commit(&bed.store, 10, 100);
    assert_eq!(bed.turn(), first);
    assert!(dir.join(first[0].tail(2)).exists());
    // No more is kept than there may wait.
    fs::create_dir(dir.join(format!("{}.new", first[0].tail(3)))).expect("made");
    for _ in 0..12 {
        commit(&bed.store, 200, 64 << 10);
        if bed.turn() != first {
            return;
        }
    }
    panic!("no snapshot made up for what was too much");
}

#[test]
fn a_snapshot_is_begun_only_where_there_is_room_for_one() {
    let mut bed = Bed::new();
    commit(&bed.store, 10, 100);
    let first = bed.turn();
    let settings = bed.worker.settings.clone();
    let dir = generations(&bed.files).expect("read").0;
    let left_by_a_crash = dir.join("0.snapshot.new");
    fs::write(&left_by_a_crash, "").expect("written");
    // All that is free is the reserve. Tails go on where a snapshot is due.
    bed.worker.writer =
        Writer::new(&settings, &|_| Left { bytes: Bytes(u64::MAX), inodes: 0 }).expect("there is a pool");
    bed.worker.generation.as_mut().expect("begun").tails = TAILS_MAX;
    commit(&bed.store, 10, 100);
    assert_eq!(bed.turn(), first);
    assert!(bed.worker.failed && !left_by_a_crash.exists());
    assert!(dir.join(first[0].tail(TAILS_MAX + 1)).exists());
    bed.worker.generation = None;
    commit(&bed.store, 10, 100);
    assert_eq!(bed.turn(), first);
    bed.worker.writer = Writer::new(&settings, &|_| Left::default()).expect("there is a pool");
    assert_ne!(bed.turn(), first, "nothing is begun where there is room again");
    assert!(!bed.worker.failed);
}

/// Turns until the copy in the other pool is as in this one; gives the newest generation.
fn until_both_are_the_same(bed: &mut Bed) -> Generation {
    let content = |pool: &PathBuf| {
        let entries = fs::read_dir(generations(pool).expect("read").0).expect("read").map(|entry| entry.expect("read"));
        let files = entries.map(|entry| (entry.file_name(), fs::read(entry.path()).expect("read")));
        files.collect::<std::collections::BTreeMap<_, _>>()
    };
    let until = Instant::now() + Duration::from_secs(60);
    commit(&bed.store, 10, 100);
    loop {
        let newest = bed.turn()[0].clone();
        if content(&bed.files) == content(&bed.other) {
            return newest;
        }
        assert!(Instant::now() < until, "the copies are not the same");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Two pools with a snapshot, the second of which the first tail cannot be written to before what this gives is removed.
fn with_a_tail_in_the_way() -> (Bed, Generation, PathBuf) {
    let mut bed = Bed::of(2);
    commit(&bed.store, 10, 100);
    let first = bed.turn()[0].clone();
    let in_its_way = generations(&bed.other).expect("read").0.join(format!("{}.new", first.tail(1)));
    fs::create_dir(&in_its_way).expect("made");
    (bed, first, in_its_way)
}

/// Regression: a pool that had no room for one tail had a copy of no use from then on, until the next snapshot, which may be hours.
#[test]
fn a_pool_that_has_missed_a_tail_gets_it_from_another_one() {
    let (mut bed, first, in_its_way) = with_a_tail_in_the_way();
    let (dir, other) = (generations(&bed.files).expect("read").0, generations(&bed.other).expect("read").0);
    for _ in 0..2 {
        commit(&bed.store, 10, 100);
        bed.turn();
    }
    assert!(dir.join(first.tail(1)).exists() && !other.join(first.tail(1)).exists());
    assert!(other.join(first.tail(2)).exists());
    fs::remove_dir(&in_its_way).expect("removed");
    assert_eq!(until_both_are_the_same(&mut bed), first, "a tail is no reason for a new snapshot");
    assert!(other.join(first.tail(1)).exists());
}

/// Regression: a pool that could not be written for the moment in which a snapshot was begun had a copy of no use until the next one.
#[test]
fn a_pool_that_could_not_be_written_when_a_snapshot_was_begun_gets_all_of_it_later() {
    let mut bed = Bed::of(2);
    let other = generations(&bed.other).expect("read").0;
    fs::write(&other, "in its way").expect("written");
    for _ in 0..3 {
        commit(&bed.store, 10, 100);
        bed.turn();
    }
    let first = generations(&bed.files).expect("read").1.remove(0);
    fs::remove_file(&other).expect("removed");
    assert_eq!(until_both_are_the_same(&mut bed), first);
    assert!(read_settings(&bed.other).expect("whole").is_some());
}

/// Regression: where no pool had a tail any more all later ones were of no use, until the next snapshot was due.
#[test]
fn a_new_snapshot_makes_up_for_what_no_pool_can_give() {
    let (mut bed, first, in_its_way) = with_a_tail_in_the_way();
    let dir = generations(&bed.files).expect("read").0;
    commit(&bed.store, 10, 100);
    bed.turn();
    fs::remove_file(dir.join(first.tail(1))).expect("there");
    fs::remove_dir(&in_its_way).expect("removed");
    let until = Instant::now() + Duration::from_secs(60);
    while generations(&bed.other).expect("read").1[0] == first {
        assert!(Instant::now() < until, "no new snapshot was begun");
        std::thread::sleep(Duration::from_millis(20));
        // Nothing else gives reason for one.
        bed.turn();
    }
}

/// Of a space in which nothing changes a copy of the state stays the newest.
#[test]
fn a_turn_is_counted_where_something_changed_and_no_other() {
    let mut bed = Bed::new();
    let counted = |bed: &Bed| fs::read_to_string(bed.files.join(".ullage-turns")).ok();
    bed.turn();
    assert_eq!(counted(&bed), None);
    for number in ["1", "2"] {
        commit(&bed.store, 10, 100);
        bed.turn();
        bed.turn();
        assert_eq!(counted(&bed).as_deref(), Some(number));
    }
}
