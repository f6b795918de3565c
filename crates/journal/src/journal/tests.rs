//! What comes back, and what is refused, when a journal is opened again.

use super::*;
use crate::Durability;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};

fn records(directory: &Path) -> Recovered {
    Journal::open(directory, Options::default()).unwrap().1
}

#[test]
fn what_was_reported_is_there_after_reopening() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..3u8 {
        let (journal, recovered) = Journal::open(directory.path(), Options::default()).unwrap();
        assert_eq!(recovered.records.len(), usize::from(round) * 10);
        for i in 0..10u8 {
            journal.append(vec![round, i]).wait().unwrap();
        }
    }
    assert_eq!(records(directory.path()).records[29], vec![2, 9]);
}

#[test]
fn a_snapshot_replaces_what_came_before_and_nothing_after() {
    let directory = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(directory.path(), Options::default()).unwrap();
    journal.append(b"before".to_vec()).wait().unwrap();
    let number = journal.rotate();
    journal.append(b"after".to_vec()).wait().unwrap();
    journal.install_snapshot(&number, b"state").unwrap();
    drop(journal);
    let recovered = records(directory.path());
    assert_eq!(recovered.snapshot.as_deref(), Some(&b"state"[..]));
    assert_eq!(recovered.records, vec![b"after".to_vec()]);
}

#[test]
fn a_crash_between_rotation_and_snapshot_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(directory.path(), Options::default()).unwrap();
    journal.append(b"one".to_vec()).wait().unwrap();
    journal.rotate();
    journal.append(b"two".to_vec()).wait().unwrap();
    drop(journal);
    assert_eq!(records(directory.path()).records, vec![b"one".to_vec(), b"two".to_vec()]);
}

/// It stayed for ever, and took the room of a state each time.
#[test]
fn what_a_crash_leaves_of_a_snapshot_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    drop(records(directory.path()));
    let left = directory.path().join("snapshot-000000000007.new");
    fs::write(&left, b"half").unwrap();
    assert_eq!(records(directory.path()).snapshot, None);
    assert!(!left.exists());
}

/// Regression: the last segment was written once more before the room held for that was given up, and on a full btrfs there was none.
#[test]
fn the_room_held_is_given_up_before_anything_is_written() {
    let directory = tempfile::tempdir().unwrap();
    drop(records(directory.path()));
    let reserve = directory.path().join("reserve");
    fs::write(&reserve, b"room").unwrap();
    fs::rename(segment_path(directory.path(), 0), segment_path(directory.path(), 1)).unwrap();
    assert!(matches!(Journal::open(directory.path(), Options::default()), Err(JournalError::Missing(_))));
    assert!(!reserve.exists());
}

/// A snapshot of a state whose records had failed dropped the segments that told what had not.
#[test]
fn a_poisoned_journal_keeps_its_segments() {
    let directory = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(directory.path(), Options::default()).unwrap();
    journal.append(b"one".to_vec()).wait().unwrap();
    // The writer makes each segment anew.
    fs::write(segment_path(directory.path(), 1), b"").unwrap();
    let number = journal.rotate();
    assert!(journal.install_snapshot(&number, b"state").is_err());
    assert!(matches!(journal.barrier().wait(), Err(JournalError::Poisoned(_))));
    drop(journal);
    let recovered = records(directory.path());
    assert_eq!((recovered.snapshot, recovered.records), (None, vec![b"one".to_vec()]));
}

/// Regression: where no file could be made the next segment poisoned the journal, though there was room in the one it had.
#[test]
fn a_segment_that_cannot_be_made_leaves_the_journal_in_the_one_before() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("journal");
    let (journal, _) = Journal::open(&place, Options::default()).unwrap();
    journal.append(b"one".to_vec()).wait().unwrap();
    // Nothing can be made in a directory that is elsewhere by now.
    let away = directory.path().join("away");
    fs::rename(&place, &away).unwrap();
    let begun = journal.rotate();
    assert!(journal.install_snapshot(&begun, b"state").is_err());
    journal.append(b"two".to_vec()).wait().unwrap();
    fs::rename(&away, &place).unwrap();
    assert!(journal.install_snapshot(&begun, b"state").is_err(), "records follow that it would drop");
    let begun = journal.rotate();
    journal.append(b"three".to_vec()).wait().unwrap();
    journal.install_snapshot(&begun, b"state").unwrap();
    drop(journal);
    let recovered = records(&place);
    assert_eq!((recovered.snapshot, recovered.records), (Some(b"state".to_vec()), vec![b"three".to_vec()]));
}

