//! truncate(2), ftruncate(2).

use crate::check::*;
use crate::sys;

checks!("truncate": one_time, shrinks_and_grows_with_zeros, refusals, needs_write_permission, descriptor_must_write,
    no_old_data_after_growth, while_open_elsewhere, busy_program);

fn shrinks_and_grows_with_zeros(p: &Place) -> Outcome {
    let file = p.file("f", b"0123456789")?;
    sys::truncate(&file, 4)?;
    equal(content(&file)?, b"0123".to_vec())?;
    sys::truncate(&file, 8)?;
    equal(content(&file)?, b"0123\0\0\0\0".to_vec())?;
    let fd = sys::open(&file, libc::O_RDWR, 0)?;
    sys::ftruncate(&fd, 1_000_000)?;
    equal(sys::fstat(&fd)?.st_size, 1_000_000)?;
    sys::ftruncate(&fd, 0)?;
    equal((sys::fstat(&fd)?.st_size, sys::fstat(&fd)?.st_blocks), (0, 0))
}

fn refusals(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    refused(sys::truncate(&file, -1), libc::EINVAL)?;
    refused(sys::truncate(p.dir("d", 0o755)?, 0), libc::EISDIR)?;
    refused(sys::truncate(p.make("fifo", Kind::Fifo)?, 0), libc::EINVAL)?;
    refused(sys::truncate(p.at("missing"), 0), libc::ENOENT)?;
    refused_any(sys::truncate(&file, i64::MAX), &[libc::EFBIG, libc::EINVAL])
}

fn needs_write_permission(p: &Place) -> Outcome {
    let file = p.file("f", b"abc")?;
    sys::chown(&file, ALICE.uid, ALICE.gid)?;
    as_user(BOB, || refused(sys::truncate(&file, 0), libc::EACCES))?;
    as_user(ALICE, || Ok(sys::truncate(&file, 1)?))?;
    sys::chmod(&file, 0o444)?;
    as_user(ALICE, || refused(sys::truncate(&file, 0), libc::EACCES))?;
    equal(sys::lstat(&file)?.st_size, 1)
}

fn descriptor_must_write(p: &Place) -> Outcome {
    let file = p.file("f", b"abc")?;
    refused_any(sys::ftruncate(&sys::open(&file, libc::O_RDONLY, 0)?, 0), &[libc::EINVAL, libc::EBADF])?;
    // An open descriptor keeps its right when the mode no longer gives it.
    sys::chown(&file, ALICE.uid, ALICE.gid)?;
    as_user(ALICE, || {
        let fd = sys::open(&file, libc::O_RDWR, 0)?;
        sys::chmod(&file, 0)?;
        sys::ftruncate(&fd, 1)?;
        equal(sys::fstat(&fd)?.st_size, 1)
    })
}

fn no_old_data_after_growth(p: &Place) -> Outcome {
    let file = p.file("f", &[b'x'; 20_000])?;
    for (cut, grow) in [(5000, 20_000), (4096, 9000), (1, 4097), (0, 100)] {
        sys::truncate(&file, cut)?;
        sys::truncate(&file, grow)?;
        let got = content(&file)?;
        equal(got.len() as i64, grow)?;
        ensure(got[cut as usize..].iter().all(|&byte| byte == 0), "what was cut off reads as zeros")?;
    }
    Ok(())
}

fn while_open_elsewhere(p: &Place) -> Outcome {
    let file = p.file("f", b"0123456789")?;
    let (reader, writer) = (sys::open(&file, libc::O_RDONLY, 0)?, sys::open(&file, libc::O_RDWR, 0)?);
    let mut buffer = [0; 20];
    equal(sys::pread(&reader, &mut buffer, 0)?, 10)?;
    sys::truncate(&file, 3)?;
    equal(sys::pread(&reader, &mut buffer, 0)?, 3)?;
    equal((sys::fstat(&reader)?.st_size, sys::fstat(&writer)?.st_size), (3, 3))?;
    sys::pwrite(&writer, b"z", 5)?;
    equal(sys::pread(&reader, &mut buffer, 0)?, 6)?;
    equal(&buffer[..6], b"012\0\0z")
}

fn busy_program(p: &Place) -> Outcome {
    std::fs::copy("/bin/sleep", p.at("sleep"))?;
    sys::chmod(p.at("sleep"), 0o755)?;
    let mut child = std::process::Command::new(p.at("sleep")).arg("20").spawn()?;
    let outcome = refused(sys::open(p.at("sleep"), libc::O_WRONLY, 0), libc::ETXTBSY)
        .and_then(|()| refused(sys::truncate(p.at("sleep"), 0), libc::ETXTBSY))
        .and_then(|()| refused(sys::open(p.at("sleep"), libc::O_RDONLY | libc::O_TRUNC, 0), libc::ETXTBSY));
    child.kill()?;
    child.wait()?;
    outcome?;
    // And the other way round: what is open for writing cannot be run.
    let _writer = sys::open(p.at("sleep"), libc::O_WRONLY, 0)?;
    let error = std::process::Command::new(p.at("sleep")).arg("0").status();
    equal(error.err().and_then(|error| error.raw_os_error()), Some(libc::ETXTBSY))
}

fn one_time(p: &Place) -> Outcome {
    let file = p.file("f", b"0123456789")?;
    let fd = sys::open(&file, libc::O_RDWR, 0)?;
    let has_one = || {
        let stat = sys::lstat(&file)?;
        equal((stat.st_ctime, stat.st_ctime_nsec), (stat.st_mtime, stat.st_mtime_nsec))
    };
    for size in [5, 0, 100_000] {
        sys::truncate(&file, size)?;
        has_one()?;
        sys::ftruncate(&fd, size + 7)?;
        has_one()?;
    }
    drop(sys::open(&file, libc::O_WRONLY | libc::O_TRUNC, 0)?);
    has_one()
}
