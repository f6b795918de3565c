//! The load: each worker has a directory of its own and goes on, with what it has open, after the daemon is dead.

use super::cell::{BLOCK, block};
use super::promise::Promises;
use crate::map::Map;
use crate::space::Space;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use ullage_posix_tests::random::Random;

/// What all workers share.
#[derive(Debug, Default)]
pub struct Load {
    /// What is promised.
    pub promises: Promises,
    tags: AtomicU64,
    stamps: AtomicU64,
    /// No more new work: what is open goes on being written.
    pub stop: AtomicBool,
    /// Everything is let go.
    pub end: AtomicBool,
    /// The disks are frozen one after the other while the machine goes on: what it removes in between, since the first one
    /// says that the removal is durable, is gone from the second copy only. No real disk answers after it lost power, so a
    /// file that is being replaced is promised neither old nor new then.
    pub apart: bool,
    /// Calls may fail while the daemon lives: who meets that begins another file.
    pub goes_on: bool,
    /// Files are mapped too. Only with passthrough: without it the first store after the kill would end this process.
    maps: bool,
}

impl Load {
    /// Before anything was done. With mapped files where data moves in the kernel: in what a killed server serves, touching
    /// one more page ends whoever has it mapped.
    pub fn new(space: &Space) -> Self {
        let maps = !space.flags.iter().any(|flag| flag == "--no-passthrough" || flag == "--size");
        Self { maps, ..Self::default() }
    }

    /// Before calls of the daemon fail. Without mapped files: the store that it cannot serve would end this process.
    pub fn of_failures() -> Self {
        Self { goes_on: true, ..Self::default() }
    }

