//! A machine whose power can be cut: two log media and an engine that know what was made durable.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use ullage_kv::{Change, Engine, Error, Medium, Seq, Visit};

/// What a disk writes at once.
const SECTOR: usize = 512;

pub type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// A small random generator: the same numbers for the same seed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call fails.
    Errno(i32),
    /// A write writes only this many bytes; other calls work.
    Short(usize),
    /// The power goes during the call.
    Power,
}

#[derive(Default)]
struct Disk {
    durable: Vec<u8>,
    unflushed: Vec<(usize, Vec<u8>)>,
}

#[derive(Default)]
struct Inner {
    disks: [Disk; 2],
    durable: Map,
    durable_seq: Seq,
    map: Map,
    seq: Seq,
    /// Batches applied since the engine was last made durable.
    loose: Vec<(Vec<Change>, Seq)>,
    off: bool,
    /// Calls until the fault.
    fault: Option<(u32, Fault)>,
}

/// The machine; clones are the same one.
#[derive(Clone, Default)]
pub struct World(Arc<Mutex<Inner>>);

impl World {
    pub fn new(log_bytes: usize) -> Self {
        let world = Self::default();
        for disk in &mut world.lock().disks {
            disk.durable = vec![0; log_bytes];
        }
        world
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    pub fn engine(&self) -> Box<dyn Engine> {
        Box::new(self.clone())
    }

    pub fn media(&self) -> [Box<dyn Medium>; 2] {
        [0, 1].map(|disk| Box::new(Drive { world: self.clone(), disk }) as Box<dyn Medium>)
    }

    /// Lets the call after `calls` more meet a fault.
    pub fn arm(&self, calls: u32, fault: Fault) {
        self.lock().fault = Some((calls, fault));
    }

    pub fn armed(&self) -> bool {
        self.lock().fault.is_some()
    }

    pub fn disarm(&self) {
        self.lock().fault = None;
    }

    /// Nothing is accepted from now on.
    pub fn power_off(&self) {
        self.lock().off = true;
    }

    /// Whether power is off.
    #[allow(dead_code, reason = "the catalog's tests use this file too")]
    pub fn is_off(&self) -> bool {
        self.lock().off
    }

    /// Power comes back: of what was not flushed, any sectors may have arrived, and any prefix of the batches
    /// that the engine held loosely.
    pub fn power_on(&self, random: &mut Random) {
        let mut inner = self.lock();
        for disk in &mut inner.disks {
            let keep_all = random.below(4) == 0;
            for (offset, bytes) in std::mem::take(&mut disk.unflushed) {
                for (n, sector) in bytes.chunks(SECTOR).enumerate() {
                    if keep_all || random.below(2) == 0 {
                        let at = offset + n * SECTOR;
                        disk.durable[at..at + sector.len()].copy_from_slice(sector);
                    }
                }
            }
        }
        let loose = std::mem::take(&mut inner.loose);
        let kept = random.below(loose.len() + 1);
        for (changes, seq) in loose.into_iter().take(kept) {
            apply(&mut inner.durable, &changes);
            inner.durable_seq = seq;
        }
        inner.map = inner.durable.clone();
        inner.seq = inner.durable_seq;
        inner.off = false;
        inner.fault = None;
    }

    /// Flushes both disks, from outside the store.
    #[allow(dead_code, reason = "the catalog's tests use this file too")]
    pub fn flush(&self) -> io::Result<()> {
        (0..2).try_for_each(|disk| Drive { world: self.clone(), disk }.sync())
    }

    /// Flips one bit of a log file.
    pub fn flip(&self, disk: usize, byte: usize, bit: u32) {
        self.lock().disks[disk].durable[byte] ^= 1 << bit;
    }

    /// Wipes the start of a log file.
    pub fn wipe(&self, disk: usize, bytes: usize) {
        self.lock().disks[disk].durable[..bytes].fill(0);
    }

    /// Counts a call; an error when it meets one, else how much it may write.
    fn step(inner: &mut Inner) -> io::Result<usize> {
        if inner.off {
            return Err(io::Error::from_raw_os_error(5));
        }
        let Some((calls, fault)) = inner.fault else { return Ok(usize::MAX) };
        if calls > 0 {
            inner.fault = Some((calls - 1, fault));
            return Ok(usize::MAX);
        }
        inner.fault = None;
        match fault {
            Fault::Errno(errno) => Err(io::Error::from_raw_os_error(errno)),
            Fault::Short(bytes) => Ok(bytes),
            Fault::Power => {
                inner.off = true;
                Ok(usize::MAX)
            }
        }
    }
}

fn apply(map: &mut Map, changes: &[Change]) {
    for change in changes {
        match &change.value {
            Some(value) => map.insert(change.key.clone(), value.clone()),
            None => map.remove(&change.key),
        };
    }
}

struct Drive {
    world: World,
    disk: usize,
}

impl Medium for Drive {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        assert!(bytes.len().is_multiple_of(4096) && offset.is_multiple_of(4096));
        assert_eq!(bytes.as_ptr().align_offset(4096), 0);
        let mut inner = self.world.lock();
        let n = World::step(&mut inner)?.min(bytes.len());
        let disk = &mut inner.disks[self.disk];
        assert!(offset as usize + n <= disk.durable.len());
        disk.unflushed.push((offset as usize, bytes[..n].to_vec()));
        if inner.off { Err(io::Error::from_raw_os_error(5)) } else { Ok(n) }
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut inner = self.world.lock();
        let limit = World::step(&mut inner)?;
        let disk = &inner.disks[self.disk];
        assert!(disk.unflushed.is_empty(), "the log is read only after a start");
        let from = (offset as usize).min(disk.durable.len());
        let n = into.len().min(disk.durable.len() - from).min(limit);
        into[..n].copy_from_slice(&disk.durable[from..from + n]);
        Ok(n)
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut inner = self.world.lock();
        World::step(&mut inner)?;
        if inner.off {
            return Err(io::Error::from_raw_os_error(5));
        }
        let disk = &mut inner.disks[self.disk];
        for (offset, bytes) in std::mem::take(&mut disk.unflushed) {
            disk.durable[offset..offset + bytes.len()].copy_from_slice(&bytes);
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.world.lock().disks[self.disk].durable.len() as u64)
    }
}

fn failed(e: io::Error) -> Error {
    Error::Engine(e.to_string())
}

impl Engine for World {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.lock().map.get(key).cloned())
    }

    fn scan(&self, prefix: &[u8], from: &[u8], visit: &mut Visit<'_>) -> Result<(), Error> {
        let inner = self.lock();
        let start = from.max(prefix).to_vec();
        for (key, value) in inner.map.range(start..).take_while(|(key, _)| key.starts_with(prefix)) {
            if !visit(key, value) {
                break;
            }
        }
        Ok(())
    }

    fn apply(&self, changes: &[Change], applied: Seq) -> Result<(), Error> {
        let mut inner = self.lock();
        World::step(&mut inner).map_err(failed)?;
        apply(&mut inner.map, changes);
        inner.seq = applied;
        inner.loose.push((changes.to_vec(), applied));
        Ok(())
    }

    fn persist(&self) -> Result<(), Error> {
        let mut inner = self.lock();
        World::step(&mut inner).map_err(failed)?;
        if inner.off {
            return Err(Error::Engine("power went".to_owned()));
        }
        inner.loose.clear();
        inner.durable = inner.map.clone();
        inner.durable_seq = inner.seq;
        Ok(())
    }

    fn applied(&self) -> Result<Seq, Error> {
        Ok(self.lock().seq)
    }
}
