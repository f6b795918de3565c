//! Which pages the idle-page bitmap is asked about.

use crate::PAGE;
use crate::system::{pagemap, smaps};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::ops::Range;

/// At most about this many pages are watched; LRU positions among a sample chosen by address are
/// those of all pages divided by the sampling ratio, so a sample of the space gives the whole curve.
/// Each costs two system calls a sample, thirty times a window.
const SAMPLED_PAGES: usize = 4096;

/// A page of a process.
pub type VirtualPage = (i32, u64);

/// The pages chosen.
#[derive(Debug)]
pub struct Chosen {
    /// In the order of processes.
    pub pages: Vec<VirtualPage>,
    /// One page in so many is watched.
    pub one_in: u64,
}

impl Chosen {
    /// Nothing yet.
    pub fn none() -> Self {
        Self { pages: Vec::new(), one_in: 1 }
    }

    /// Chooses among the pages that exist those whose hashed address falls below the ratio, so that a page
    /// stays chosen from window to window; of `known` ones also those that are only mapped now, since they may come back.
    pub fn among(pids: &[i32], known: &HashSet<VirtualPage>) -> Self {
        let mut chosen = Self::none();
        let mut mapped: HashMap<i32, Vec<Range<u64>>> = HashMap::new();
        for &pid in pids {
            let ranges = mappings(pid);
            // It may have ended.
            if let Ok(file) = File::open(format!("/proc/{pid}/pagemap")) {
                for range in &ranges {
                    let _gone = pagemap::each_existing(&file, range.clone(), |page| chosen.take((pid, page)));
                }
            }
            mapped.insert(pid, ranges);
        }
        let found: HashSet<VirtualPage> = chosen.pages.iter().copied().collect();
        let is_mapped = |(pid, page): &VirtualPage| {
            mapped.get(pid).is_some_and(|ranges| ranges.iter().any(|range| range.contains(&(page * PAGE))))
        };
        let away = known.difference(&found).filter(|page| is_sampled(**page, chosen.one_in) && is_mapped(page));
        let away: Vec<VirtualPage> = away.copied().collect();
        chosen.pages.extend(away);
        chosen.pages.sort_unstable();
        chosen
    }

    /// Takes a page, if it falls below the ratio; where there are too many of those every other one goes. How many pages there
    /// are need not be known before, and what is only reserved costs nothing.
    fn take(&mut self, page: VirtualPage) {
        if !is_sampled(page, self.one_in) {
            return;
        }
        self.pages.push(page);
        while self.pages.len() > SAMPLED_PAGES {
            self.one_in *= 2;
            let one_in = self.one_in;
            self.pages.retain(|page| is_sampled(*page, one_in));
        }
    }
}

fn is_sampled((pid, page): VirtualPage, one_in: u64) -> bool {
    hash(pid, page).is_multiple_of(one_in)
}

fn mappings(pid: i32) -> Vec<Range<u64>> {
    let text = crate::system::text(format!("/proc/{pid}/maps")).unwrap_or_default();
    let range = |line: &str| -> Option<Range<u64>> {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-').and_then(smaps::range)?;
        let readable = words.next()?.starts_with('r');
        let range = start..end;
        // A reservation of terabytes is no memory; before Linux 6.7 it would be gone over page by page.
        (readable && range.end - range.start < 1 << 40).then_some(range)
    };
    text.lines().filter_map(range).collect()
}

/// Splitmix64 of process and page.
fn hash(pid: i32, page: u64) -> u64 {
    let mut value = page ^ (pid as u64) << 40;
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_page_in_n_is_sampled_whatever_the_pattern() {
        for one_in in [4u64, 16, 64] {
            let sampled = (0..64_000u64).filter(|page| is_sampled((77, page * 2), one_in)).count() as u64;
            let expected = 64_000 / one_in;
            assert!(sampled.abs_diff(expected) < expected / 5, "{sampled} of {expected}");
        }
    }

    #[test]
    fn however_many_pages_there_are_about_as_many_are_chosen() {
        for pages in [100, 4096, 4097, 100_000, 5_000_000] {
            let mut chosen = Chosen::none();
            (0..pages).for_each(|page| chosen.take((7, page)));
            let expected = pages / chosen.one_in;
            assert!(
                chosen.pages.len() <= SAMPLED_PAGES && expected.abs_diff(chosen.pages.len() as u64) < 300,
                "{pages}"
            );
            assert!(chosen.one_in == 1 || chosen.pages.len() >= 1_800, "{pages}");
        }
    }

    /// Regression: pages were chosen among all that is mapped, millions of a sparse mapping.
    #[test]
    fn what_is_only_reserved_is_not_watched() {
        let (bytes, flags) = (64 << 30, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
        // SAFETY: a new mapping, unmapped below.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        let me = std::process::id() as i32;
        let within = start as u64 / PAGE..(start as u64 + bytes as u64) / PAGE;
        // Nor one that was there once, and may come back.
        let known = HashSet::from([(me, within.start), (me, 1)]);
        let chosen = Chosen::among(&[me], &known);
        // SAFETY: mapped above, and nobody has touched it.
        unsafe { libc::munmap(start, bytes) };
        assert!((1..20_000).contains(&chosen.pages.len()), "{}", chosen.pages.len());
        let reserved: Vec<VirtualPage> =
            chosen.pages.iter().filter(|(_, page)| within.contains(page)).copied().collect();
        let kept = if is_sampled((me, within.start), chosen.one_in) { vec![(me, within.start)] } else { vec![] };
        assert_eq!((reserved, chosen.pages.contains(&(me, 1))), (kept, false));
    }
}
