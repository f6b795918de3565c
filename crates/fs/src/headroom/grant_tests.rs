//! What is held for a file, kept over measurements, lent, owed and given back.

use super::*;
use proptest::prelude::*;

const COUNTING: Counting = Counting { block: 4096, unit: 4096, map: true, in_inode: 4 };

#[test]
fn a_write_that_goes_on_costs_no_map_of_its_own() {
    let mut grant = Grant::default();
    let first = grant.need(&(0..4096), COUNTING);
    assert_eq!(first, COUNTING.worst(0, 4096));
    assert_eq!(grant.loosen(0..4096, first), None);
    assert_eq!(grant.need(&(4096..8192), COUNTING), 4096);
    assert_eq!(grant.need(&(0..4096), COUNTING), 0);
    assert_eq!(grant.need(&(12288..16384), COUNTING), first);
}

#[test]
fn what_does_not_touch_is_to_have_its_blocks_at_once() {
    let mut grant = Grant::default();
    assert_eq!(grant.loosen(0..10, 1), None);
    assert_eq!(grant.loosen(10..20, 1), None);
    assert_eq!(grant.loosen(30..40, 1), Some(0..20));
    assert_eq!(grant.firm(), Some(30..40));
    assert_eq!(grant.firm(), None);
}

#[test]
fn what_was_cut_off_gets_no_blocks() {
    let mut grant = Grant::default();
    grant.loosen(4096..8192, 1);
    grant.cut(5000);
    assert_eq!(grant.firm(), Some(4096..5000));
    grant.loosen(4096..8192, 1);
    grant.cut(0);
    assert_eq!(grant.firm(), None);
}

#[test]
fn what_is_placed_takes_nothing_until_something_takes_it_away() {
    let mut grant = Grant::default();
    assert!(!grant.rely(&(0..1)));
    grant.place(0..4096);
    grant.place(4096..8192);
    assert!(grant.rely(&(100..8192)) && !grant.rely(&(100..8193)));
    // Who takes blocks away waits for who counts on them.
    assert!(grant.free());
    grant.ended(Taken::Nothing);
    assert!(!grant.free());
    grant.place(0..8192);
    assert!(!grant.rely(&(0..1)), "nothing is placed meanwhile");
    grant.freed();
    assert!(!grant.rely(&(0..1)));
    grant.place(0..8192);
    assert!(grant.rely(&(0..1)));
}

/// Else the time of such a write would be taken for that of its file being given blocks.
#[test]
fn a_write_that_takes_nothing_is_under_way_too() {
    let mut grant = Grant::default();
    grant.add(1 << 20);
    let need = grant.need(&(0..8192), COUNTING);
    assert!(grant.spend(need));
    grant.loosen(0..8192, need);
    grant.ended(Taken::Held(need));
    assert!(!grant.is_under_way());
    assert_eq!(grant.need(&(0..4096), COUNTING), 0);
    assert!(grant.spend(0) && grant.is_under_way());
    grant.ended(Taken::Held(0));
    grant.place(0..8192);
    assert!(!grant.is_under_way() && grant.rely(&(0..4096)) && grant.is_under_way());
    grant.ended(Taken::Nothing);
    assert!(!grant.is_under_way());
}

#[test]
fn what_stores_may_take_is_kept_over_measurements_and_counted_once() {
    let mut grant = Grant::default();
    let first = grant.to_keep(1 << 20, true, COUNTING);
    assert_eq!(first.bytes, COUNTING.map_growth(256, u64::MAX));
    grant.keep(first);
    grant.add(4096);
    assert_eq!((grant.held, grant.excess()), (first.bytes + 4096, 4096));
    grant.measured(4096, false);
    assert_eq!(grant.to_keep(1 << 20, true, COUNTING).bytes, 0, "the same bytes, looked at again");
    let second = grant.to_keep(1 << 20, false, COUNTING);
    grant.keep(second);
    assert_eq!(grant.held, COUNTING.map_growth(512, u64::MAX), "more of them");
    assert_eq!(grant.excess(), 0);
    grant.unkeep();
    assert_eq!(grant.excess(), first.bytes + second.bytes);
}

/// The second to come back counted as much for written out as the first had, of what was written since: it was let go of, and a limit
/// was passed by what the map grew by then.
#[test]
fn what_is_written_while_two_write_the_file_out_stays_held() {
    let mut grant = Grant::default();
    let write = |grant: &mut Grant, bytes: u64| {
        assert!(grant.spend(bytes));
        grant.ended(Taken::Held(bytes));
    };
    grant.add(100);
    write(&mut grant, 10);
    let (first, second) = (grant.mark(), grant.mark());
    write(&mut grant, 7);
    grant.settle(first);
    assert_eq!((grant.spent(), grant.shows(true), grant.shows(false)), (7, 10, 17));
    grant.settle(second);
    assert_eq!((grant.spent(), grant.shows(true)), (7, 10));
    grant.measured(grant.excess() - grant.spent(), true);
    assert_eq!((grant.held, grant.spent(), grant.shows(true), grant.shows(false)), (7, 7, 0, 7));
    // One who began before the last measurement counts for nothing of what came after it.
    let late = grant.mark();
    grant.measured(grant.excess(), false);
    grant.add(100);
    write(&mut grant, 5);
    grant.settle(late);
    assert_eq!((grant.held, grant.spent(), grant.shows(true), grant.shows(false)), (100, 5, 0, 5));
}

