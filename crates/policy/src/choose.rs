//! Which of several pools gets a new file.

use std::fmt;
use std::str::FromStr;
use ullage_types::Bytes;

/// What the choice looks at: one per pool, in the order of the space's configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Free to the pool.
    pub free: Bytes,
    /// What is to stay free; a pool at or below it gets no new files.
    pub reserve: Bytes,
    /// All inodes; 0 where the file system below has no such number.
    pub inodes_total: u64,
    /// Free inodes; not looked at where `inodes_total` is 0.
    pub inodes_free: u64,
}

impl Room {
    /// Whether a new file may go here.
    pub const fn fits(&self) -> bool {
        self.free.0 > self.reserve.0 && (self.inodes_total == 0 || self.inodes_free > 0)
    }
}

/// How files are spread over pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// The pool with most free space above its reserve; the first one among equals.
    #[default]
    MostFree,
    /// One after the other.
    RoundRobin,
    /// The first one that is not under its reserve.
    FirstFit,
}

impl Spread {
    /// The pool for the `turn`th new file, or `None` when every pool is at its reserve (ENOSPC).
    ///
    /// `refused` says which pools must not be tried any more, since they answered ENOSPC to this very file.
    pub fn pool(self, rooms: &[Room], turn: u64, refused: &dyn Fn(usize) -> bool) -> Option<usize> {
        let fits = |&(pool, room): &(usize, &Room)| room.fits() && !refused(pool);
        let mut fitting = rooms.iter().enumerate().filter(fits);
        let chosen = match self {
            Self::FirstFit => fitting.next(),
            Self::MostFree => {
                // `max_by_key` would take the last among equals.
                fitting.min_by_key(|(_, room)| std::cmp::Reverse(room.free.saturating_sub(room.reserve)))
            }
            Self::RoundRobin => {
                let start = turn.checked_rem(rooms.len() as u64)? as usize;
                let after = rooms.iter().enumerate().skip(start);
                after.chain(rooms.iter().enumerate().take(start)).find(fits)
            }
        };
        chosen.map(|(pool, _)| pool)
    }
}

/// Why a text names no way to spread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseSpreadError(String);

impl fmt::Display for ParseSpreadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is no way to spread files over pools: use most-free, round-robin or first-fit", self.0)
    }
}

impl std::error::Error for ParseSpreadError {}

impl FromStr for Spread {
    type Err = ParseSpreadError;

    fn from_str(text: &str) -> Result<Self, ParseSpreadError> {
        match text {
            "most-free" => Ok(Self::MostFree),
            "round-robin" => Ok(Self::RoundRobin),
            "first-fit" => Ok(Self::FirstFit),
            _ => Err(ParseSpreadError(text.to_owned())),
        }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::MostFree => "most-free",
            Self::RoundRobin => "round-robin",
            Self::FirstFit => "first-fit",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn room(free: u64, reserve: u64) -> Room {
        Room { free: Bytes(free), reserve: Bytes(reserve), ..Room::default() }
    }

    const NONE: &dyn Fn(usize) -> bool = &|_| false;

    #[test]
    fn each_way_does_what_its_name_says() {
        let rooms = [room(10, 10), room(50, 10), room(90, 60), room(50, 10)];
        assert_eq!(Spread::MostFree.pool(&rooms, 0, NONE), Some(1));
        assert_eq!(Spread::FirstFit.pool(&rooms, 7, NONE), Some(1));
        let turns: Vec<_> = (0..6).filter_map(|turn| Spread::RoundRobin.pool(&rooms, turn, NONE)).collect();
        assert_eq!(turns, [1, 1, 2, 3, 1, 1]);
    }

    #[test]
    fn pools_without_inodes_are_skipped_and_pools_without_the_number_are_not() {
        let full = Room { inodes_total: 5, inodes_free: 0, ..room(100, 0) };
        assert_eq!(Spread::FirstFit.pool(&[full, room(1, 0)], 0, NONE), Some(1));
        assert_eq!(Spread::FirstFit.pool(&[full], 0, NONE), None);
        assert_eq!(Spread::RoundRobin.pool(&[], 3, NONE), None);
    }

    proptest! {
        #[test]
        fn a_file_gets_a_pool_exactly_when_one_fits(
            pools in prop::collection::vec((0u64..9, 0u64..9, any::<bool>()), 0..6), turn: u64,
        ) {
            let rooms: Vec<_> = pools.iter().map(|&(free, reserve, _)| room(free, reserve)).collect();
            let refused = |pool: usize| pools[pool].2;
            for spread in [Spread::MostFree, Spread::RoundRobin, Spread::FirstFit] {
                prop_assert_eq!(spread.to_string().parse::<Spread>(), Ok(spread));
                match spread.pool(&rooms, turn, &refused) {
                    Some(pool) => prop_assert!(rooms[pool].fits() && !refused(pool)),
                    None => prop_assert!((0..rooms.len()).all(|pool| !rooms[pool].fits() || refused(pool))),
                }
            }
        }
    }
}
