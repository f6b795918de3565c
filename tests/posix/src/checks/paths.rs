//! Names and paths: their limits, and the refusals that every call by path shares.

use crate::check::*;
use crate::{directory, sys};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

checks!("paths": name_length, path_length, missing_and_not_directory, loops, any_byte_in_a_name, case_and_dots_differ,
    deep_tree, empty_path, search_permission);

type Call = (&'static str, fn(&Path) -> sys::Sys<()>);

/// Calls that look their path up.
const LOOKING: &[Call] = &[
    ("open", |path| sys::open(path, libc::O_RDONLY, 0).map(drop)),
    ("open with O_WRONLY", |path| sys::open(path, libc::O_WRONLY, 0).map(drop)),
    ("stat", |path| sys::stat(path).map(drop)),
    ("chmod", |path| sys::chmod(path, 0o700)),
    ("chown", |path| sys::chown(path, 0, 0)),
    ("unlink", |path| sys::unlink(path)),
    ("rmdir", |path| sys::rmdir(path)),
    ("truncate", |path| sys::truncate(path, 0)),
    ("utimensat", |path| sys::utimens_now(path)),
    ("access", |path| sys::access(path, libc::F_OK)),
    ("readlink", |path| sys::readlink(path).map(drop)),
    ("link from", |path| sys::link(path, beside(path))),
    ("rename from", |path| sys::rename(path, beside(path))),
    ("opendir", |path| directory::Stream::open(path).map(drop)),
    ("statfs", |path| sys::statfs(path).map(drop)),
    ("getxattr", |path| sys::getxattr(path, "user.x", 0).map(drop)),
];

/// Another name in the same directory: the first path of two must be at fault.
fn beside(path: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new("")).join("beside")
}

/// Calls that make their path.
const MAKING: &[Call] = &[
    ("open with O_CREAT", |path| sys::open(path, libc::O_CREAT | libc::O_WRONLY, 0o644).map(drop)),
    ("mkdir", |path| sys::mkdir(path, 0o755)),
    ("mknod", |path| sys::mknod(path, libc::S_IFIFO | 0o600, 0)),
    ("symlink", |path| sys::symlink("target", path)),
];

fn each(calls: &[Call], path: &Path, errno: i32) -> Outcome {
    for (name, call) in calls {
        let result = call(path);
        if result != Err(sys::Errno(errno)) {
            let shown = path.to_string_lossy().chars().take(60).collect::<String>();
            return fail(&format!("{name} of {shown}: expected {}, got {result:?}", sys::Errno(errno)));
        }
    }
    Ok(())
}

fn name_length(p: &Place) -> Outcome {
    let (fits, too_long) = (p.at("n".repeat(255)), p.at("n".repeat(256)));
    each(LOOKING, &too_long, libc::ENAMETOOLONG)?;
    each(MAKING, &too_long, libc::ENAMETOOLONG)?;
    let file = p.file("f", b"")?;
    refused(sys::link(&file, &too_long), libc::ENAMETOOLONG)?;
    refused(sys::rename(&file, &too_long), libc::ENAMETOOLONG)?;
    for (name, call) in MAKING {
        call(&fits).map_err(|errno| Failure::Failed(format!("{name} of a 255-byte name: got {errno}")))?;
        equal(directory::names(&p.0)?.len(), 2)?;
        if sys::unlink(&fits).is_err() {
            sys::rmdir(&fits)?;
        }
    }
    sys::link(&file, &fits)?;
    sys::rename(&fits, p.at("m".repeat(255)))?;
    equal(sys::lstat(p.at("m".repeat(255)))?.st_nlink, 2)
}

fn path_length(p: &Place) -> Outcome {
    // One path of exactly 4095 bytes (the limit counts the NUL), and one of 4096.
    sys::chdir(&p.0)?;
    let step = "d".repeat(200);
    let mut path = PathBuf::new();
    while path.as_os_str().len() + 201 + 2 < 4095 {
        path.push(&step);
        sys::mkdir(&path, 0o755)?;
    }
    let room = 4095 - path.as_os_str().len() - 1;
    let longest = path.join("f".repeat(room));
    equal(longest.as_os_str().len(), 4095)?;
    drop(sys::open(&longest, libc::O_CREAT | libc::O_WRONLY, 0o644)?);
    equal(sys::lstat(&longest)?.st_nlink, 1)?;
    sys::chmod(&longest, 0o600)?;
    let longer = PathBuf::from(format!("./{}", longest.display()));
    each(LOOKING, &longer, libc::ENAMETOOLONG)?;
    each(MAKING, &longer, libc::ENAMETOOLONG)?;
    sys::unlink(&longest)?;
    let target = "t".repeat(4095);
    sys::symlink(&target, "longest-target")?;
    equal(sys::readlink("longest-target")?.len(), 4095)?;
    refused(sys::symlink("t".repeat(4096), "longer-target"), libc::ENAMETOOLONG)
}

