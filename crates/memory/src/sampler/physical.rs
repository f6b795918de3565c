//! Physical memory: in which frame a virtual page lies, to which folio that belongs, and whether it was used.

use crate::PAGE;
use crate::error::{Error, Result};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Where the kernel tells the flags of each frame.
pub const FLAGS: &str = "/proc/kpageflags";

/// Flags of a frame (`linux/kernel-page-flags.h`).
const ON_LRU: u64 = 1 << 5;
const HEAD: u64 = 1 << 15;
const TAIL: u64 = 1 << 16;

/// The largest folio: a huge page of 2 MiB.
const LARGEST: u64 = (2 << 20) / PAGE;

/// The idle bits of physical memory. One bit, that of its first frame, stands for a whole folio.
#[derive(Debug)]
pub struct Physical {
    bitmap: File,
    path: PathBuf,
    flags: File,
    /// First frames of the folios of frames asked for.
    folios: HashMap<u64, u64>,
}

impl Physical {
    /// Opens the bitmap and the flags.
    pub fn open(bitmap: &Path, flags: &Path) -> Result<Self> {
        Ok(Self {
            bitmap: OpenOptions::new().read(true).write(true).open(bitmap).map_err(Error::io("opening", bitmap))?,
            path: bitmap.to_owned(),
            flags: File::open(flags).map_err(Error::io("opening", flags))?,
            folios: HashMap::new(),
        })
    }

    /// Forgets which frames made up folios: they are split and made anew all the time.
    pub fn forget(&mut self) {
        self.folios.clear();
    }

    /// The first frame of the folio that a frame belongs to; `None` where its use is not tracked, as with pages on no LRU
    /// list, which nobody can evict either.
    pub fn folio(&mut self, frame: u64) -> Option<u64> {
        if let Some(&first) = self.folios.get(&frame) {
            return Some(first);
        }
        let from = frame.saturating_sub(LARGEST - 1);
        let own = self.flags_of(frame, 1).pop()?;
        let (first, flags) = if own & TAIL == 0 {
            (frame, own)
        } else {
            let before = self.flags_of(from, frame - from);
            let back = before.iter().rev().position(|flags| flags & HEAD != 0)?;
            (frame - 1 - back as u64, before[before.len() - 1 - back])
        };
        (flags & ON_LRU != 0).then(|| {
            self.folios.insert(frame, first);
            first
        })
    }

    /// Which of the folios whose first frames these bits of a word stand for were used since this was last asked. None of
    /// those in the last, partial word of memory, which the kernel does not show. Only what was used costs a second call.
    pub fn used(&self, word: u64, folios: u64) -> Result<u64> {
        let mut idle = [0; 8];
        if self.bitmap.read_at(&mut idle, word * 8).map_err(Error::io("reading", &self.path))? < idle.len() {
            return Ok(0);
        }
        let used = folios & !u64::from_ne_bytes(idle);
        if used != 0 {
            self.bitmap.write_all_at(&used.to_ne_bytes(), word * 8).map_err(Error::io("writing", &self.path))?;
        }
        Ok(used)
    }

    fn flags_of(&self, first: u64, count: u64) -> Vec<u64> {
        let mut bytes = vec![0; count as usize * 8];
        let read = self.flags.read_at(&mut bytes, first * 8).unwrap_or(0);
        bytes[..read].chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default())).collect()
    }
}

/// The frame of a virtual page, if it is resident and visible to us.
pub fn frame(pagemap: &File, page: u64) -> Option<u64> {
    let mut entry = [0; 8];
    pagemap.read_exact_at(&mut entry, page * 8).ok()?;
    let entry = u64::from_ne_bytes(entry);
    let frame = entry & ((1 << 55) - 1);
    (entry >> 63 == 1 && frame != 0).then_some(frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A bitmap and flags as the kernel gives them, in ordinary files.
    fn physical(flags: &[u64]) -> (tempfile::TempDir, Physical) {
        let dir = tempfile::tempdir().unwrap();
        let (bitmap, file) = (dir.path().join("bitmap"), dir.path().join("kpageflags"));
        fs::write(&bitmap, [0; 256]).unwrap();
        fs::write(&file, flags.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>()).unwrap();
        let physical = Physical::open(&bitmap, &file).unwrap();
        (dir, physical)
    }

    /// Regression: the tails of huge pages have no bit of their own, and looked used whenever they were asked for.
    #[test]
    fn the_bit_of_a_huge_page_is_that_of_its_first_frame() {
        let mut flags = vec![ON_LRU; 8];
        flags.push(ON_LRU | HEAD);
        flags.extend(vec![TAIL; 511]);
        flags.extend([ON_LRU, HEAD, TAIL, 0]);
        let (_dir, mut physical) = physical(&flags);
        assert_eq!(physical.folio(3), Some(3));
        assert_eq!(physical.folio(8), Some(8));
        assert_eq!(physical.folio(9), Some(8));
        assert_eq!(physical.folio(519), Some(8));
        assert_eq!(physical.folio(520), Some(520));
        assert_eq!(physical.folio(522), None, "of a folio on no list");
        assert_eq!(physical.folio(523), None, "on no list");
        assert_eq!(physical.folio(600), None, "beyond the end of memory");
    }

    #[test]
    fn what_was_used_is_marked_idle_again() {
        let (dir, physical) = physical(&[ON_LRU; 200]);
        assert_eq!(physical.used(1, 0b1010).unwrap(), 0b1010);
        assert_eq!(physical.used(1, 0b1010).unwrap(), 0);
        assert_eq!(fs::read(dir.path().join("bitmap")).unwrap()[8..16], 0b1010u64.to_ne_bytes());
        // The kernel takes a bit away when the page is used. Writing a bit leaves the others of its word alone there, and
        // not in this file.
        fs::write(dir.path().join("bitmap"), [0; 256]).unwrap();
        assert_eq!(physical.used(1, 0b0010).unwrap(), 0b0010);
        // Regression: a page in the last, partial word of memory ended the sampler.
        assert_eq!(physical.used(1 << 20, 1).unwrap(), 0);
    }
}
