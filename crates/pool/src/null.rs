//! The `null` pool: no data at all, for measuring what everything else costs (COFS §4.2).

use crate::{
    Abilities, Access, Binding, Description, Error, Fresh, Hint, Locator, Numbers, Pool, Suspect, Usage, Wait,
};
use std::fs::{File, OpenOptions};
use std::sync::Arc;
use ullage_types::Bytes;

/// What an empty machine's pool could hold: the space's arithmetic needs a number.
const ROOM: Bytes = Bytes(1 << 50);

/// A pool that keeps nothing. Every file is `/dev/null`; see [`Pool::discards`].
pub struct NullPool {
    numbers: Arc<dyn Numbers>,
    null: Arc<File>,
}

impl NullPool {
    /// A pool with numbers from the catalog.
    pub fn new(numbers: Arc<dyn Numbers>) -> Result<Self, Error> {
        Ok(Self { numbers, null: Arc::new(open_null()?) })
    }
}

fn open_null() -> Result<File, Error> {
    OpenOptions::new().read(true).write(true).open("/dev/null").map_err(Error::io("open", "/dev/null"))
}

impl Pool for NullPool {
    fn create(&self, _: Hint) -> Result<Fresh, Error> {
        let (file, generation) = self.numbers.next();
        let binding = Binding { file, generation, locator: Locator(Box::default()) };
        Ok(Fresh { binding, file: Arc::clone(&self.null), prepared: None })
    }

    fn abandon(&self, _: Fresh) {}

    fn open_waiting(&self, _: &Binding, _: Access, _: Wait) -> Result<File, Error> {
        self.null.try_clone().map_err(Error::io("open", "/dev/null"))
    }

    fn release(&self, _: Binding) {}

    fn usage(&self) -> Result<Usage, Error> {
        Ok(Usage { total: ROOM, free: ROOM, inodes_total: 0, inodes_free: 0, block: Bytes(4096) })
    }

    fn suspects(&self, _: &[u8], _: &mut dyn FnMut(Suspect)) -> Result<(), Error> {
        Ok(())
    }

    fn recreate(&self, binding: &Binding) -> Result<File, Error> {
        self.open(binding, Access::Write)
    }

    fn discards(&self) -> bool {
        true
    }

    fn describe(&self) -> Description {
        Description {
            kind: "null",
            layout: None,
            path: None,
            fs_type: None,
            unit: 0,
            extents: false,
            abilities: Abilities::default(),
            notes: vec!["keeps no data: every read gives zeros".to_owned()],
        }
    }

    fn sync(&self) -> Result<(), Error> {
        Ok(())
    }

    fn close(&self) -> Result<(), Error> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::sync::atomic::{AtomicU64, Ordering};
    use ullage_types::{FileId, Generation};

    struct Counter(AtomicU64);

    impl Numbers for Counter {
        fn next(&self) -> (FileId, Generation) {
            let number = self.0.fetch_add(1, Ordering::Relaxed);
            (FileId(number), Generation(number))
        }
    }

    #[test]
    fn files_have_numbers_and_no_data() {
        let pool = NullPool::new(Arc::new(Counter(AtomicU64::new(5)))).unwrap();
        let hint = Hint { parent: FileId(1), pid: 1 };
        let [one, two] = [pool.create(hint).unwrap(), pool.create(hint).unwrap()];
        assert_ne!(one.binding, two.binding);
        pool.open(&one.binding, Access::Write).unwrap().write_all(b"lost").unwrap();
        let mut read = Vec::new();
        pool.open(&one.binding, Access::Read).unwrap().read_to_end(&mut read).unwrap();
        assert!(read.is_empty() && pool.discards());
        pool.release(one.binding);
        pool.abandon(two);
        pool.close().unwrap();
    }
}
