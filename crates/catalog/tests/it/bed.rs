//! Where a catalog under test lives: in memory, on disk, or on a machine whose power can be cut.

use crate::world::{Random, World};
use std::sync::Arc;
use tempfile::TempDir;
use ullage_catalog::Catalog;
use ullage_kv::{EngineKind, Error, Kv, Options, Store};
use ullage_types::Timestamp;

const LOG_BYTES: usize = 128 << 10;

pub enum Place {
    Memory(TempDir),
    Disk(TempDir),
    Machine(World),
}

pub struct Bed {
    place: Place,
    store: Option<Arc<Store>>,
    catalog: Option<Arc<Catalog>>,
}

pub fn at(seconds: i64) -> Timestamp {
    Timestamp { seconds, nanoseconds: 5 }
}

impl Bed {
    pub fn memory() -> Self {
        Self::new(Place::Memory(tempfile::tempdir_in("/dev/shm").unwrap()))
    }

    pub fn disk() -> Self {
        Self::new(Place::Disk(tempfile::tempdir_in("/dev/shm").unwrap()))
    }

    pub fn machine() -> Self {
        Self::new(Place::Machine(World::new(LOG_BYTES)))
    }

    fn new(place: Place) -> Self {
        let mut bed = Self { place, store: None, catalog: None };
        bed.open();
        bed
    }

    fn open(&mut self) {
        let options = Options { interval: None, log_bytes: LOG_BYTES as u64, ..Options::default() };
        let store = match &self.place {
            Place::Memory(dir) => Store::open(dir.path(), EngineKind::Memory, options),
            Place::Disk(dir) => Store::open(dir.path(), EngineKind::Fjall, options),
            Place::Machine(world) => Store::open_on(world.engine(), world.media(), 7, options),
        };
        let store = Arc::new(store.unwrap());
        self.catalog = Some(Catalog::open(store.clone(), 0, 0, at(0)).unwrap());
        self.store = Some(store);
    }

    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.clone().unwrap()
    }

    pub fn kv(&self) -> &dyn Kv {
        &**self.store.as_ref().unwrap()
    }

    pub fn world(&self) -> Option<&World> {
        if let Place::Machine(world) = &self.place { Some(world) } else { None }
    }

    pub fn survives(&self) -> bool {
        !matches!(self.place, Place::Memory(_))
    }

    pub fn checkpoint(&self) -> Result<(), Error> {
        self.store.as_ref().unwrap().checkpoint()
    }

    /// Nothing may be held of the catalog any more.
    fn stop(&mut self) -> Store {
        drop(self.catalog.take());
        Arc::into_inner(self.store.take().unwrap()).expect("nothing but the catalog holds the store")
    }

    pub fn reopen(&mut self) {
        self.stop().close().unwrap();
        self.open();
    }

    /// The power goes and comes back.
    pub fn cut(&mut self, random: &mut Random) {
        let world = self.world().expect("only a machine loses power").clone();
        world.power_off();
        drop(self.stop());
        world.power_on(random);
        self.open();
    }
}
