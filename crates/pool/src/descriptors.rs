//! How many of this process's descriptors backing files may take.
//!
//! Users decide how many files are open. Catalog, log and mirror must be able to open theirs all the same: an engine that is refused one
//! gives up for good.

use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// Most descriptors kept for everything that is no backing file.
const MOST_KEPT: u64 = 2048;

/// The bound below which descriptors of backing files lie.
#[derive(Clone, Copy, Debug)]
pub struct Descriptors {
    limit: u64,
}

impl Descriptors {
    /// By the limit of this process, as it is now.
    pub fn of_this_process() -> Self {
        Self { limit: getrlimit(Resource::Nofile).current.unwrap_or(1 << 20) }
    }

    /// How many there may be in all.
    pub fn limit(self) -> u64 {
        self.limit
    }

    /// EMFILE for a descriptor that is among those kept. The kernel hands out the lowest free number, so that its number
    /// says how many others there are.
    pub fn admit(self, file: impl AsFd) -> Result<(), Errno> {
        let kept = (self.limit / 4).min(MOST_KEPT);
        match u64::try_from(file.as_fd().as_raw_fd()) {
            Ok(number) if number >= self.limit - kept => Err(Errno::MFILE),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_quarter_is_kept() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let number = u64::try_from(file.as_raw_fd()).unwrap();
        let admits = |limit| Descriptors { limit }.admit(&file);
        assert_eq!(admits((number + 1) * 2), Ok(()));
        assert_eq!(admits(number + 1), Err(Errno::MFILE));
    }
}