/// Regression: each start that failed left an empty segment, until there was no inode for the next one's.
#[test]
fn starts_that_write_nothing_leave_one_segment() {
    let directory = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        records(directory.path());
    }
    assert_eq!(numbers(directory.path(), "segment-").unwrap(), [0]);
}

#[test]
fn who_waits_for_what_others_wrote_has_nothing_written() {
    let directory = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(directory.path(), Options::default()).unwrap();
    let record = journal.append(b"one".to_vec());
    journal.barrier().wait().unwrap();
    assert!(matches!(record.done.try_recv(), Ok(Ok(()))), "reported before");
    let before = fs::metadata(segment_path(directory.path(), 0)).unwrap().modified().unwrap();
    journal.barrier().wait().unwrap();
    assert_eq!(fs::metadata(segment_path(directory.path(), 0)).unwrap().modified().unwrap(), before);
}

#[test]
fn a_torn_tail_is_cut_at_every_length() {
    let directory = tempfile::tempdir().unwrap();
    let mut bytes = Vec::new();
    frame::encode(&mut bytes, 0, 0, 0, b"whole");
    let whole = bytes.len();
    frame::encode(&mut bytes, 0, whole as u64, 0, b"torn");
    for length in whole..bytes.len() {
        let place = directory.path().join(length.to_string());
        fs::create_dir(&place).unwrap();
        fs::write(segment_path(&place, 0), &bytes[..length]).unwrap();
        let recovered = records(&place);
        assert_eq!(recovered.records, vec![b"whole".to_vec()], "cut at {length}");
        let torn = bytes[whole..length].iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        assert_eq!(recovered.torn_bytes, torn as u64);
        assert_eq!(records(&place).torn_bytes, 0, "the tail was cut off");
    }
}

/// The segment was taken for torn, and what came after it replayed over the gap.
#[test]
fn only_the_last_segment_may_be_torn() {
    let directory = tempfile::tempdir().unwrap();
    for record in ["one", "two"] {
        let (journal, _) = Journal::open(directory.path(), Options::default()).unwrap();
        journal.append(record.into()).wait().unwrap();
    }
    let path = segment_path(directory.path(), 0);
    let whole = fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    damaged[frame::HEADER_BYTES] ^= 1;
    fs::write(&path, &damaged).unwrap();
    let opened = Journal::open(directory.path(), Options::default());
    assert!(matches!(opened, Err(JournalError::Damaged { offset: 0, .. })), "{opened:?}");
    // As a power cut may leave it: its length was set, and not flushed.
    fs::write(&path, [&whole[..], &[0; 4096]].concat()).unwrap();
    assert_eq!(records(directory.path()).records, vec![b"one".to_vec(), b"two".to_vec()]);
    // Without flushes any segment may have lost its end.
    fs::write(&path, &damaged).unwrap();
    let (_, recovered) = Journal::open(directory.path(), Options { durability: Durability::Process }).unwrap();
    assert_eq!(recovered.records, vec![b"two".to_vec()]);
}

/// A record said of those before it that they were flushed, where nothing is: what a power cut took from the middle was called damage, and
/// nothing was opened.
#[test]
fn what_was_never_flushed_is_cut_where_a_power_cut_took_some_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { durability: Durability::Process };
    let (journal, _) = Journal::open(directory.path(), options).unwrap();
    for record in ["one", "two", "three"] {
        journal.append(record.into()).wait().unwrap();
    }
    drop(journal);
    let path = segment_path(directory.path(), 0);
    let mut bytes = fs::read(&path).unwrap();
    bytes[2 * frame::HEADER_BYTES + "one".len()] ^= 1;
    fs::write(&path, bytes).unwrap();
    let (_, recovered) = Journal::open(directory.path(), options).unwrap();
    assert_eq!(recovered.records, vec![b"one".to_vec()]);
    assert!(recovered.torn_bytes > 0);
}

