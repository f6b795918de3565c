//! readdir(3) and its positions, while the directory changes too.

use crate::check::*;
use crate::directory::{Dirent, Stream, names};
use crate::sys;
use std::collections::BTreeSet;

checks!("listing": dots_and_types, inode_numbers, seek_and_tell, rewind_sees_changes, ten_thousand_entries,
    deletes_during_listing, creates_during_listing, two_streams, renames_during_listing, fresh_after_each_change,
    renamed_once_met, made_again_once_met, one_more_for_each_met, exchanged_once_met);

fn fill(p: &Place, count: usize) -> Outcome {
    for number in 0..count {
        sys::mknod(p.at(format!("entry-{number:05}")), libc::S_IFREG | 0o644, 0)?;
    }
    Ok(())
}

fn shown(stream: &mut Stream) -> Vec<Vec<u8>> {
    stream.map(|entry| entry.name).filter(|name| name != b"." && name != b"..").collect()
}

fn dots_and_types(p: &Place) -> Outcome {
    let kinds = [
        (Kind::Regular, libc::DT_REG),
        (Kind::Directory, libc::DT_DIR),
        (Kind::Fifo, libc::DT_FIFO),
        (Kind::Socket, libc::DT_SOCK),
        (Kind::Char, libc::DT_CHR),
        (Kind::Block, libc::DT_BLK),
        (Kind::Symlink, libc::DT_LNK),
    ];
    for (kind, _) in kinds {
        p.make(&format!("{kind:?}"), kind)?;
    }
    let entries: Vec<Dirent> = Stream::open(&p.0)?.collect();
    equal(entries.len(), kinds.len() + 2)?;
    let find = |name: &str| entries.iter().find(|entry| entry.name == name.as_bytes());
    for (kind, expected) in kinds {
        equal(find(&format!("{kind:?}")).map(|entry| entry.kind), Some(expected))?;
    }
    equal(find(".").map(|entry| (entry.kind, entry.ino)), Some((libc::DT_DIR, sys::stat(&p.0)?.st_ino)))?;
    equal(find("..").map(|entry| entry.kind), Some(libc::DT_DIR))
}

fn inode_numbers(p: &Place) -> Outcome {
    fill(p, 100)?;
    for entry in Stream::open(&p.0)?.filter(|entry| !entry.name.starts_with(b".")) {
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        equal(sys::lstat(p.at(name))?.st_ino, entry.ino)?;
    }
    Ok(())
}

fn seek_and_tell(p: &Place) -> Outcome {
    fill(p, 1000)?;
    let mut stream = Stream::open(&p.0)?;
    let mut positions = Vec::new();
    loop {
        let position = stream.position();
        let Some(entry) = stream.next() else { break };
        positions.push((position, entry.name));
    }
    equal(positions.len(), 1002)?;
    for (position, name) in positions.iter().step_by(37).rev() {
        stream.seek(*position);
        equal(stream.next().map(|entry| entry.name), Some(name.clone()))?;
    }
    Ok(())
}

fn rewind_sees_changes(p: &Place) -> Outcome {
    fill(p, 50)?;
    let mut stream = Stream::open(&p.0)?;
    equal(shown(&mut stream).len(), 50)?;
    p.file("new", b"")?;
    sys::unlink(p.at("entry-00007"))?;
    stream.rewind();
    let again = shown(&mut stream);
    ensure(again.contains(&b"new".to_vec()), "the new name is shown")?;
    ensure(!again.contains(&b"entry-00007".to_vec()), "the old one is not")?;
    equal(again.len(), 50)
}

fn ten_thousand_entries(p: &Place) -> Outcome {
    fill(p, 10_000)?;
    for _ in 0..2 {
        let got: BTreeSet<_> = names(&p.0)?.into_iter().collect();
        equal(got.len(), 10_000)?;
        equal(names(&p.0)?.len(), 10_000)?;
    }
    Ok(())
}

fn deletes_during_listing(p: &Place) -> Outcome {
    fill(p, 10_000)?;
    let mut stream = Stream::open(&p.0)?;
    let mut seen = BTreeSet::new();
    while let Some(entry) = stream.next() {
        if entry.name.starts_with(b".") {
            continue;
        }
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        ensure(seen.insert(entry.name), &format!("{name} is shown once"))?;
        // As `rm -r` does: each entry goes while the listing is under way.
        sys::unlink(p.at(name))?;
    }
    equal(seen.len(), 10_000)?;
    equal(names(&p.0)?, vec![])
}

