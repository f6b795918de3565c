//! Every call to the media below fails in turn: nothing synced is lost, nothing is lost in silence.

use crate::model::{LOG_BYTES, Model};
use crate::world::{Fault, Random, World};
use ullage_kv::{Batch, Error, Kv, Options, Store};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

fn workload(model: &mut Model) -> Result<(), Error> {
    for round in 0..14u8 {
        model.commit(&[(round, Some(u16::from(round) * 300)), (round / 2, Some(5)), (round / 3, None)])?;
        if round % 3 != 0 {
            model.sync()?;
        }
        if round == 8 {
            model.store().checkpoint()?;
        }
    }
    model.store().checkpoint()
}

fn each_call_in_turn(fault: Fault) {
    for call in 0.. {
        let mut model = Model::new(None);
        model.world.arm(call, fault);
        let outcome = workload(&mut model);
        if model.world.armed() {
            assert!(call > 20, "only {call} calls");
            assert!(outcome.is_ok());
            return;
        }
        if let Err(error) = outcome {
            assert!(!matches!(error, Error::Poisoned(_)), "the first failure is named: {error}");
            // Whatever the medium does from now on, nothing more is accepted, and all is still to be read.
            let mut batch = Batch::new();
            batch.put(b"k".to_vec(), Vec::new());
            assert!(matches!(model.store().commit(batch), Err(Error::Poisoned(_))));
            if model.store().durable() < model.store().newest() {
                assert!(matches!(model.sync(), Err(Error::Poisoned(_))));
            }
            assert!(matches!(model.store().checkpoint(), Err(Error::Poisoned(_))));
            assert!(model.store().stats().poisoned.is_some());
        } else {
            assert!(matches!(fault, Fault::Short(_)), "a failure was swallowed at call {call}");
        }
        model.check(b"", b"").unwrap();
        assert_eq!(model.crash(&mut Random(u64::from(call))), Ok(()), "call {call}");
        model.check(b"", b"").unwrap();
    }
}

#[test]
fn eio_at_each_call() {
    each_call_in_turn(Fault::Errno(EIO));
}

#[test]
fn enospc_at_each_call() {
    each_call_in_turn(Fault::Errno(ENOSPC));
}

#[test]
fn short_writes_at_each_call() {
    for bytes in [0, 512, 4096, 4608] {
        each_call_in_turn(Fault::Short(bytes));
    }
}

/// An fsync of a file that had nothing new to write asked for nothing that could fail, and its flush made durable what was not.
#[test]
fn after_a_failed_flush_nobody_elses_flush_makes_durable_what_was_written() {
    let mut model = Model::new(None);
    model.commit(&[(1, Some(1))]).unwrap();
    let newest = model.store().newest();
    let written = model.store().write_out(newest).unwrap();
    model.world.arm(0, Fault::Errno(EIO));
    assert!(model.sync().is_err());
    assert!(matches!(model.store().write_out(newest), Err(Error::Poisoned(_))));
    assert!(matches!(model.store().flushed(written), Err(Error::Poisoned(_))));
    assert!(model.store().durable() < newest);
}

/// Such a flush may fail for what it flushes beside the log, as where a file's own data cannot be written.
#[test]
fn a_flush_that_failed_for_others_is_made_up_for_by_the_logs_own() {
    let mut model = Model::new(None);
    model.commit(&[(1, Some(1))]).unwrap();
    model.world.arm(1, Fault::Errno(EIO));
    model.flushed_outside().unwrap();
    model.commit(&[(2, Some(1))]).unwrap();
    model.sync().unwrap();
    assert_eq!(model.crash(&mut Random(1)), Ok(()));
}

#[test]
fn an_interrupted_write_is_no_failure() {
    let mut model = Model::new(None);
    model.commit(&[(1, Some(1))]).unwrap();
    model.world.arm(0, Fault::Errno(4));
    model.sync().unwrap();
}

