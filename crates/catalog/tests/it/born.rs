//! Files whose numbers are guessed while they are being made: by who reads the record as soon as it can be read.

use crate::bed::at;
use crate::memory::{Map, MemoryKv};
use crate::named::new;
use std::sync::{Arc, Mutex};
use ullage_catalog::{Catalog, Error, Inode, New};
use ullage_types::{FileId, Kind};

/// Who guesses: the number, whether the commit is to fail, and what was found.
#[derive(Default)]
struct Guess {
    file: Option<FileId>,
    fails: bool,
    found: Option<Arc<Inode>>,
}

fn guessed() -> (Arc<Catalog>, Arc<Mutex<Guess>>) {
    let kv = Arc::new(MemoryKv::new(Map::new()));
    let catalog = Catalog::open(kv.clone(), 0, 0, at(0)).unwrap();
    let guess = Arc::new(Mutex::new(Guess::default()));
    let (weak, shared) = (Arc::downgrade(&catalog), guess.clone());
    let witness = move || {
        let mut guess = shared.lock().unwrap();
        let (Some(file), Some(catalog)) = (guess.file.take(), weak.upgrade()) else { return Ok(()) };
        guess.found = Some(catalog.get(file).unwrap());
        if guess.fails { Err(ullage_kv::Error::Engine("no more".into())) } else { Ok(()) }
    };
    assert!(kv.witness.set(Box::new(witness)).is_ok());
    (catalog, guess)
}

/// Every way to make a file.
fn ways(catalog: &Catalog, mut check: impl FnMut(New, &dyn Fn(New) -> Result<Option<Arc<Inode>>, Error>)) {
    let root = catalog.root();
    for kind in [Kind::Regular, Kind::Directory, Kind::Symlink, Kind::Fifo] {
        let name = format!("{kind:?}");
        let make = |new: New| catalog.create(root, name.as_bytes(), new, at(1)).map(Some);
        check(new(catalog, kind), &make);
    }
    let unnamed = |new: New| catalog.create_unnamed(root, new, at(1)).map(Some);
    check(new(catalog, Kind::Regular), &unnamed);
    let whiteout =
        |new: New| catalog.rename_leaving((root, b"Fifo"), (root, b"moved"), false, Some(&new), at(2)).map(|_| None);
    check(new(catalog, Kind::CharDevice), &whiteout);
}

/// It was in memory twice, which ended the process; a directory seemed to be damaged.
#[test]
fn who_guesses_the_number_of_a_file_that_is_being_made_finds_the_one_that_is_made() {
    let (catalog, guess) = guessed();
    ways(&catalog, |new, make| {
        guess.lock().unwrap().file = Some(new.id);
        let made = make(new.clone()).unwrap();
        let found = guess.lock().unwrap().found.take().unwrap();
        assert!(Arc::ptr_eq(&found, &made.unwrap_or_else(|| catalog.get(new.id).unwrap())));
        assert!(!found.lock().is_removed());
    });
}

#[test]
fn who_guesses_the_number_of_a_file_that_cannot_be_made_finds_it_removed() {
    let (catalog, guess) = guessed();
    ways(&catalog, |new, make| {
        *guess.lock().unwrap() = Guess { file: Some(new.id), fails: true, found: None };
        assert!(matches!(make(new.clone()), Err(Error::Kv(_))));
        let found = guess.lock().unwrap().found.take().unwrap();
        assert!(found.lock().is_removed() && found.lock().record.nlink == 0);
        assert!(matches!(catalog.get(new.id), Err(Error::NotFound)));
        // Its number goes to the next one, which the old one does not stand in the way of.
        guess.lock().unwrap().fails = false;
        make(new.clone()).unwrap();
        assert!(!Arc::ptr_eq(&found, &catalog.get(new.id).unwrap()));
        catalog.sync().unwrap();
    });
}
