//! Steps that are larger than a record of the journal can be: several records, which count once the last is there.

use super::EngineError;
use ullage_journal::parts::{self, Begun, PART_BYTES, Part};

/// First bytes of records that are no whole steps; those begin with a write, which is 0 or 1.
const FIRST: u8 = 2;
const NEXT: u8 = 3;
const LAST: u8 = 4;

/// The records of a step, each with whether it is the last.
pub(super) fn split(step: Vec<u8>) -> Vec<(Vec<u8>, bool)> {
    if step.len() <= PART_BYTES {
        return vec![(step, true)];
    }
    let record = |(part, bytes): (Part, &[u8])| {
        let kind = match part {
            Part::First => FIRST,
            Part::Next => NEXT,
            Part::Last => LAST,
        };
        ([&[kind], bytes].concat(), part == Part::Last)
    };
    parts::split(&step).map(record).collect()
}

/// Gives whole steps back.
pub(super) fn whole(
    records: Vec<Vec<u8>>,
    mut step: impl FnMut(&[u8]) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let mut begun = Begun::default();
    for record in records {
        let (part, bytes) = match record.split_first() {
            Some((&FIRST, bytes)) => (Part::First, bytes),
            Some((&NEXT, bytes)) => (Part::Next, bytes),
            Some((&LAST, bytes)) => (Part::Last, bytes),
            _ => {
                begun.forget();
                step(&record)?;
                continue;
            }
        };
        if let Some(whole) = begun.add(part, bytes) {
            step(&whole)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(records: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let mut steps = Vec::new();
        whole(records, |step| {
            steps.push(step.to_vec());
            Ok(())
        })
        .unwrap();
        steps
    }

    #[test]
    fn a_large_step_counts_when_its_last_part_is_there() {
        let small = vec![1, 2, 3];
        let large: Vec<u8> = (0..3 * PART_BYTES + 5).map(|i| (i / 1000) as u8).collect();
        let parts: Vec<_> = split(large.clone()).into_iter().map(|(record, _)| record).collect();
        assert_eq!(parts.len(), 4);
        let all = |records: &[Vec<u8>]| [records, std::slice::from_ref(&small)].concat();
        assert!(steps(all(&parts)) == [large.clone(), small.clone()]);
        for there in 0..4 {
            assert!(steps(all(&parts[..there])) == [small.clone()], "{there} parts, then another life");
        }
        assert!(steps([&parts[..2], &parts[..]].concat()) == [large]);
    }
}
