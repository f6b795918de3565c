//! Each call of the catalog's store to what lies below fails in turn: nothing synced is lost, nothing is lost in silence, and
//! after the failure nothing more is accepted.

use crate::bed::{Bed, at};
use crate::named::new;
use crate::world::{Fault, Random};
use std::collections::BTreeSet;
use ullage_catalog::{Catalog, Error, verify};
use ullage_types::Kind;

type Names = BTreeSet<Vec<u8>>;

fn names(catalog: &Catalog) -> Names {
    catalog.list(catalog.root(), 0, u64::MAX, usize::MAX).unwrap().into_iter().map(|entry| entry.name).collect()
}

/// Every state that there was, in order, and the last one that was synced; and the first error.
fn work(bed: &Bed) -> (Vec<Names>, usize, Option<Error>) {
    let catalog = bed.catalog();
    let root = catalog.root().clone();
    let (mut states, mut synced) = (vec![names(&catalog)], 0);
    for round in 0..12u8 {
        for rename in [false, true] {
            let name = [b'a', b'0' + round];
            let done = if rename {
                catalog.rename((&root, &name), (&root, &[b'b', b'0' + round / 2]), false, at(2)).map(drop)
            } else {
                catalog.create(&root, &name, new(&catalog, Kind::Regular), at(1)).map(drop)
            };
            if let Err(error) = done {
                return (states, synced, Some(error));
            }
            states.push(names(&catalog));
        }
        if round % 2 == 0 {
            if let Err(error) = catalog.sync() {
                return (states, synced, Some(error));
            }
            synced = states.len() - 1;
        }
        if round == 7 {
            if let Err(error) = bed.checkpoint() {
                return (states, synced, Some(error.into()));
            }
            synced = states.len() - 1;
        }
    }
    (states, synced, None)
}

fn each_call(fault: Fault) {
    for call in 0.. {
        let mut bed = Bed::machine();
        let world = bed.world().unwrap().clone();
        world.arm(call, fault);
        let (states, synced, error) = work(&bed);
        let done = world.armed();
        world.disarm();
        if let Some(error) = error {
            assert!(matches!(error, Error::Kv(_)), "call {call}: {error}");
            let catalog = bed.catalog();
            let made = catalog.create(catalog.root(), b"afterwards", new(&catalog, Kind::Regular), at(3));
            assert!(
                matches!(made, Err(Error::Kv(ullage_kv::Error::Poisoned(_)))),
                "something is accepted after the failure of call {call}"
            );
            assert!(catalog.sync().is_err() || catalog.durable() == catalog.kv().newest());
            // All is still to be read.
            assert!(names(&catalog).len() + 1 >= states.last().unwrap().len());
        } else {
            assert!(done || matches!(fault, Fault::Short(_)), "call {call} failed in silence");
        }
        bed.cut(&mut Random(u64::from(call)));
        let found = names(&bed.catalog());
        // Replacing a name by rename gives the same names again: the last such state counts.
        let place = states.iter().rposition(|state| *state == found);
        assert!(place.is_some_and(|place| place >= synced), "call {call}: {found:?} of {states:?}, synced {synced}");
        assert_eq!(verify(bed.kv()).unwrap().findings, []);
        if done {
            assert!(call > 8, "only {call} calls");
            return;
        }
    }
}

#[test]
fn eio_at_each_call() {
    each_call(Fault::Errno(5));
}

#[test]
fn enospc_at_each_call() {
    each_call(Fault::Errno(28));
}

#[test]
fn short_writes_at_each_call() {
    for bytes in [0, 512, 4096] {
        each_call(Fault::Short(bytes));
    }
}
