//! Paging out ranges that nobody referenced in the whole window: the certain part of the tail.
//!
//! The kernel says how much it was advised, not how much went: what several processes have since one forked stays, and what may
//! not be swapped. So it is looked at before and after.

use crate::PAGE;
use crate::sampler::IdleRange;
use crate::sys;
use crate::system::pagemap;
use std::collections::HashSet;
use std::time::Duration;

/// Ranges are asked for at most this often: reading them costs as much as a sample. Where none were found, half as often, and
/// so on.
const EVERY: Duration = Duration::from_secs(5);
const RARELY: Duration = Duration::from_secs(80);

/// Most that is looked at in one call.
const PIECE: u64 = 4 << 20;

/// So many calls are made at a time, and so many that bring nothing: the user's processes wait for the same locks.
const CALLS: usize = 64;
const IN_VAIN: usize = 8;

/// The ranges known.
pub(super) struct Ranges {
    idle: Vec<IdleRange>,
    /// Process and end of those of which nothing went; forgotten with the window.
    barren: HashSet<(i32, u64)>,
    may_page_out: bool,
    asked: Option<Duration>,
    every: Duration,
}

impl Ranges {
    pub fn new() -> Self {
        Self { idle: Vec::new(), barren: HashSet::new(), may_page_out: true, asked: None, every: EVERY }
    }

    /// What a sampler has found.
    pub fn found(&mut self, ranges: Vec<IdleRange>) {
        self.idle.extend(ranges.into_iter().filter(|range| !self.barren.contains(&name(range))));
        self.every = if self.idle.is_empty() { (2 * self.every).min(RARELY) } else { EVERY };
    }

    /// What was idle in the window before may be in use now.
    pub fn begin_window(&mut self) {
        self.idle.clear();
        self.barren.clear();
        self.every = EVERY;
    }

    /// Whether to ask for more; then they are.
    pub fn ask(&mut self, now: Duration) -> bool {
        let due = self.asked.is_none_or(|asked| now.saturating_sub(asked) >= self.every);
        let ask = self.may_page_out && self.idle.is_empty() && due;
        if ask {
            self.asked = Some(now);
        }
        ask
    }

    /// Pages out up to so many pages; gives how many went.
    pub fn page_out(&mut self, wanted: u64) -> u64 {
        let (mut all, mut in_vain) = (0, 0);
        for _ in 0..CALLS {
            if all >= wanted || in_vain == IN_VAIN || !self.may_page_out {
                break;
            }
            let Some(range) = self.idle.pop() else { break };
            // The process may be gone, or its mapping.
            let Some((bytes, went)) = self.piece(&range, wanted - all) else { continue };
            if went == Some(0) {
                in_vain += 1;
                self.barren.insert(name(&range));
                continue;
            }
            all += went.unwrap_or(0);
            if range.bytes > bytes {
                self.idle.push(IdleRange { start: range.start + bytes, bytes: range.bytes - bytes, ..range });
            }
        }
        all
    }

    /// Pages out up to so many pages from the beginning of a range; gives how far that reaches, and how many pages went, if
    /// there were any.
    fn piece(&mut self, range: &IdleRange, wanted: u64) -> Option<(u64, Option<u64>)> {
        let pages = range.bytes.min(PIECE) / PAGE;
        let resident = pagemap::present(range.pid, range.start, pages).ok()?;
        let last = (0..resident.len()).filter(|page| resident[*page]).nth(wanted as usize - 1);
        let bytes = last.map_or(pages, |last| last as u64 + 1) * PAGE;
        let count = |pages: &[bool]| pages.iter().filter(|present| **present).count() as u64;
        let before = count(&resident);
        if before == 0 {
            return Some((pages.max(1) * PAGE, None));
        }
        // Not for us: needs CAP_SYS_NICE. The groups can still be reclaimed from.
        if sys::page_out(range.pid, range.start, bytes).is_err_and(|error| error.raw_os_error() == Some(libc::EPERM)) {
            self.may_page_out = false;
        }
        // Not only what was asked for: a large page goes as one.
        let after = count(&pagemap::present(range.pid, range.start, pages).ok()?);
        Some((bytes, Some(before.saturating_sub(after))))
    }
}

/// A range's name: its end stays while pieces are taken off its beginning.
fn name(range: &IdleRange) -> (i32, u64) {
    (range.pid, range.start + range.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;

    const BYTES: u64 = 8 << 20;

    fn whole(start: u64) -> IdleRange {
        IdleRange { pid: std::process::id() as i32, start, bytes: BYTES }
    }

    /// Regression: what the kernel was advised to page out was taken to have gone.
    #[test]
    fn memory_shared_with_a_forked_child_is_not_taken_to_have_gone() {
        let block = vec![1u8; (BYTES + PAGE) as usize];
        // SAFETY: the child makes two calls that are safe after a fork of a process with threads, and is ended below.
        let child = unsafe { libc::fork() };
        if child == 0 {
            loop {
                // SAFETY: no arguments.
                unsafe { libc::pause() };
            }
        }
        let mut ranges = Ranges::new();
        let range = whole((block.as_ptr() as u64).next_multiple_of(PAGE));
        ranges.found(vec![range]);
        let went = ranges.page_out(BYTES / PAGE);
        sys::signal(child, libc::SIGKILL).unwrap();
        // SAFETY: it is our child, and the status is not asked for.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        assert!(std::hint::black_box(&block).len() > 1 && went < 16, "{went}");
        ranges.found(vec![range]);
        assert!(ranges.idle.is_empty() || !ranges.may_page_out, "nor is it tried again in this window");
    }

    #[test]
    fn where_no_range_is_found_they_are_asked_for_ever_less() {
        let mut ranges = Ranges::new();
        let asked = |ranges: &mut Ranges, from: u64| -> Vec<u64> {
            let asked = (from..from + 300)
                .filter(|second| ranges.ask(Duration::from_secs(*second)).then(|| ranges.found(Vec::new())).is_some());
            asked.collect()
        };
        assert_eq!(asked(&mut ranges, 0), [0, 10, 30, 70, 150, 230]);
        ranges.begin_window();
        assert_eq!(asked(&mut ranges, 300)[..2], [300, 310]);
    }

    /// Regression: four megabytes went where a page was wanted. Pages of a file need no swap.
    #[test]
    fn no_more_is_paged_out_than_was_wanted() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        // Page by page: what is written at once has large pages, which go as one.
        for _ in 0..BYTES / PAGE {
            file.write_all(&[1; PAGE as usize]).unwrap();
        }
        file.as_file().sync_all().unwrap();
        let (read, private) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_POPULATE);
        // SAFETY: a new mapping, unmapped below, of a file that nobody shortens.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), BYTES as usize, read, private, file.as_raw_fd(), 0) };
        assert_ne!(start, libc::MAP_FAILED);
        let resident = || {
            let pages = pagemap::present(std::process::id() as i32, start as u64, BYTES / PAGE).unwrap();
            pages.iter().filter(|present| **present).count() as u64
        };
        let before = resident();
        let mut ranges = Ranges::new();
        ranges.found(vec![whole(start as u64)]);
        let went = [ranges.page_out(16), ranges.page_out(16)];
        let after = resident();
        // SAFETY: mapped above, and nothing refers to it any more.
        unsafe { libc::munmap(start, BYTES as usize) };
        assert!(went.iter().all(|went| *went <= 16) && before - after < 1024, "{went:?}, {before} then {after}");
        assert!(went.iter().sum::<u64>() <= before - after);
    }
}
