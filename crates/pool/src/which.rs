//! Which inode something is. Numbers are given out again, ext4's as soon as they are free; what was born at another time is another one.

use rustix::fd::AsFd;
use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;

/// What an extended attribute says of the inode that it was written to, so that it means nothing on any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Which {
    pub number: u64,
    /// When it was made, in nanoseconds since 1970; none where the file system does not say, and in what earlier versions wrote.
    pub birth: Option<u64>,
}

impl Which {
    pub const LONGEST: usize = 16;

    pub fn of(file: impl AsFd) -> rustix::io::Result<Self> {
        let wanted = StatxFlags::INO | StatxFlags::BTIME;
        match rustix::fs::statx(&file, "", AtFlags::EMPTY_PATH, wanted) {
            Ok(stat) => {
                let said = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
                let (seconds, rest) = (stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec);
                let birth = seconds.wrapping_mul(1_000_000_000).wrapping_add(i64::from(rest)).cast_unsigned();
                Ok(Self { number: stat.stx_ino, birth: said.then_some(birth) })
            }
            Err(Errno::NOSYS) => Ok(Self { number: rustix::fs::fstat(file)?.st_ino, birth: None }),
            Err(errno) => Err(errno),
        }
    }

    /// Whether this and `other` are one, as far as both say.
    pub fn may_be(self, other: Self) -> bool {
        let alike = self.birth.zip(other.birth).is_none_or(|(one, other)| one == other);
        self.number == other.number && alike
    }

    /// Number and, where it is known, time of birth, little-endian.
    pub fn encode(self) -> Vec<u8> {
        [Some(self.number), self.birth].into_iter().flatten().flat_map(u64::to_le_bytes).collect()
    }

    /// `None` for anything but what [`Which::encode`] gives.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (number, birth) = bytes.split_first_chunk::<8>()?;
        let birth = match birth {
            [] => None,
            birth => Some(u64::from_le_bytes(birth.try_into().ok()?)),
        };
        Some(Self { number: u64::from_le_bytes(*number), birth })
    }
}
