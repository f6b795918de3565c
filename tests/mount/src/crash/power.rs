//! One power cut: images of the disks, frozen at one moment under load, mounted as copies.
//!
//! The images lie on a file system that can copy a file in an instant (reflink), so that a copy is what a disk held at one
//! moment, with the order of all writes kept; or, of disks with a cache, what was flushed and any part of what was not ([`super::cache`]).
//! Catalog and pool may be on two disks that lose power one after the other.
//! Promises are held still while the images are frozen: whatever was promised before must be there.

use super::cache::CachingDisk;
use super::promise::Promise;
use super::round::newcomers;
use super::verify::verify_cut;
use super::workload::{Load, Worker, directories};
use crate::ground::Ground;
use crate::run::program;
use crate::space::Space;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;
use ullage_posix_tests::random::Random;

/// File system of the disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// With a journal.
    Ext4,
    /// With a journal that all data goes through as well.
    Ext4Data,
    /// Always has one.
    Xfs,
}

/// What becomes of writes that are not flushed when the power goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// Each is on the disk when it returns.
    Ordered,
    /// Any part of those since the last flush is lost.
    Cached,
    /// The same, and flushes do nothing: must be noticed.
    Lying,
}

/// One disk: its image, and where that is mounted.
#[derive(Debug)]
struct Disk {
    image: PathBuf,
    mounted: PathBuf,
    cache: Option<CachingDisk>,
}

/// A space on one or two disks that can be frozen.
#[derive(Debug)]
pub struct Machine {
    /// The space, up.
    pub space: Space,
    disks: Vec<Disk>,
    kind: Kind,
}

impl Machine {
    /// A new machine with catalog and pool on one disk, or on two.
    pub fn new(kind: Kind, two: bool, writes: Writes, flags: &[&str]) -> Self {
        Self::made(kind, two, writes, flags, false)
    }

    /// The same with two pools, one of which is being emptied in each cut.
    pub fn draining(kind: Kind, two: bool, writes: Writes, flags: &[&str]) -> Self {
        Self::made(kind, two, writes, flags, true)
    }

    fn made(kind: Kind, two: bool, writes: Writes, flags: &[&str], drains: bool) -> Self {
        let mut ground = Ground::new();
        let outer = ground.image("outer", 4096, "mkfs.xfs", &["-q", "-m", "reflink=1"], "loop");
        let mut disks = Vec::new();
        for name in if two { &["one", "two"][..] } else { &["one"] } {
            let image = outer.join(name);
            File::create(&image).and_then(|file| file.set_len(512 << 20)).expect("an image can be made");
            let path = image.to_str().expect("it is text");
            match kind {
                Kind::Ext4 | Kind::Ext4Data => program("mkfs.ext4", ["-q", "-F", path]).ok(),
                Kind::Xfs => program("mkfs.xfs", ["-q", path]).ok(),
            };
            if kind == Kind::Ext4Data {
                program("tune2fs", ["-o", "journal_data", path]).ok();
            }
            let cache = (writes != Writes::Ordered).then(|| CachingDisk::new(&mut ground, &image));
            let below = cache.as_ref().map_or(&*image, CachingDisk::device).to_owned();
            let mounted = ground.mount_image(name, &below);
            disks.push(Disk { image, mounted, cache });
        }
        let mut space = Space::on(ground, &disks[disks.len() - 1].mounted);
        space.state = disks[0].mounted.join("state");
        space.flags = ["--linger-ms", "100"].iter().chain(flags).map(Into::into).collect();
        if drains {
            space.add_beside();
        }
        space.up();
        if writes == Writes::Lying {
            for disk in &disks {
                program("sync", ["-f".as_ref(), disk.mounted.as_os_str()]).ok();
                disk.cache.iter().for_each(CachingDisk::lie);
            }
        }
        Self { space, disks, kind }
    }

    /// Works, freezes the disks at a moment that the seed chooses (`between` them, the second loses power later, or
    /// earlier), and brings a copy up. Gives what was found wrong and how many files were promised. With `lying` the copy is
    /// of a moment before the last promises, as of a disk that calls durable what is not: that must be noticed.
    #[track_caller]
    pub fn cut(&mut self, seed: u64, between: Duration, lying: bool) -> (Vec<String>, usize) {
        self.space.limit(Duration::from_secs(90));
        let mut random = Random::new(seed);
        let mut load = Load::new(&self.space);
        load.apart = self.disks.len() > 1;
        let directories = directories(&self.space.mount);
        for (dir, _) in &directories {
            fs::create_dir(dir).expect("the space is up");
        }
        self.space.sync();
        let backwards = random.below(2) == 0;
        let promises = std::thread::scope(|scope| {
            for (dir, kind) in &directories {
                let worker = Worker::new(&load, dir.clone(), random.bits());
                scope.spawn(move || worker.run(*kind));
            }
            std::thread::sleep(Duration::from_millis(150 + random.below(700)));
            self.space.drain_a_while(seed, &mut random);
            if lying {
                self.freeze(backwards, between, &mut random);
                std::thread::sleep(Duration::from_millis(400));
            }
            let promises = load.promises.lock();
            if !lying {
                self.freeze(backwards, between, &mut random);
            }
            let promised = promises.clone();
            drop(promises);
            load.stop.store(true, Ordering::Relaxed);
            load.end.store(true, Ordering::Relaxed);
            promised
        });
        let wrong = match self.copy() {
            Ok(copy) => examine(&copy, &promises, lying),
            Err(why) => vec![format!("its disk cannot be read: {why}")],
        };
        for disk in &self.disks {
            fs::remove_file(frozen(&disk.image)).expect("the copy was made");
        }
        for (dir, _) in &directories {
            fs::remove_dir_all(dir).expect("the space is up");
        }
        self.space.keep_pools();
        (wrong, promises.values().filter(|promise| !promise.names.is_empty()).count())
    }