#[test]
fn a_missing_segment_is_refused() {
    for missing in [0, 1] {
        let directory = tempfile::tempdir().unwrap();
        for record in ["one", "two", "three"] {
            let (journal, _) = Journal::open(directory.path(), Options::default()).unwrap();
            journal.append(record.into()).wait().unwrap();
        }
        let path = segment_path(directory.path(), missing);
        fs::remove_file(&path).unwrap();
        let opened = Journal::open(directory.path(), Options::default());
        assert!(matches!(&opened, Err(JournalError::Missing(which)) if *which == path), "{opened:?}");
    }
}

#[test]
fn damage_to_what_was_durable_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(directory.path(), Options::default()).unwrap();
    for i in 0..4u8 {
        journal.append(vec![i; 10]).wait().unwrap();
    }
    drop(journal);
    let path = segment_path(directory.path(), 0);
    let mut file = File::options().write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start(frame::HEADER_BYTES as u64 + 3)).unwrap();
    file.write_all(b"X").unwrap();
    assert!(matches!(
        Journal::open(directory.path(), Options::default()),
        Err(JournalError::Damaged { offset: 0, .. })
    ));
}

#[test]
fn zeros_ahead_of_the_records_are_no_damage_and_end_with_the_journal() {
    let directory = tempfile::tempdir().unwrap();
    let path = segment_path(directory.path(), 0);
    let (journal, _) = Journal::open(directory.path(), Options { durability: Durability::Disk }).unwrap();
    journal.append(b"first".to_vec()).wait().unwrap();
    let with_zeros = fs::read(&path).unwrap();
    assert!(with_zeros.len() > 1 << 20, "room is made ahead");
    journal.append(vec![7; 2 << 20]).wait().unwrap();
    drop(journal);
    let records_alone = 2 * frame::HEADER_BYTES as u64 + 5 + (2 << 20);
    assert_eq!(fs::metadata(&path).unwrap().len(), records_alone);
    // As a crash leaves it.
    fs::write(&path, &with_zeros).unwrap();
    let recovered = records(directory.path());
    assert_eq!((recovered.records, recovered.torn_bytes), (vec![b"first".to_vec()], 0));
}

#[test]
fn a_record_that_nobody_waits_for_is_written_all_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(directory.path(), Options::default()).unwrap();
    drop(journal.append(b"dropped".to_vec()));
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let path = segment_path(directory.path(), 0);
    while !fs::read(&path).unwrap().windows(7).any(|bytes| bytes == b"dropped") {
        assert!(std::time::Instant::now() < until, "the record never came to the disk");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

#[test]
fn who_queues_more_than_there_is_room_for_before_it_waits_is_not_stuck() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { durability: Durability::Process };
    let (journal, _) = Journal::open(directory.path(), options).unwrap();
    let (told, tells) = mpsc::channel();
    std::thread::spawn(move || {
        let pending: Vec<_> = (0..6).map(|_| journal.append(vec![7; 16 << 20])).collect();
        told.send(pending.into_iter().all(|pending| pending.wait().is_ok())).unwrap();
    });
    assert_eq!(tells.recv_timeout(std::time::Duration::from_secs(60)), Ok(true));
}

#[test]
fn many_threads_share_flushes_and_lose_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(directory.path(), Options::default()).unwrap();
    std::thread::scope(|scope| {
        for t in 0..8u8 {
            let journal = &journal;
            scope.spawn(move || {
                for i in 0..50u8 {
                    journal.append(vec![t, i]).wait().unwrap();
                }
            });
        }
    });
    drop(journal);
    let mut found = records(directory.path()).records;
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 400);
}
