//! O_DIRECT.

use crate::check::*;
use crate::{map::Map, sys};

checks!("direct": write_then_cached_read, cached_write_then_read, beside_mapping);

/// A buffer at an address that every device accepts.
struct Aligned(Vec<u8>, usize);

impl Aligned {
    fn new(size: usize, byte: u8) -> Self {
        let buffer = vec![byte; size + 4096];
        let offset = buffer.as_ptr().align_offset(4096);
        Self(buffer, offset)
    }

    fn bytes(&mut self) -> &mut [u8] {
        let (offset, size) = (self.1, self.0.len() - 4096);
        &mut self.0[offset..offset + size]
    }
}

fn open(p: &Place) -> Result<std::os::fd::OwnedFd, Failure> {
    match sys::open(p.at("f"), libc::O_CREAT | libc::O_RDWR | libc::O_DIRECT, 0o644) {
        Err(sys::Errno(libc::EINVAL)) => Err(Failure::Skipped("O_DIRECT is not supported".to_owned())),
        other => Ok(other?),
    }
}

fn write_then_cached_read(p: &Place) -> Outcome {
    let direct = open(p)?;
    let mut data = Aligned::new(16_384, b'd');
    equal(sys::pwrite(&direct, data.bytes(), 0)?, 16_384)?;
    ensure(content(p.at("f"))? == vec![b'd'; 16_384], "the cache shows what was written directly")?;
    data.bytes().fill(b'e');
    equal(sys::pwrite(&direct, &data.bytes()[..4096], 4096)?, 4096)?;
    let got = content(p.at("f"))?;
    ensure(got[4096..8192].iter().all(|&byte| byte == b'e'), "the cache was dropped where it was overwritten")
}

fn cached_write_then_read(p: &Place) -> Outcome {
    let direct = open(p)?;
    let cached = sys::open(p.at("f"), libc::O_RDWR, 0)?;
    let mut buffer = Aligned::new(8192, 0);
    for round in 1..20_u8 {
        sys::pwrite(&cached, &vec![round; 8192], 0)?;
        equal(sys::pread(&direct, buffer.bytes(), 0)?, 8192)?;
        ensure(buffer.bytes().iter().all(|&byte| byte == round), "a direct read sees the last cached write")?;
    }
    Ok(())
}

fn beside_mapping(p: &Place) -> Outcome {
    let direct = open(p)?;
    let mut data = Aligned::new(8192, b'1');
    sys::pwrite(&direct, data.bytes(), 0)?;
    let mut map = Map::new(&direct, 8192, true, true)?;
    map.set(100, b"mapped");
    map.sync()?;
    equal(sys::pread(&direct, data.bytes(), 0)?, 8192)?;
    equal(&data.bytes()[99..107], b"1mapped1")
}