    /// What is there, and up again, after the power went now.
    #[track_caller]
    pub fn after_a_cut(&self) -> Space {
        self.freeze(false, Duration::ZERO, &mut Random::new(1));
        let copy = self.copy().expect("the disks can be read");
        copy.up();
        // What is mounted keeps it.
        self.disks.iter().for_each(|disk| fs::remove_file(frozen(&disk.image)).expect("the copy was made"));
        copy
    }

    /// What the first disk holds where a file on it lies, for [`Machine::put_back`].
    #[track_caller]
    pub fn kept(&self, file: &Path) -> Vec<(u64, Vec<u8>)> {
        let image = File::open(&self.disks[0].image).expect("it is there");
        let extents = ullage_extents::extents(&File::open(file).expect("it is there"), 0..u64::MAX >> 1);
        let read = |place: Range<u64>| {
            let mut bytes = vec![0; (place.end - place.start) as usize];
            image.read_exact_at(&mut bytes, place.start).expect("it can be read");
            (place.start, bytes)
        };
        extents.expect("it has a map").iter().map(|extent| read(extent.place())).collect()
    }

    /// Leaves the first disk as if it had refused what was written there since, and the kernel had taken that for written.
    pub fn put_back(&self, kept: &[(u64, Vec<u8>)]) {
        let image = File::options().write(true).open(&self.disks[0].image).expect("it is there");
        for (at, bytes) in kept {
            image.write_all_at(bytes, *at).expect("it can be written");
        }
    }

    /// Copies every image in an instant, one after the other.
    fn freeze(&self, backwards: bool, between: Duration, random: &mut Random) {
        let mut disks: Vec<&Disk> = self.disks.iter().collect();
        if backwards {
            disks.reverse();
        }
        for (at, disk) in disks.into_iter().enumerate() {
            if at > 0 {
                std::thread::sleep(between);
            }
            if let Some(cache) = &disk.cache {
                cache.lose(&frozen(&disk.image), random);
                continue;
            }
            let from = File::open(&disk.image).expect("it is there");
            let to = File::create_new(frozen(&disk.image)).expect("a copy can be made");
            rustix::fs::ioctl_ficlone(&to, &from).expect("the file system below has reflinks");
        }
    }

    /// The space on the frozen images, not yet up.
    fn copy(&self) -> Result<Space, String> {
        let mut ground = Ground::new();
        let options = if self.kind == Kind::Xfs { "loop,nouuid" } else { "loop" };
        let mut mounted = Vec::new();
        for (at, disk) in self.disks.iter().enumerate() {
            mounted.push(ground.try_mount(&format!("copy-{at}"), &frozen(&disk.image), options)?);
        }
        let state = mounted[0].join("state");
        let settings = state.join("space.toml");
        let mut text = fs::read_to_string(&settings).map_err(|error| error.to_string())?;
        for (disk, copy) in self.disks.iter().zip(&mounted) {
            text = text.replace(&*disk.mounted.to_string_lossy(), &copy.to_string_lossy());
        }
        fs::write(&settings, text).map_err(|error| error.to_string())?;
        // A disk that lied may hold directories that cannot be read.
        for pool in &self.space.pools {
            let name = if pool.starts_with("main=") { "pool" } else { "beside" };
            fs::create_dir_all(mounted[mounted.len() - 1].join(name)).map_err(|error| error.to_string())?;
        }
        // Where the disk of the state is gone first, nobody counts a turn in the pools any more, which comes after.
        let turns = |at: &Path| fs::read_to_string(at).ok().and_then(|text| text.trim().parse::<u64>().ok());
        let counted = turns(&state.join("turns")).unwrap_or(0);
        for name in ["pool", "beside"] {
            let there = mounted[mounted.len() - 1].join(name).join(".ullage-turns");
            if turns(&there).is_some_and(|count| count > counted) {
                fs::write(&there, counted.to_string()).map_err(|error| error.to_string())?;
            }
        }
        let mut space = Space::on(ground, &mounted[mounted.len() - 1]);
        space.state = state;
        space.flags = self.space.flags.clone();
        Ok(space)
    }
}

/// Brings a copy up and looks for what is wrong with it.
fn examine(copy: &Space, promises: &BTreeMap<u64, Promise>, lying: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    let outcome = copy.try_up();
    if outcome.code == Some(0) {
        wrong.extend(verify_cut(&copy.mount, promises));
        if !lying {
            wrong.extend(newcomers(copy));
            copy.compare_du(&copy.mount);
            copy.compare_pools();
            copy.down_and_check();
        }
    } else {
        wrong.push(format!("it does not come up by itself: {}", outcome.err));
    }
    if !wrong.is_empty() && !lying {
        wrong.push(format!("the copy's log:\n{}", copy.log()));
    }
    wrong
}

fn frozen(image: &Path) -> PathBuf {
    image.with_extension("frozen")
}
