//! statfs(2).

use crate::check::*;
use crate::sys;

checks!("statfs": numbers_make_sense, use_is_seen);

fn numbers_make_sense(p: &Place) -> Outcome {
    let answer = sys::statfs(&p.0)?;
    equal(answer.f_namelen, 255)?;
    ensure(answer.f_bsize >= 512 && answer.f_blocks > 0, "there are blocks of some size")?;
    ensure(answer.f_bavail <= answer.f_bfree && answer.f_bfree <= answer.f_blocks, "available ≤ free ≤ all")?;
    ensure(answer.f_ffree <= answer.f_files, "free inodes ≤ all inodes")
}

fn use_is_seen(p: &Place) -> Outcome {
    let free = |answer: libc::statfs64| answer.f_bfree * answer.f_bsize as u64;
    let before = free(sys::statfs(&p.0)?);
    let fd = sys::open(p.file("f", &vec![7; 16 << 20])?, libc::O_RDWR, 0)?;
    sys::fsync(&fd)?;
    let after = free(sys::statfs(&p.0)?);
    ensure(before > after && before - after >= 12 << 20, "16 MiB written are 12 MiB less free, at least")
}
