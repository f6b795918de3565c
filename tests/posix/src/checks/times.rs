//! Which times each call sets, on the file and on its directory.

use super::atime::moved;
use crate::check::*;
use crate::sys::{self, Stat};
use std::path::Path;

checks!("times": creation_marks_directory, removal_marks_directory, rename_marks_both_directories_and_file,
    link_marks_file, write_marks_file, empty_write_does_not, truncate_marks_file, chmod_and_chown_mark_ctime_only,
    refusals_mark_nothing, xattr_marks_ctime, read_marks_atime, read_marks_atime_that_was_set_again, new_file_has_equal_times, close_to_the_clock,
    map_marks_file, directory_read_keeps_mtime, order_is_that_of_changes, touch_gives_one_time);

type Times = [(i64, i64); 3];

fn times(stat: &Stat) -> Times {
    [(stat.st_atime, stat.st_atime_nsec), (stat.st_mtime, stat.st_mtime_nsec), (stat.st_ctime, stat.st_ctime_nsec)]
}

/// The clock of file times ticks every few milliseconds.
fn wait() {
    std::thread::sleep(std::time::Duration::from_millis(12));
}

/// Which of mtime and ctime the action advances on each path; `m`, `c`, both, or neither.
#[track_caller]
fn marks(watched: &[(&Path, &str)], action: impl FnOnce() -> Outcome) -> Outcome {
    let before = watched.iter().map(|(path, _)| sys::lstat(path)).collect::<Result<Vec<_>, _>>()?;
    wait();
    action()?;
    for ((path, expected), before) in watched.iter().zip(before) {
        let after = times(&sys::lstat(path)?);
        let before = times(&before);
        let mut got = String::new();
        for (index, letter) in [(1, 'm'), (2, 'c')] {
            if after[index] > before[index] {
                got.push(letter);
            } else if after[index] < before[index] {
                got.push('?');
            }
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        equal((name.clone(), got), (name, (*expected).to_owned()))?;
    }
    Ok(())
}

fn creation_marks_directory(p: &Place) -> Outcome {
    let d = p.dir("d", 0o755)?;
    let f = p.file("f", b"")?;
    marks(&[(&d, "mc")], || Ok(p.file("d/f", b"").map(drop)?))?;
    marks(&[(&d, "mc")], || Ok(sys::mkdir(d.join("e"), 0o755)?))?;
    marks(&[(&d, "mc")], || Ok(sys::mknod(d.join("p"), libc::S_IFIFO | 0o600, 0)?))?;
    marks(&[(&d, "mc")], || Ok(sys::symlink("x", d.join("l"))?))?;
    marks(&[(&d, "mc")], || Ok(sys::link(&f, d.join("h"))?))?;
    // Opening an existing file creates nothing.
    marks(&[(&d, "")], || Ok(sys::open(d.join("f"), libc::O_CREAT | libc::O_RDWR, 0o644).map(drop)?))
}

fn removal_marks_directory(p: &Place) -> Outcome {
    let d = p.dir("d", 0o755)?;
    let f = p.file("d/f", b"")?;
    sys::link(&f, p.at("other"))?;
    sys::mkdir(d.join("e"), 0o755)?;
    marks(&[(&d, "mc"), (&p.at("other"), "c")], || Ok(sys::unlink(&f)?))?;
    marks(&[(&d, "mc")], || Ok(sys::rmdir(d.join("e"))?))
}

fn rename_marks_both_directories_and_file(p: &Place) -> Outcome {
    let (a, b) = (p.dir("a", 0o755)?, p.dir("b", 0o755)?);
    p.file("a/f", b"")?;
    marks(&[(&a, "mc"), (&b, "mc")], || Ok(sys::rename(a.join("f"), b.join("f"))?))?;
    marks(&[(&a, ""), (&b, "mc")], || Ok(sys::rename(b.join("f"), b.join("g"))?))?;
    let before = times(&sys::lstat(b.join("g"))?);
    wait();
    sys::rename(b.join("g"), a.join("g"))?;
    let after = times(&sys::lstat(a.join("g"))?);
    equal(after[1], before[1])?;
    ensure(after[2] > before[2], "rename advances the file's ctime")?;
    // The file that is replaced, still held by another name, loses one: its ctime advances.
    let over = p.file("b/over", b"")?;
    sys::link(&over, p.at("kept"))?;
    marks(&[(&p.at("kept"), "c")], || Ok(sys::rename(a.join("g"), &over)?))
}

fn link_marks_file(p: &Place) -> Outcome {
    let f = p.file("f", b"")?;
    marks(&[(&f, "c")], || Ok(sys::link(&f, p.at("g"))?))
}

fn write_marks_file(p: &Place) -> Outcome {
    let d = p.dir("d", 0o755)?;
    let f = p.file("d/f", b"")?;
    let fd = sys::open(&f, libc::O_WRONLY, 0)?;
    marks(&[(&f, "mc"), (&d, "")], || Ok(write_all(&fd, b"x")?))?;
    marks(&[(&f, "mc")], || Ok(sys::pwrite(&fd, b"y", 100).map(drop)?))?;
    let append = sys::open(&f, libc::O_WRONLY | libc::O_APPEND, 0)?;
    marks(&[(&f, "mc")], || Ok(write_all(&append, b"x")?))
}

fn empty_write_does_not(p: &Place) -> Outcome {
    let f = p.file("f", b"abc")?;
    let fd = sys::open(&f, libc::O_WRONLY, 0)?;
    marks(&[(&f, "")], || Ok(sys::write(&fd, b"").map(drop)?))?;
    marks(&[(&f, "")], || Ok(sys::fsync(&fd).map(drop)?))
}

fn truncate_marks_file(p: &Place) -> Outcome {
    let f = p.file("f", b"abc")?;
    let fd = sys::open(&f, libc::O_WRONLY, 0)?;
    marks(&[(&f, "mc")], || Ok(sys::truncate(&f, 1)?))?;
    marks(&[(&f, "mc")], || Ok(sys::ftruncate(&fd, 10).map(drop)?))?;
    marks(&[(&f, "mc")], || Ok(sys::open(&f, libc::O_WRONLY | libc::O_TRUNC, 0).map(drop)?))?;
    marks(&[(&f, "mc")], || supported(sys::fallocate(&fd, 0, 0, 4096), "fallocate").map(drop))
}

fn chmod_and_chown_mark_ctime_only(p: &Place) -> Outcome {
    for kind in [Kind::Regular, Kind::Directory, Kind::Fifo] {
        let path = p.make(&format!("{kind:?}"), kind)?;
        marks(&[(&path, "c"), (&p.0, "")], || Ok(sys::chmod(&path, 0o700)?))?;
        marks(&[(&path, "c")], || Ok(sys::chown(&path, 5, 6)?))?;
        marks(&[(&path, "c")], || Ok(sys::chown(&path, 5, KEEP)?))?;
        marks(&[(&path, "c")], || Ok(sys::utimens(&path, [sys::time(9, 9), sys::time(0, libc::UTIME_OMIT)], 0)?))?;
    }
    Ok(())
}

fn refusals_mark_nothing(p: &Place) -> Outcome {
    let d = p.dir("d", 0o777)?;
    let f = p.file("d/f", b"abc")?;
    sys::chmod(&f, 0o644)?;
    sys::mkdir(d.join("e"), 0o755)?;
    p.file("d/e/x", b"")?;
    marks(&[(&f, ""), (&d, "")], || {
        as_user(ALICE, || {
            refused(sys::chmod(&f, 0o777), libc::EPERM)?;
            refused(sys::chown(&f, ALICE.uid, KEEP), libc::EPERM)?;
            refused(sys::truncate(&f, 0), libc::EACCES)?;
            refused(sys::mkdir(d.join("f"), 0o755), libc::EEXIST)?;
            refused(sys::link(d.join("missing"), d.join("g")), libc::ENOENT)?;
            refused(sys::rmdir(d.join("e")), libc::ENOTEMPTY)
        })
    })
}

fn xattr_marks_ctime(p: &Place) -> Outcome {
    let f = p.file("f", b"")?;
    supported(sys::setxattr(&f, "user.probe", b"x", 0), "user attributes")?;
    marks(&[(&f, "c")], || Ok(sys::setxattr(&f, "user.a", b"b", 0)?))?;
    marks(&[(&f, "c")], || Ok(sys::removexattr(&f, "user.a")?))?;
    marks(&[(&f, "")], || Ok(sys::getxattr(&f, "user.probe", 10).map(drop)?))
}

fn read_marks_atime(p: &Place) -> Outcome {
    let f = p.file("f", b"abc")?;
    // With relatime (the default) a read marks an access time that is older than the modification.
    sys::utimens(&f, [sys::time(1000, 0), sys::time(2000, 0)], 0)?;
    let fd = sys::open(&f, libc::O_RDONLY, 0)?;
    equal(sys::read(&fd, &mut [0; 10])?, 3)?;
    drop(fd);
    let stat = sys::lstat(&f)?;
    equal(stat.st_mtime, 2000)?;
    moved(stat.st_atime > 1000, "a read advances an access time older than the modification")
}

fn read_marks_atime_that_was_set_again(p: &Place) -> Outcome {
    // Mail programs tell by this whether a mailbox was read: they set it, and the next read moves it. Through a descriptor of
    // before and through a new one. Each reads what nobody has read before: what is in memory already is no news to a server.
    const APART: i64 = 4 << 20;
    let f = p.file("f", b"abc")?;
    sys::truncate(&f, 5 * APART)?;
    let before = sys::open(&f, libc::O_RDONLY, 0)?;
    for (old, at) in [(true, 0), (false, APART), (true, 2 * APART)] {
        sys::utimens(&f, [sys::time(1000, 0), sys::time(2000, 0)], 0)?;
        equal(sys::lstat(&f)?.st_atime, 1000)?;
        let new = sys::open(&f, libc::O_RDONLY, 0)?;
        equal(sys::pread(if old { &before } else { &new }, &mut [0; 10], at)?, 10)?;
        drop(new);
        let stat = sys::lstat(&f)?;
        equal(stat.st_mtime, 2000)?;
        moved(stat.st_atime > 1000, "a read advances an access time that was set")?;
    }
    drop(before);
    sys::utimens(&f, [sys::time(1000, 0), sys::time(2000, 0)], 0)?;
    let fd = sys::open(&f, libc::O_RDONLY, 0)?;
    equal(sys::pread(&fd, &mut [0; 10], 3 * APART)?, 10)?;
    let stat = sys::lstat(&f)?;
    ensure(stat.st_atime > 1000 && stat.st_mtime == 2000, "also when nobody had it open meanwhile")
}

fn new_file_has_equal_times(p: &Place) -> Outcome {
    for kind in Kind::FILES.into_iter().chain([Kind::Directory]) {
        let path = p.make(&format!("{kind:?}"), kind)?;
        let [atime, mtime, ctime] = times(&sys::lstat(&path)?);
        equal((mtime, ctime), (atime, atime))?;
    }
    Ok(())
}

fn close_to_the_clock(p: &Place) -> Outcome {
    let seconds = || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        now.as_secs_f64()
    };
    let before = seconds();
    let f = p.file("f", b"x")?;
    let stat = sys::lstat(&f)?;
    let made = stat.st_mtime as f64 + stat.st_mtime_nsec as f64 / 1e9;
    ensure(made > before - 0.1 && made < seconds() + 0.1, "a new file's mtime is the time of day")
}