#[test]
fn what_is_lent_is_kept_until_it_is_over_and_what_is_owed_until_it_is_paid() {
    let mut grant = Grant::default();
    let map = COUNTING.map_growth(2, u64::MAX);
    grant.lend(1 << 20);
    // By parts as at once.
    grant.owe(4096, 0, COUNTING);
    grant.owe(4096, 0, COUNTING);
    assert_eq!((grant.excess(), grant.lent()), (0, (1 << 20) - map));
    grant.end_lending();
    assert_eq!(grant.excess(), (1 << 20) - map);
    grant.measured(grant.excess(), false);
    assert!(grant.owes() && grant.excess() == 0);
    grant.pay();
    assert_eq!((grant.excess(), grant.held), (map, map));
}

#[test]
fn what_a_write_that_asked_may_have_added_to_the_map_stays_held_after_it() {
    let mut grant = Grant::default();
    let need = COUNTING.worst(0, 4096);
    for n in 1..=100 {
        grant.add(need);
        assert!(grant.spend(need));
        grant.let_go(need);
        // A look meanwhile.
        grant.owe(0, grant.left(0), COUNTING);
        grant.end_let_go();
        grant.owe(4096, grant.left(4096), COUNTING);
        grant.measured(grant.excess(), false);
        assert_eq!(grant.held, COUNTING.map_growth(n, u64::MAX));
    }
    // Where it was seen while it was under way, that is made up for.
    let held = grant.held;
    grant.add(need);
    assert!(grant.spend(need));
    grant.let_go(need);
    grant.owe(128 << 12, grant.left(128 << 12), COUNTING);
    assert_eq!((grant.held, grant.excess()), (held + need, 0));
    grant.end_let_go();
    grant.owe(0, grant.left(0), COUNTING);
    assert_eq!(grant.excess(), need - 4 * 4096);
    // What its map then takes is no data.
    grant.measured(grant.excess(), false);
    grant.pay();
    let excess = grant.excess();
    grant.owe(4096, grant.left(4096), COUNTING);
    assert_eq!(grant.excess(), excess);
}

#[test]
fn what_holes_take_stays_held_when_the_rest_is_asked_back() {
    let mut grant = Grant::default();
    grant.lend(1 << 20);
    assert_eq!(grant.lend_to_holes(40960), 0);
    assert_eq!((grant.lent(), grant.excess(), grant.grows()), (0, (1 << 20) - 40960, 1 << 20));
    grant.measured(grant.excess(), false);
    // More holes than before are not held yet; fewer are let go of.
    assert_eq!(grant.lend_to_holes(65536), 24576);
    grant.add_for_holes(24576);
    assert_eq!((grant.lend_to_holes(61440), grant.excess()), (0, 4096));
    // What was stored into them and lies nowhere yet is owed of it.
    let map = COUNTING.map_growth(1, u64::MAX);
    grant.owe(4096, 0, COUNTING);
    assert_eq!((grant.excess(), grant.grows()), (4096, 65536 - map));
    grant.pay();
    grant.unkeep();
    assert_eq!(grant.excess(), 65536);
}

#[test]
fn a_look_in_vain_is_repeated_more_and_more_rarely() {
    let mut grant = Grant::default();
    let mut looks = 0;
    for _ in 0..5000 {
        if grant.looks() {
            looks += 1;
            grant.looked_in_vain();
        }
    }
    assert!((10..20).contains(&looks), "{looks}");
    grant.place(0..1);
    assert!(grant.looks());
}

#[test]
fn what_stays_loose_after_a_measurement_has_its_own_blocks_counted() {
    let mut grant = Grant::default();
    let first = grant.need(&(0..8192), COUNTING);
    grant.loosen(0..8192, first);
    grant.stays_loose(COUNTING);
    assert_eq!(grant.need(&(8192..12288), COUNTING), COUNTING.worst(0, 12288) - 8192);
}

proptest! {
    #[test]
    fn the_loose_range_is_always_counted_at_its_worst(writes in proptest::collection::vec((0u64..1 << 20, 1u64..1 << 16), 1..40)) {
        let mut grant = Grant::default();
        for (start, length) in writes {
            let range = start..start + length;
            let need = grant.need(&range, COUNTING);
            grant.loosen(range, need);
            prop_assert!(grant.counted >= worst(&grant.loose, COUNTING));
        }
    }
}
