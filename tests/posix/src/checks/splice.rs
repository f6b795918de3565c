//! sendfile(2) and splice(2), into and out of files.

use crate::check::*;
use crate::sys;

checks!("splice": sendfile_between_files, splice_through_a_pipe, sendfile_to_socket);

fn sendfile_between_files(p: &Place) -> Outcome {
    let data: Vec<u8> = (0..200_000_usize).map(|index| ((index * 13) >> 4) as u8).collect();
    let from = sys::open(p.file("a", &data)?, libc::O_RDONLY, 0)?;
    let to = sys::open(p.file("b", b"")?, libc::O_RDWR, 0)?;
    let mut done = 0;
    while done < data.len() {
        let sent = sys::sendfile(&to, &from, done as i64, data.len() - done)?;
        ensure(sent > 0, "sending goes on until the end")?;
        done += sent;
    }
    ensure(content(p.at("b"))? == data, "what arrives is what was sent")?;
    equal(sys::fstat(&to)?.st_size as usize, data.len())
}

fn splice_through_a_pipe(p: &Place) -> Outcome {
    let from = sys::open(p.file("a", &[b's'; 30_000])?, libc::O_RDONLY, 0)?;
    let to = sys::open(p.file("b", b"")?, libc::O_RDWR, 0)?;
    let (reader, writer) = sys::pipe()?;
    loop {
        let taken = sys::splice(&from, &writer, 8192)?;
        if taken == 0 {
            break;
        }
        let mut given = 0;
        while given < taken {
            given += sys::splice(&reader, &to, taken - given)?;
        }
    }
    ensure(content(p.at("b"))? == vec![b's'; 30_000], "what arrives is what was sent")?;
    equal(sys::fstat(&to)?.st_size, 30_000)
}

fn sendfile_to_socket(p: &Place) -> Outcome {
    use std::io::Read;
    let from = sys::open(p.file("a", &[b'n'; 10_000])?, libc::O_RDONLY, 0)?;
    let (mut reader, writer) = std::os::unix::net::UnixStream::pair()?;
    equal(sys::sendfile(&writer, &from, 0, 10_000)?, 10_000)?;
    drop(writer);
    let mut got = Vec::new();
    reader.read_to_end(&mut got)?;
    ensure(got == vec![b'n'; 10_000], "what arrives is what was sent")
}