fn missing_and_not_directory(p: &Place) -> Outcome {
    each(LOOKING, &p.at("missing"), libc::ENOENT)?;
    each(LOOKING, &p.at("missing/below"), libc::ENOENT)?;
    each(MAKING, &p.at("missing/below"), libc::ENOENT)?;
    p.file("f", b"")?;
    each(LOOKING, &p.at("f/below"), libc::ENOTDIR)?;
    each(MAKING, &p.at("f/below"), libc::ENOTDIR)?;
    p.make("fifo", Kind::Fifo)?;
    each(LOOKING, &p.at("fifo/below"), libc::ENOTDIR)
}

fn loops(p: &Place) -> Outcome {
    sys::symlink("b", p.at("a"))?;
    sys::symlink("a", p.at("b"))?;
    each(LOOKING, &p.at("a/below"), libc::ELOOP)?;
    each(MAKING, &p.at("a/below"), libc::ELOOP)?;
    refused(sys::stat(p.at("a")), libc::ELOOP)?;
    refused(sys::open(p.at("a"), libc::O_CREAT | libc::O_WRONLY, 0o644), libc::ELOOP)?;
    // Forty links in a row are the most that are followed.
    p.file("end", b"")?;
    sys::symlink("end", p.at("s1"))?;
    for number in 2..=41 {
        sys::symlink(format!("s{}", number - 1), p.at(format!("s{number}")))?;
    }
    sys::stat(p.at("s40"))?;
    refused(sys::stat(p.at("s41")), libc::ELOOP)
}

fn any_byte_in_a_name(p: &Place) -> Outcome {
    let mut expected: Vec<Vec<u8>> = (1..=255_u8).filter(|&byte| byte != b'/').map(|byte| vec![b'x', byte]).collect();
    expected.push(b"\xff\xfe\xc3\x28".to_vec());
    expected.push("žluťoučký kůň".as_bytes().to_vec());
    expected.push(b"...".to_vec());
    expected.push(b" ".to_vec());
    expected.push(b"\n".to_vec());
    expected.sort();
    for name in &expected {
        drop(sys::open(p.at(OsStr::from_bytes(name)), libc::O_CREAT | libc::O_WRONLY, 0o644)?);
    }
    equal(directory::names(&p.0)?, expected.clone())?;
    for name in &expected {
        sys::unlink(p.at(OsStr::from_bytes(name)))?;
    }
    equal(directory::names(&p.0)?, vec![])
}

fn case_and_dots_differ(p: &Place) -> Outcome {
    // Two spellings of one letter (composed or not), and two cases, are different names.
    for name in ["é", "e\u{301}", "A", "a", "a.", "a..", "..a"] {
        p.file(name, name.as_bytes())?;
    }
    for name in ["é", "e\u{301}", "A", "a", "a.", "a..", "..a"] {
        equal(content(p.at(name))?, name.as_bytes().to_vec())?;
    }
    Ok(())
}

fn deep_tree(p: &Place) -> Outcome {
    sys::chdir(&p.0)?;
    for _ in 0..1000 {
        sys::mkdir("d", 0o755)?;
        sys::chdir("d")?;
    }
    drop(sys::open("bottom", libc::O_CREAT | libc::O_WRONLY, 0o644)?);
    equal(directory::names(".")?, vec![b"bottom".to_vec()])?;
    sys::unlink("bottom")?;
    for _ in 0..1000 {
        sys::chdir("..")?;
        sys::rmdir("d")?;
    }
    equal(sys::stat(".")?.st_ino, sys::stat(&p.0)?.st_ino)
}

fn empty_path(p: &Place) -> Outcome {
    sys::chdir(&p.0)?;
    each(LOOKING, Path::new(""), libc::ENOENT)?;
    each(MAKING, Path::new(""), libc::ENOENT)?;
    refused(sys::symlink("", p.at("l")), libc::ENOENT)
}

fn search_permission(p: &Place) -> Outcome {
    let d = p.dir("d", 0o777)?;
    sys::chown(&d, ALICE.uid, ALICE.gid)?;
    as_user(ALICE, || Ok(sys::open(d.join("f"), libc::O_CREAT | libc::O_WRONLY, 0o666).map(drop)?))?;
    for bits in [0o666, 0o766, 0o700] {
        sys::chmod(&d, bits)?;
        as_user(BOB, || {
            each(LOOKING, &d.join("f"), libc::EACCES)?;
            each(MAKING, &d.join("new"), libc::EACCES)
        })?;
    }
    // Search without read: names can be used, but not listed.
    sys::chmod(&d, 0o711)?;
    as_user(BOB, || {
        sys::stat(d.join("f"))?;
        refused(directory::Stream::open(&d).map(drop), libc::EACCES)
    })?;
    // Read without search: the reverse.
    sys::chmod(&d, 0o744)?;
    as_user(BOB, || {
        equal(directory::names(&d)?, vec![b"f".to_vec()])?;
        refused(sys::stat(d.join("f")), libc::EACCES)
    })
}
