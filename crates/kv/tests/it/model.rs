//! Runs a sequence of operations on a store and on a map, and compares the two after each.

use crate::world::{Fault, Map, Random, World};
use ullage_kv::{Batch, Canary, Error, Kv, Options, Store};

/// Bytes of each log file: a few records, so that the files are switched often.
pub const LOG_BYTES: usize = 24 << 10;

#[derive(Clone, Debug)]
pub enum Op {
    /// Keys and values: a length of none removes the key.
    Commit(Vec<(u8, Option<u16>)>),
    Sync,
    /// Writes the log without a flush.
    WriteOut,
    /// Writes the log, and has the device flushed from outside.
    FlushedOutside,
    Checkpoint,
    /// Closes and opens.
    Reopen,
    /// Cuts the power now.
    Cut(u64),
    /// Lets the power go some calls later.
    CutLater(u32),
    /// Looks with a prefix and a start.
    Scan(Vec<u8>, Vec<u8>),
    Snapshot,
}

pub fn key(n: u8) -> Vec<u8> {
    match n % 4 {
        0 => vec![b'a', n],
        1 => vec![b'a', 0xff, n],
        2 => vec![0xff, 0xff, n],
        _ => vec![b'b', b'x', n],
    }
}

pub fn scan(store: &Store, prefix: &[u8], from: &[u8]) -> Map {
    let mut found = Map::new();
    let mut last: Option<Vec<u8>> = None;
    store
        .scan(prefix, from, &mut |key, value| {
            assert!(last.as_deref().is_none_or(|last| last < key), "out of order");
            last = Some(key.to_vec());
            found.insert(key.to_vec(), value.to_vec());
            true
        })
        .unwrap();
    found
}

pub struct Model {
    pub world: World,
    store: Option<Store>,
    options: Options,
    /// The content after each commit.
    pub states: Vec<Map>,
    synced: usize,
    stamp: u64,
}

impl Model {
    pub fn new(canary: Option<Canary>) -> Self {
        let world = World::new(LOG_BYTES);
        let options = Options { interval: None, canary, ..Options::default() };
        let store = Store::open_on(world.engine(), world.media(), 7, options).unwrap();
        Self { world, store: Some(store), options, states: vec![Map::new()], synced: 0, stamp: 0 }
    }

    pub fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    /// Commits; the map only follows when the store took it.
    pub fn commit(&mut self, changes: &[(u8, Option<u16>)]) -> Result<(), Error> {
        let mut state = self.states.last().unwrap().clone();
        let mut batch = Batch::new();
        for (n, len) in changes {
            let key = key(*n);
            match len {
                None => {
                    state.remove(&key);
                    batch.del(key);
                }
                Some(len) => {
                    self.stamp += 1;
                    let mut value = vec![*n; usize::from(*len)];
                    value.extend_from_slice(&self.stamp.to_le_bytes());
                    if state.insert(key.clone(), value.clone()).is_none() {
                        batch.put_new(key, value);
                    } else {
                        batch.put(key, value);
                    }
                }
            }
        }
        let seq = self.store().commit(batch)?;
        self.states.push(state);
        assert_eq!(seq.0 as usize, self.states.len() - 1);
        Ok(())
    }

    pub fn sync(&mut self) -> Result<(), Error> {
        let newest = self.store().newest();
        self.store().sync(newest)?;
        self.synced = newest.0 as usize;
        Ok(())
    }

    pub fn flushed_outside(&mut self) -> Result<(), Error> {
        let newest = self.store().newest();
        let written = self.store().write_out(newest)?;
        assert!(written >= newest);
        match self.world.flush() {
            Ok(()) => {
                self.store().flushed(written)?;
                assert!(self.store().durable() >= written);
                self.synced = newest.0 as usize;
                Ok(())
            }
            // That may have been for another reason than the log's, whose own flush tells, if there is anything to flush.
            Err(error) => {
                self.sync()?;
                if self.world.is_off() { Err(Error::Engine(error.to_string())) } else { Ok(()) }
            }
        }
    }

