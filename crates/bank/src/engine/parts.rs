//! Steps that are larger than a record of the journal can be: several records, which count once the last is there.

use super::EngineError;

/// A quarter of what a record may be.
pub(super) const PART_BYTES: usize = 16 << 20;

/// First bytes of records that are no whole steps; those begin with a write, which is 0 or 1.
const FIRST: u8 = 2;
const NEXT: u8 = 3;
const LAST: u8 = 4;

/// The records of a step, each with whether it is the last.
pub(super) fn split(step: Vec<u8>) -> Vec<(Vec<u8>, bool)> {
    if step.len() <= PART_BYTES {
        return vec![(step, true)];
    }
    let last = step.len().div_ceil(PART_BYTES) - 1;
    let record = |(number, part): (usize, &[u8])| {
        let kind = match number {
            0 => FIRST,
            number if number == last => LAST,
            _ => NEXT,
        };
        ([&[kind], part].concat(), number == last)
    };
    step.chunks(PART_BYTES).enumerate().map(record).collect()
}

/// Gives whole steps back. A beginning that another step follows has lost its end to a crash, and nobody had an answer.
pub(super) fn whole(
    records: Vec<Vec<u8>>,
    mut step: impl FnMut(&[u8]) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let mut begun = Vec::new();
    for record in records {
        match record.split_first() {
            Some((&FIRST, part)) => begun = part.to_vec(),
            Some((&NEXT, part)) => begun.extend_from_slice(part),
            Some((&LAST, part)) => {
                begun.extend_from_slice(part);
                step(&begun)?;
                begun = Vec::new();
            }
            _ => {
                begun = Vec::new();
                step(&record)?;
            }
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