fn creates_during_listing(p: &Place) -> Outcome {
    fill(p, 3000)?;
    let mut stream = Stream::open(&p.0)?;
    let mut seen = Vec::new();
    let mut made = 0;
    while let Some(entry) = stream.next() {
        if entry.name.starts_with(b"entry-") {
            seen.push(entry.name);
        }
        if made < 3000 {
            p.file(&format!("new-{made}"), b"")?;
            made += 1;
        }
    }
    // What was there all the time is shown, each once; what came meanwhile may be shown or not.
    let unique: BTreeSet<_> = seen.iter().collect();
    equal((seen.len(), unique.len()), (3000, 3000))
}

fn renames_during_listing(p: &Place) -> Outcome {
    fill(p, 2000)?;
    let mut stream = Stream::open(&p.0)?;
    let mut seen = Vec::new();
    let mut number = 0;
    while let Some(entry) = stream.next() {
        if number < 1000 {
            sys::rename(p.at(format!("entry-{number:05}")), p.at(format!("moved-{number:05}")))?;
            number += 1;
        }
        seen.push(entry.name);
    }
    let stayed = seen.iter().filter(|name| &name[..] >= b"entry-01000" && name.starts_with(b"entry-"));
    let unique: BTreeSet<_> = stayed.clone().collect();
    equal((stayed.count(), unique.len()), (1000, 1000))
}

/// Does something for each entry that is met, and says how many were; more than four times as many as there were are too many.
fn for_each_met(p: &Place, count: usize, mut work: impl FnMut(usize, &str) -> sys::Sys<()>) -> Result<usize, Failure> {
    fill(p, count)?;
    let mut met = 0;
    for entry in Stream::open(&p.0)?.filter(|entry| !entry.name.starts_with(b".")) {
        met += 1;
        if met > 4 * count + 100 {
            ensure(false, &format!("{met} entries met where {count} were made: it does not end"))?;
        }
        work(met, &String::from_utf8_lossy(&entry.name))?;
    }
    Ok(met)
}

/// Sizes that take one read(2) of the kernel, and many.
const SIZES: [usize; 3] = [3, 300, 3000];

fn in_each_size(p: &Place, work: impl Fn(&Place, usize, &str) -> sys::Sys<()>) -> Outcome {
    for count in SIZES {
        let place = Place(p.at(format!("{count}")));
        sys::mkdir(&place.0, 0o755)?;
        let met = for_each_met(&place, count, |met, name| work(&place, met, name))?;
        ensure(met >= count, "all that was there is met")?;
    }
    Ok(())
}

fn renamed_once_met(p: &Place) -> Outcome {
    in_each_size(p, |p, met, name| sys::rename(p.at(name), p.at(format!("renamed-{met}"))))
}

fn made_again_once_met(p: &Place) -> Outcome {
    in_each_size(p, |p, _, name| {
        sys::unlink(p.at(name))?;
        sys::mknod(p.at(name), libc::S_IFREG | 0o644, 0)
    })
}

fn one_more_for_each_met(p: &Place) -> Outcome {
    in_each_size(p, |p, met, _| sys::mknod(p.at(format!("more-{met}")), libc::S_IFREG | 0o644, 0))
}

fn exchanged_once_met(p: &Place) -> Outcome {
    in_each_size(p, |p, _, name| {
        sys::rename(p.at(name), p.at("aside"))?;
        sys::rename(p.at("aside"), p.at(name))
    })
}

fn two_streams(p: &Place) -> Outcome {
    fill(p, 500)?;
    let (mut one, mut other) = (Stream::open(&p.0)?, Stream::open(&p.0)?);
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for _ in 0..100 {
        a.extend(one.next());
        b.extend(other.next());
        b.extend(other.next());
    }
    a.extend(one);
    b.extend(other);
    a.sort();
    b.sort();
    equal(a.len(), 502)?;
    ensure(a == b, "two streams show the same")
}

fn fresh_after_each_change(p: &Place) -> Outcome {
    // Listing, change, listing: no cache may hide the change.
    let mut expected = BTreeSet::new();
    for number in 0..60 {
        let name = format!("n{number}");
        p.file(&name, b"")?;
        expected.insert(name.into_bytes());
        if number % 3 == 2 {
            sys::unlink(p.at(format!("n{}", number - 1)))?;
            expected.remove(format!("n{}", number - 1).as_bytes());
            sys::rename(p.at(format!("n{}", number - 2)), p.at(format!("r{number}")))?;
            expected.remove(format!("n{}", number - 2).as_bytes());
            expected.insert(format!("r{number}").into_bytes());
        }
        equal(names(&p.0)?, expected.iter().cloned().collect())?;
    }
    Ok(())
}
