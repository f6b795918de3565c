//! What stat(2) and statx(2) say of sizes, blocks, identity and birth.

use crate::check::*;
use crate::sys;

checks!("size": blocks_follow_data, birth_time, inode_numbers_differ, same_device_throughout, statx_agrees_with_stat,
    directory_is_not_empty_shell);

fn blocks_follow_data(p: &Place) -> Outcome {
    let file = p.file("f", &[1; 1 << 20])?;
    sys::fsync(&sys::open(&file, libc::O_RDONLY, 0)?)?;
    let blocks = sys::lstat(&file)?.st_blocks;
    ensure((2048..2200).contains(&blocks), &format!("1 MiB takes about 2048 blocks of 512 bytes, not {blocks}"))?;
    sys::truncate(&file, 0)?;
    ensure(sys::lstat(&file)?.st_blocks < 16, "an empty file takes hardly any")
}

fn birth_time(p: &Place) -> Outcome {
    let file = p.file("f", b"")?;
    let statx = sys::statx(&file)?;
    if statx.stx_mask & libc::STATX_BTIME == 0 {
        return Err(Failure::Skipped("no birth time".to_owned()));
    }
    let birth = (statx.stx_btime.tv_sec, statx.stx_btime.tv_nsec);
    std::thread::sleep(std::time::Duration::from_millis(20));
    sys::chmod(&file, 0o600)?;
    sys::utimens(&file, [sys::time(1, 0), sys::time(1, 0)], 0)?;
    sys::rename(&file, p.at("g"))?;
    let after = sys::statx(p.at("g"))?;
    equal((after.stx_btime.tv_sec, after.stx_btime.tv_nsec), birth)?;
    ensure(birth.0 > 1_600_000_000, "the birth time is a time of day")
}

fn inode_numbers_differ(p: &Place) -> Outcome {
    let mut seen = std::collections::BTreeSet::new();
    for number in 0..300 {
        let path = p.file(&number.to_string(), b"")?;
        ensure(seen.insert(sys::lstat(path)?.st_ino), "live files have different inode numbers")?;
    }
    Ok(())
}

fn same_device_throughout(p: &Place) -> Outcome {
    let device = sys::stat(&p.0)?.st_dev;
    for kind in Kind::FILES.into_iter().chain([Kind::Directory]) {
        equal(sys::lstat(p.make(&format!("{kind:?}"), kind)?)?.st_dev, device)?;
    }
    Ok(())
}

fn statx_agrees_with_stat(p: &Place) -> Outcome {
    let file = p.file("f", b"abc")?;
    sys::link(&file, p.at("g"))?;
    let (stat, statx) = (sys::lstat(&file)?, sys::statx(&file)?);
    equal((statx.stx_ino, statx.stx_size, u64::from(statx.stx_nlink)), (stat.st_ino, 3, stat.st_nlink))?;
    equal(u32::from(statx.stx_mode), stat.st_mode)?;
    equal((statx.stx_mtime.tv_sec, i64::from(statx.stx_mtime.tv_nsec)), (stat.st_mtime, stat.st_mtime_nsec))
}

fn directory_is_not_empty_shell(p: &Place) -> Outcome {
    let d = p.dir("d", 0o755)?;
    let stat = sys::lstat(&d)?;
    ensure(stat.st_nlink == 2 && stat.st_blksize >= 512, "a directory has two links and an I/O size")
}
