//! O_APPEND.

use crate::check::*;
use crate::sys;

checks!("append": always_at_the_end, from_several_processes, flag_set_later, pwrite_appends_too);

fn always_at_the_end(p: &Place) -> Outcome {
    let file = p.file("f", b"one")?;
    let (a, b) = (sys::open(&file, libc::O_WRONLY | libc::O_APPEND, 0)?, sys::open(&file, libc::O_WRONLY, 0)?);
    sys::write(&a, b" two")?;
    sys::pwrite(&b, b" three", 7)?;
    sys::lseek(&a, 0, libc::SEEK_SET)?;
    sys::write(&a, b" four")?;
    equal(sys::lseek(&a, 0, libc::SEEK_CUR)?, 18)?;
    equal(content(&file)?, b"one two three four".to_vec())?;
    sys::truncate(&file, 3)?;
    sys::write(&a, b"!")?;
    equal(content(&file)?, b"one!".to_vec())
}

fn from_several_processes(p: &Place) -> Outcome {
    const LINES: usize = 500;
    let file = p.file("f", b"")?;
    let script = format!("i=0; while [ $i -lt {LINES} ]; do echo \"$1 $i\"; i=$((i+1)); done >> \"$2\"");
    let mut children = Vec::new();
    for who in ["a", "b", "c", "d"] {
        children.push(std::process::Command::new("/bin/sh").args(["-c", &script, "sh", who]).arg(&file).spawn()?);
    }
    for mut child in children {
        ensure(child.wait()?.success(), "the writer succeeds")?;
    }
    let text = String::from_utf8_lossy(&content(&file)?).into_owned();
    for who in ["a", "b", "c", "d"] {
        let seen: Vec<_> = text.lines().filter_map(|line| line.strip_prefix(&format!("{who} "))).collect();
        let expected: Vec<String> = (0..LINES).map(|number| number.to_string()).collect();
        ensure(seen == expected, &format!("every line of {who} is there, whole and in order"))?;
    }
    equal(text.lines().count(), 4 * LINES)
}

fn flag_set_later(p: &Place) -> Outcome {
    let file = p.file("f", b"abc")?;
    let fd = sys::open(&file, libc::O_WRONLY, 0)?;
    sys::fcntl(&fd, libc::F_SETFL, libc::O_APPEND)?;
    sys::write(&fd, b"d")?;
    equal(content(&file)?, b"abcd".to_vec())?;
    sys::fcntl(&fd, libc::F_SETFL, 0)?;
    sys::lseek(&fd, 0, libc::SEEK_SET)?;
    sys::write(&fd, b"A")?;
    equal(content(&file)?, b"Abcd".to_vec())
}

fn pwrite_appends_too(p: &Place) -> Outcome {
    // Against POSIX, but so on every Linux file system.
    let file = p.file("f", b"abc")?;
    let fd = sys::open(&file, libc::O_WRONLY | libc::O_APPEND, 0)?;
    sys::pwrite(&fd, b"d", 0)?;
    equal(content(&file)?, b"abcd".to_vec())
}
