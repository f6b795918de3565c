//! Shared mappings beside read(2) and write(2).

use crate::check::*;
use crate::{map::Map, sys};

checks!("map": store_seen_by_read, store_seen_by_seek, write_seen_by_map, two_mappings, last_page_is_zero_past_the_end, after_growth,
    private_does_not_write_back, needs_right_descriptor, truncated_and_grown_again, between_processes);

fn store_seen_by_read(p: &Place) -> Outcome {
    let fd = sys::open(p.file("f", &[b'.'; 20_000])?, libc::O_RDWR, 0)?;
    let mut map = Map::new(&fd, 20_000, true, true)?;
    for at in [0, 100, 4095, 4096, 12_345, 19_995] {
        map.set(at, b"store");
        let mut buffer = [0; 5];
        equal(sys::pread(&fd, &mut buffer, at as i64)?, 5)?;
        equal(&buffer, b"store")?;
    }
    map.sync()?;
    drop(map);
    equal(&content(p.at("f"))?[12_344..12_351], b".store.")
}

/// Who copies a file without its holes goes by that.
fn store_seen_by_seek(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    let fd = sys::open(&file, libc::O_RDWR, 0)?;
    sys::ftruncate(&fd, 1 << 20)?;
    let mut map = Map::new(&fd, 1 << 20, true, true)?;
    let reader = sys::open(&file, libc::O_RDONLY, 0)?;
    for at in [500_000, 100_000, 900_000] {
        map.set(at, b"store");
        let start = sys::lseek(&reader, 0, libc::SEEK_DATA)?;
        let end = sys::lseek(&reader, start, libc::SEEK_HOLE)?;
        ensure(start <= at.min(500_000) as i64 && end > start, "what was stored is data")?;
        let start = sys::lseek(&reader, at as i64, libc::SEEK_DATA)?;
        let end = sys::lseek(&reader, at as i64, libc::SEEK_HOLE)?;
        ensure(start == at as i64 && end > start, "each store is data")?;
    }
    Ok(())
}

fn write_seen_by_map(p: &Place) -> Outcome {
    let fd = sys::open(p.file("f", &[b'.'; 20_000])?, libc::O_RDWR, 0)?;
    let map = Map::new(&fd, 20_000, false, true)?;
    for at in [0, 100, 4094, 8192, 19_995] {
        equal(map.get(at, 5), b".....".to_vec())?;
        sys::pwrite(&fd, b"write", at as i64)?;
        equal(map.get(at, 5), b"write".to_vec())?;
        sys::pwrite(&fd, b".....", at as i64)?;
    }
    Ok(())
}

fn two_mappings(p: &Place) -> Outcome {
    let file = p.file("f", &[0; 8192])?;
    let (a, b) = (sys::open(&file, libc::O_RDWR, 0)?, sys::open(&file, libc::O_RDWR, 0)?);
    let (mut one, mut other) = (Map::new(&a, 8192, true, true)?, Map::new(&b, 8192, true, true)?);
    one.set(4090, b"across pages");
    equal(other.get(4090, 12), b"across pages".to_vec())?;
    other.set(0, b"back");
    equal(one.get(0, 4), b"back".to_vec())
}

fn last_page_is_zero_past_the_end(p: &Place) -> Outcome {
    let fd = sys::open(p.file("f", b"short")?, libc::O_RDWR, 0)?;
    let mut map = Map::new(&fd, 4096, true, true)?;
    ensure(map.get(5, 4091).iter().all(|&byte| byte == 0), "zeros follow the end")?;
    map.set(2000, b"lost");
    map.sync()?;
    drop(map);
    equal(content(p.at("f"))?, b"short".to_vec())?;
    sys::ftruncate(&fd, 4096)?;
    ensure(content(p.at("f"))?[5..].iter().all(|&byte| byte == 0), "what was stored past the end is not the file's")
}

fn after_growth(p: &Place) -> Outcome {
    let fd = sys::open(p.file("f", b"")?, libc::O_RDWR, 0)?;
    sys::ftruncate(&fd, 100_000)?;
    let mut map = Map::new(&fd, 100_000, true, true)?;
    map.set(99_990, b"in a hole!");
    map.sync()?;
    drop(map);
    let got = content(p.at("f"))?;
    equal(&got[99_990..], b"in a hole!")?;
    ensure(got[..99_990].iter().all(|&byte| byte == 0), "the rest is zeros")?;
    ensure(sys::fstat(&fd)?.st_blocks > 0, "the store took space")
}

fn private_does_not_write_back(p: &Place) -> Outcome {
    let fd = sys::open(p.file("f", b"original")?, libc::O_RDONLY, 0)?;
    let mut map = Map::new(&fd, 8, true, false)?;
    map.set(0, b"changed!");
    equal(map.get(0, 8), b"changed!".to_vec())?;
    equal(content(p.at("f"))?, b"original".to_vec())
}

fn needs_right_descriptor(p: &Place) -> Outcome {
    let file = p.file("f", b"abc")?;
    let (reader, writer) = (sys::open(&file, libc::O_RDONLY, 0)?, sys::open(&file, libc::O_WRONLY, 0)?);
    refused(Map::new(&reader, 3, true, true).map(drop), libc::EACCES)?;
    refused(Map::new(&writer, 3, false, true).map(drop), libc::EACCES)
}

fn truncated_and_grown_again(p: &Place) -> Outcome {
    let fd = sys::open(p.file("f", &[b'x'; 16_384])?, libc::O_RDWR, 0)?;
    let mut map = Map::new(&fd, 16_384, true, true)?;
    equal(map.get(10_000, 1), b"x".to_vec())?;
    sys::ftruncate(&fd, 5000)?;
    sys::ftruncate(&fd, 16_384)?;
    equal(map.get(4999, 2), b"x\0".to_vec())?;
    equal(map.get(10_000, 1), b"\0".to_vec())?;
    map.set(10_000, b"y");
    let mut buffer = [0; 1];
    sys::pread(&fd, &mut buffer, 10_000)?;
    equal(&buffer, b"y")
}

fn between_processes(p: &Place) -> Outcome {
    let fd = sys::open(p.file("f", &[0; 4096])?, libc::O_RDWR, 0)?;
    let map = Map::new(&fd, 4096, true, true)?;
    let code = sys::in_child(|| {
        let other = sys::open(p.at("f"), libc::O_RDWR, 0).and_then(|fd| Map::new(&fd, 4096, true, true));
        other.map_or(1, |mut map| {
            map.set(7, b"from the child");
            0
        })
    })?;
    equal(code, 0)?;
    equal(map.get(7, 14), b"from the child".to_vec())
}