/// Also within one tick of the clock, where somebody has looked in between.
fn order_is_that_of_changes(p: &Place) -> Outcome {
    for _ in 0..50 {
        let f = p.file("f", b"")?;
        let fd = sys::open(&f, libc::O_RDWR, 0)?;
        let written = |data: &[u8]| -> Result<Times, Failure> {
            sys::write(&fd, data)?;
            Ok(times(&sys::fstat(&fd)?))
        };
        written(b"x")?;
        let seen = written(b"y")?;
        sys::write(&fd, b"z")?;
        let g = p.file("g", b"")?;
        let [_, newer, _] = times(&sys::lstat(&g)?);
        let last = times(&sys::fstat(&fd)?);
        ensure(newer >= last[1], "a file that is made after another was written is not older")?;
        for change in ["ftruncate", "futimens", "fchmod", "write", "fallocate"] {
            let before = times(&sys::fstat(&fd)?);
            match change {
                "ftruncate" => sys::ftruncate(&fd, 1).map(drop)?,
                "futimens" => sys::futimens(&fd, [sys::time(0, libc::UTIME_NOW), sys::time(0, libc::UTIME_NOW)])?,
                "fchmod" => sys::fchmod(&fd, 0o640).map(drop)?,
                "write" => sys::pwrite(&fd, b"w", 0).map(drop)?,
                _ => sys::posix_fallocate(&fd, 0, 8192)?,
            }
            let after = times(&sys::fstat(&fd)?);
            ensure(after[1] >= before[1] && after[2] >= before[2], "no time of a file goes back")?;
            // Since then a change that follows a look is always seen.
            ensure(sys::kernel() < (6, 13) || after[2] > before[2], "a change that follows a look marks ctime")?;
        }
        ensure(seen[1] <= last[1], "a later write is not earlier")?;
        sys::unlink(&f)?;
        sys::unlink(&g)?;
    }
    Ok(())
}

fn touch_gives_one_time(p: &Place) -> Outcome {
    for _ in 0..20 {
        let f = p.file("f", b"")?;
        sys::utimens_now(&f)?;
        let [accessed, modified, changed] = times(&sys::lstat(&f)?);
        equal((accessed, modified), (modified, changed))?;
        sys::unlink(&f)?;
    }
    Ok(())
}

fn map_marks_file(p: &Place) -> Outcome {
    let f = p.file("f", &[0; 4096])?;
    let fd = sys::open(&f, libc::O_RDWR, 0)?;
    marks(&[(&f, "mc")], || {
        let mut map = crate::map::Map::new(&fd, 4096, true, true)?;
        map.set(0, b"x");
        map.sync()?;
        drop(map);
        Ok(sys::fsync(&fd).map(drop)?)
    })
}

fn directory_read_keeps_mtime(p: &Place) -> Outcome {
    let d = p.dir("d", 0o755)?;
    p.file("d/f", b"")?;
    marks(&[(&d, ""), (&d.join("f"), "")], || Ok(crate::directory::names(&d).map(drop)?))
}
