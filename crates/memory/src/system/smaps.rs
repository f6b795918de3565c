//! `/proc/PID/smaps_rollup` and `smaps`: what a process has in memory, and what it referenced.

use super::keyed;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};

/// Sums over a whole process, in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rollup {
    /// Resident.
    pub rss: u64,
    /// Resident, shared pages divided by how many share them.
    pub pss: u64,
    /// Resident and referenced since the bits were cleared.
    pub referenced: u64,
    /// Swapped out.
    pub swap: u64,
}

impl Rollup {
    /// From the file's text.
    pub fn parse(text: &str) -> Self {
        Self {
            rss: keyed(text, "Rss"),
            pss: keyed(text, "Pss"),
            referenced: keyed(text, "Referenced"),
            swap: keyed(text, "Swap"),
        }
    }

    /// Of a process. A kernel thread has none: an empty file, all zero.
    pub fn read(pid: i32) -> io::Result<Self> {
        Ok(Self::parse(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?))
    }
}

/// Forgets which pages of a process were referenced.
pub fn clear_refs(pid: i32) -> io::Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), "1")
}

/// A private anonymous mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Resident KiB.
    pub rss: u64,
    /// Referenced KiB.
    pub referenced: u64,
}

/// The private anonymous mappings of a process; named ones (stack, files) are left out.
pub fn anonymous_mappings(pid: i32) -> io::Result<Vec<Mapping>> {
    anonymous_in(BufReader::new(File::open(format!("/proc/{pid}/smaps"))?))
}

/// Those of `smaps`' text, line by line: with a hundred thousand mappings it has a hundred megabytes.
fn anonymous_in(mut text: impl BufRead) -> io::Result<Vec<Mapping>> {
    let mut found: Vec<Mapping> = Vec::new();
    let mut wanted = false;
    let mut line = Vec::new();
    loop {
        line.clear();
        if text.read_until(b'\n', &mut line)? == 0 {
            return Ok(found);
        }
        // Names of files are in any encoding.
        add_line(&String::from_utf8_lossy(&line), &mut found, &mut wanted);
    }
}

/// Begins a mapping, or adds to the one begun last, if that is `wanted`.
fn add_line(line: &str, found: &mut Vec<Mapping>, wanted: &mut bool) {
    let mut words = line.split_whitespace();
    let Some(first) = words.next() else { return };
    if let Some((start, end)) = first.split_once('-').and_then(range) {
        let private = words.next().is_some_and(|permissions| permissions.ends_with('p'));
        let inode = words.nth(2);
        let name = words.next();
        *wanted = private && inode == Some("0") && matches!(name, None | Some("[heap]"));
        if *wanted {
            found.push(Mapping { start, bytes: end - start, rss: 0, referenced: 0 });
        }
    } else if let (true, Some(mapping)) = (*wanted, found.last_mut()) {
        let value = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        match first {
            "Rss:" => mapping.rss = { value }(),
            "Referenced:" => mapping.referenced = { value }(),
            _ => {}
        }
    }
}

/// The addresses of a mapping, as its line begins with them.
pub fn range((start, end): (&str, &str)) -> Option<(u64, u64)> {
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rollup_reads_its_four_sums() {
        let text = "Rss:                1692 kB\nPss:                 257 kB\nPss_Dirty: 1 kB\nReferenced: 1600 kB\nSwap: 12 kB\nSwapPss: 3 kB\n";
        assert_eq!(Rollup::parse(text), Rollup { rss: 1692, pss: 257, referenced: 1600, swap: 12 });
        assert_eq!(Rollup::parse(""), Rollup::default());
    }

    #[test]
    fn only_private_anonymous_mappings_are_found() {
        let text = "55d0-55d1 rw-p 00000000 00:00 0          [heap]\nRss: 8 kB\nReferenced: 4 kB\n\
                    7f00-7f02 r--p 00000000 fe:00 123 /lib/x.so\nRss: 100 kB\n\
                    7f10-7f20 rw-p 00000000 00:00 0 \nRss: 64 kB\nReferenced: 0 kB\n\
                    7ff0-7ff1 rw-s 00000000 00:01 9 /dev/zero\nRss: 1 kB\n";
        let found = anonymous_in(text.as_bytes()).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0], Mapping { start: 0x55d0, bytes: 1, rss: 8, referenced: 4 });
        assert_eq!((found[1].rss, found[1].referenced), (64, 0));
    }

    #[test]
    fn this_process_shows_what_it_references() {
        let me = std::process::id() as i32;
        clear_refs(me).unwrap();
        // Each time memory that nobody had before: what the processor has in its own table of pages it marks only once. And whoever else finds
        // out what is in use on this machine takes some of it for unused meanwhile.
        let (mut blocks, mut rollup) = (Vec::new(), Rollup::default());
        let shows = (1..40).any(|round| {
            blocks.push(vec![round; 8 << 20]);
            rollup = Rollup::read(me).unwrap();
            rollup.referenced >= 8 << 10
        });
        assert!(shows && std::hint::black_box(&blocks).iter().all(|block| block[0] > 0), "{rollup:?}");
    }
}