    /// Power goes, comes back, and the store is opened again.
    pub fn crash(&mut self, random: &mut Random) -> Result<(), String> {
        self.world.power_off();
        drop(self.store.take());
        self.world.power_on(random);
        // Power may go again while the store is being opened, several times.
        while random.below(3) == 0 {
            self.world.arm(random.below(12) as u32, Fault::Power);
            drop(Store::open_on(self.world.engine(), self.world.media(), 7, self.options));
            self.world.power_off();
            self.world.power_on(random);
        }
        self.world.disarm();
        self.reopen()
    }

    /// Opens again and checks that exactly a prefix is there, with all that was synced.
    fn reopen(&mut self) -> Result<(), String> {
        let opened = Store::open_on(self.world.engine(), self.world.media(), 7, self.options);
        let store = opened.map_err(|e| format!("does not open: {e}"))?;
        let found = scan(&store, b"", b"");
        let newest = store.newest().0 as usize;
        self.store = Some(store);
        if self.states.get(newest) != Some(&found) {
            return Err(format!("commit {newest} is said to be the newest, but its content is not there"));
        }
        if !self.states[self.synced..].contains(&found) {
            return Err(format!("commit {} was synced and is lost: the newest is {newest}", self.synced));
        }
        self.states.truncate(newest + 1);
        self.synced = newest;
        Ok(())
    }

    pub fn check(&self, prefix: &[u8], from: &[u8]) -> Result<(), String> {
        let mut expected = self.states.last().unwrap().clone();
        expected.retain(|key, _| key.starts_with(prefix) && key.as_slice() >= from);
        if scan(self.store(), prefix, from) != expected {
            return Err(format!("a scan of {prefix:?} from {from:?} differs"));
        }
        for n in 0..=40 {
            let key = key(n);
            if self.store().get(&key).map_err(|e| e.to_string())?.as_ref() != self.states.last().unwrap().get(&key) {
                return Err(format!("a get of {key:?} differs"));
            }
        }
        Ok(())
    }

    fn snapshot(&self) -> Result<(), String> {
        let mut bytes = Vec::new();
        let cut = self.store().snapshot_to(&mut bytes).map_err(|e| e.to_string())?;
        let world = World::new(LOG_BYTES);
        let copy = Store::open_on(world.engine(), world.media(), 8, self.options).map_err(|e| e.to_string())?;
        let restored = copy.restore_from(&mut bytes.as_slice()).map_err(|e| e.to_string())?;
        if restored != cut || scan(&copy, b"", b"") != *self.states.last().unwrap() {
            return Err("a restored snapshot differs".to_owned());
        }
        Ok(())
    }
}

/// Runs the operations; what is wrong, if anything.
pub fn run(ops: &[Op], canary: Option<Canary>) -> Result<(), String> {
    let mut model = Model::new(canary);
    let mut random = Random(ops.len() as u64);
    for op in ops {
        let done = match op {
            Op::Commit(changes) => model.commit(changes),
            Op::Sync => model.sync(),
            Op::WriteOut => model.store().write_out(ullage_kv::Seq(u64::MAX)).map(|_| ()),
            Op::FlushedOutside => model.flushed_outside(),
            Op::Checkpoint => model.store().checkpoint(),
            Op::Reopen if !model.world.armed() => {
                model.store.take().unwrap().close().map_err(|e| e.to_string())?;
                model.synced = model.states.len() - 1;
                model.reopen()?;
                Ok(())
            }
            Op::Cut(seed) => {
                random = Random(*seed);
                model.crash(&mut random)?;
                Ok(())
            }
            Op::CutLater(calls) => {
                model.world.arm(*calls, Fault::Power);
                Ok(())
            }
            Op::Scan(prefix, from) => {
                model.check(prefix, from)?;
                Ok(())
            }
            Op::Snapshot if !model.world.armed() => {
                model.snapshot()?;
                Ok(())
            }
            Op::Reopen | Op::Snapshot => Ok(()),
        };
        if done.is_err() {
            model.check(b"", b"")?;
            model.crash(&mut random)?;
        }
        model.check(b"", b"")?;
    }
    model.crash(&mut random)
}