    pub(super) fn tag(&self) -> u64 {
        self.tags.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn stamp(&self) -> u64 {
        self.stamps.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// One worker of a kind, in its directory, until the first call fails or it is told to stop; then what it has open
/// is written on to until the end.
pub struct Worker<'a> {
    pub load: &'a Load,
    pub dir: PathBuf,
    pub random: Random,
    held: Vec<(u64, File)>,
    maps: Vec<(u64, Map)>,
}

impl<'a> Worker<'a> {
    pub fn new(load: &'a Load, dir: PathBuf, seed: u64) -> Self {
        Self { load, dir, random: Random::new(seed), held: Vec::new(), maps: Vec::new() }
    }

    /// Works.
    pub fn run(mut self, kind: usize) {
        while !self.load.stop.load(Ordering::Relaxed) {
            let done = match kind {
                0 => self.fsync_one(),
                1 => self.hold_one(),
                _ => self.shuffle_one(),
            };
            match done {
                Ok(()) => {}
                Err(_) if self.load.goes_on => std::thread::sleep(Duration::from_millis(1)),
                // The daemon is dead.
                Err(_) => break,
            }
        }
        while !self.load.end.load(Ordering::Relaxed) {
            self.write_on();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(super) fn fill(&mut self, file: &File, tag: u64, blocks: u64) -> io::Result<Vec<u64>> {
        let mut stamps = Vec::new();
        for number in 0..blocks {
            let stamp = self.load.stamp();
            file.write_all_at(&block(tag, number, stamp), number * BLOCK as u64)?;
            stamps.push(stamp);
        }
        Ok(stamps)
    }

    pub(super) fn create(&self, name: &str) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create_new(true).open(self.path(name))
    }

    pub(super) fn sync_dir(&self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
    }

    /// The life of a file of which every step is made durable and then promised.
    fn fsync_one(&mut self) -> io::Result<()> {
        let tag = self.load.tag();
        let name = format!("s-{tag}");
        let file = self.create(&name)?;
        let blocks = 1 + self.random.below(6);
        let stamps = self.fill(&file, tag, blocks)?;
        file.sync_all()?;
        if self.random.below(2) == 0 {
            // Its name is durable with it.
            self.sync_dir()?;
        }
        self.load.promises.change(tag, |p| (p.names, p.stamps) = (vec![name.clone()], stamps));
        match self.random.below(12) {
            0 => {
                let stamps = self.fill(&file, tag, blocks + 2)?;
                file.sync_data()?;
                self.load.promises.change(tag, |p| p.stamps = stamps);
            }
            1 => {
                let new = format!("s-{tag}-renamed");
                self.load.promises.change(tag, |p| p.names.push(new.clone()));
                fs::rename(self.path(&name), self.path(&new))?;
                self.make_durable(&file, &new)?;
                self.load.promises.change(tag, |p| (p.names, p.gone) = (vec![new], vec![name]));
            }
            2 => {
                self.load.promises.change(tag, |p| p.names.clear());
                fs::remove_file(self.path(&name))?;
                if self.random.below(2) == 0 {
                    self.sync_dir()?;
                } else {
                    file.sync_all()?;
                }
                self.load.promises.change(tag, |p| p.gone = vec![name]);
            }
            3 => {
                let link = format!("s-{tag}-link");
                fs::hard_link(self.path(&name), self.path(&link))?;
                self.make_durable(&file, &link)?;
                self.load.promises.change(tag, |p| p.names = vec![link.clone()]);
                fs::remove_file(self.path(&name))?;
            }
            4 => {
                // The way editors save: another file of the same tag takes the name.
                let part = format!("s-{tag}-part");
                let other = self.create(&part)?;
                let stamps = self.fill(&other, tag, blocks)?;
                other.sync_all()?;
                if self.load.apart {
                    self.load.promises.change(tag, |p| p.names.clear());
                }
                fs::rename(self.path(&part), self.path(&name))?;
                self.make_durable(&other, &name)?;
                self.load.promises.change(tag, |p| (p.names, p.stamps) = (vec![name], stamps));
            }
            5 => self.held.push((tag, file)),
            6 => self.name_late()?,
            _ => self.live_on(tag, &name, &file, blocks)?,
        }
        self.held.drain(..self.held.len().saturating_sub(20));
        Ok(())
    }

    /// A file that stays open or mapped, also without a name.
    fn hold_one(&mut self) -> io::Result<()> {
        let tag = self.load.tag();
        let mapped = self.random.below(3) == 0 && self.load.maps;
        let name = format!("{}-{tag}", if mapped { "m" } else { "w" });
        let file = self.create(&name)?;
        self.fill(&file, tag, 4)?;
        if self.random.below(3) == 0 {
            fs::remove_file(self.path(&name))?;
        }
        if self.random.below(8) == 0 {
            file.sync_all()?;
        }
        if mapped {
            self.maps.push((tag, Map::new(&file, 4 * BLOCK)?));
        } else {
            self.held.push((tag, file));
        }
        self.held.drain(..self.held.len().saturating_sub(40));
        self.maps.drain(..self.maps.len().saturating_sub(40));
        self.write_on();
        Ok(())
    }

    /// Creates, links, renames, deletes: nothing durable.
    fn shuffle_one(&mut self) -> io::Result<()> {
        let tag = self.load.tag();
        let first = self.path(&format!("w-{tag}"));
        let file = self.create(&format!("w-{tag}"))?;
        let blocks = self.random.below(4);
        self.fill(&file, tag, blocks)?;
        drop(file);
        let second = self.path(&format!("w-{tag}-b"));
        match self.random.below(5) {
            0 => fs::rename(&first, &second)?,
            1 => fs::hard_link(&first, &second)?,
            2 => fs::remove_file(&first)?,
            3 => {
                let dir = self.path(&format!("d-{tag}"));
                fs::create_dir(&dir)?;
                fs::rename(&first, dir.join(format!("w-{tag}")))?;
                if self.random.below(2) == 0 {
                    fs::rename(&dir, self.path(&format!("e-{tag}")))?;
                }
            }
            _ => OpenOptions::new().write(true).open(&first)?.set_len(self.random.below(3) * BLOCK as u64)?,
        }
        Ok(())
    }

    /// Writes on to everything that is still open, whatever became of its file.
    fn write_on(&mut self) {
        if !self.held.is_empty() {
            let (tag, file) = &self.held[self.random.below(self.held.len() as u64) as usize];
            let number = self.random.below(6);
            // Without passthrough, and with its daemon dead, it fails.
            let _ = file.write_all_at(&block(*tag, number, self.load.stamp()), number * BLOCK as u64);
        }
        if !self.maps.is_empty() {
            let at = self.random.below(self.maps.len() as u64) as usize;
            let (tag, map) = &mut self.maps[at];
            let number = self.random.below(4);
            map.write(number as usize * BLOCK, &block(*tag, number, self.load.stamp()));
        }
    }
}

/// The directories of the workers, and which kind works in each.
pub fn directories(mount: &Path) -> Vec<(PathBuf, usize)> {
    (0..4).map(|n| (mount.join(format!("worker-{n}")), [0, 1, 2, 0][n])).collect()
}