#[test]
fn a_failed_read_at_the_start_harms_nothing() {
    for call in 0.. {
        let mut model = Model::new(None);
        for round in 0..5 {
            model.commit(&[(round, Some(10))]).unwrap();
            model.sync().unwrap();
        }
        model.world.power_off();
        let world = model.world.clone();
        let expected = model.states.last().unwrap().clone();
        drop(model);
        world.power_on(&mut Random(1));
        world.arm(call, Fault::Errno(EIO));
        let options = Options { interval: None, ..Options::default() };
        let opened = Store::open_on(world.engine(), world.media(), 7, options);
        if world.armed() {
            return;
        }
        assert!(opened.is_err(), "call {call}");
        world.power_off();
        world.power_on(&mut Random(2));
        let store = Store::open_on(world.engine(), world.media(), 7, options).unwrap();
        assert_eq!(crate::model::scan(&store, b"", b""), expected);
    }
}

#[test]
fn a_hole_in_the_log_is_named_and_a_foreign_log_refused() {
    let world = World::new(LOG_BYTES);
    let options = Options { interval: None, ..Options::default() };
    let store = Store::open_on(world.engine(), world.media(), 7, options).unwrap();
    // Fills one file and begins the other, whose records then follow on what the first one holds.
    for n in 0..8u8 {
        let mut batch = Batch::new();
        batch.put(vec![n], vec![n; 10]);
        let seq = store.commit(batch).unwrap();
        store.sync(seq).unwrap();
    }
    world.power_off();
    drop(store);
    world.power_on(&mut Random(0));
    let foreign = Store::open_on(World::new(LOG_BYTES).engine(), world.media(), 8, options);
    assert!(matches!(foreign, Err(Error::Corrupt(_))));
    world.wipe(0, 4096);
    let holed = Store::open_on(world.engine(), world.media(), 7, options);
    assert!(matches!(holed, Err(Error::Corrupt(_))), "a hole must not be skipped");
}

#[test]
fn a_flipped_bit_before_the_last_record_is_named_and_in_it_costs_only_that_record() {
    for record in 0..4 {
        let mut model = Model::new(None);
        for round in 0..4 {
            model.commit(&[(round, Some(10))]).unwrap();
            model.sync().unwrap();
        }
        model.world.power_off();
        let (world, states) = (model.world.clone(), model.states.clone());
        drop(model);
        world.power_on(&mut Random(record as u64));
        world.flip(0, record * 4096 + 85, 3);
        let options = Options { interval: None, ..Options::default() };
        match Store::open_on(world.engine(), world.media(), 7, options) {
            Ok(store) => assert_eq!((record, crate::model::scan(&store, b"", b"")), (3, states[3].clone())),
            Err(Error::Corrupt(_)) => assert!(record < 3),
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn a_damaged_snapshot_is_refused_wherever_the_damage_is() {
    let mut model = Model::new(None);
    model.commit(&[(1, Some(100)), (2, Some(50))]).unwrap();
    let mut bytes = Vec::new();
    model.store().snapshot_to(&mut bytes).unwrap();
    let restore = |bytes: &[u8]| {
        let world = World::new(LOG_BYTES);
        let store = Store::open_on(world.engine(), world.media(), 7, Options { interval: None, ..Options::default() });
        store.unwrap().restore_from(&mut &*bytes)
    };
    assert!(restore(&bytes).is_ok());
    for cut in 0..bytes.len() {
        assert!(restore(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    let reference = model.states.last().unwrap();
    for byte in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[byte] ^= 0x10;
        let world = World::new(LOG_BYTES);
        let options = Options { interval: None, ..Options::default() };
        let store = Store::open_on(world.engine(), world.media(), 7, options).unwrap();
        if store.restore_from(&mut bad.as_slice()).is_ok() {
            assert_eq!(&crate::model::scan(&store, b"", b""), reference, "byte {byte}");
        }
    }
}
