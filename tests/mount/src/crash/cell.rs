//! 64 bytes that say which file they belong to, where in it, and when they were written.

/// Length of a cell, in bytes.
pub const CELL: usize = 64;
/// Length of a block of cells, the unit of writing, in bytes.
pub const BLOCK: usize = 4096;

const MAGIC: u64 = 0xC311_0000_0000_0000;

/// One block: of the file `tag`, the `block`-th of it, written as number `stamp`.
pub fn block(tag: u64, block: u64, stamp: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(BLOCK);
    for at in 0..(BLOCK / CELL) as u64 {
        let index = block * (BLOCK / CELL) as u64 + at;
        let mut words = [MAGIC | tag, index, stamp, 0, 0, 0, 0, 0];
        for (n, word) in (3u64..).zip(&mut words[3..]) {
            *word = mix(tag ^ index.rotate_left(20) ^ stamp.rotate_left(40) ^ n);
        }
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }
    bytes
}

fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

/// The stamp of each block of a file, none for a hole; or what is wrong with it. `loose` where stores into a mapping
/// may be half done: then each cell must be of this file and in its place, and no more.
pub fn look(content: &[u8], tag: u64, loose: bool) -> Result<Vec<Option<u64>>, String> {
    let mut stamps = Vec::new();
    for (number, bytes) in content.chunks(BLOCK).enumerate() {
        if bytes.iter().all(|byte| *byte == 0) {
            stamps.push(None);
            continue;
        }
        let mut stamp = None;
        for (at, cell) in bytes.chunks(CELL).enumerate() {
            if cell.len() < CELL {
                return Err(format!("block {number} is cut off in a cell"));
            }
            let word = |n: usize| u64::from_le_bytes(std::array::from_fn(|b| cell[n * 8 + b]));
            let index = (number * (BLOCK / CELL) + at) as u64;
            let ours = word(0) == MAGIC | tag && word(1) == index;
            if !(ours || loose && (word(0) == 0 || word(0) == MAGIC | tag && word(1) == 0)) {
                return Err(format!(
                    "cell {index} holds {:#x} {} stamp {}: not of file {tag}",
                    word(0),
                    word(1),
                    word(2)
                ));
            }
            stamp = Some(word(2));
        }
        if let (false, Some(stamp)) = (loose, stamp)
            && bytes != &block(tag, number as u64, stamp)[..bytes.len()]
        {
            return Err(format!("block {number} of file {tag} is mixed from several writes"));
        }
        stamps.push(stamp);
    }
    Ok(stamps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_another_file_or_place_or_time_are_noticed() {
        let good = [block(7, 0, 3), vec![0; BLOCK], block(7, 2, 9)].concat();
        assert_eq!(look(&good, 7, false), Ok(vec![Some(3), None, Some(9)]));
        assert!(look(&good, 8, false).is_err());
        assert!(look(&good, 8, true).is_err());
        assert!(look(&[block(7, 1, 3)].concat(), 7, false).is_err());
        let mixed = [&block(7, 0, 3)[..2048], &block(7, 0, 4)[2048..]].concat();
        assert!(look(&mixed, 7, false).is_err());
        assert!(look(&mixed, 7, true).is_ok());
    }
}
