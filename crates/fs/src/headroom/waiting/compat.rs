//! The calls of 32-bit programs, which have other numbers, and addresses of four bytes.

use libc::c_long;

/// What is none of the calls that are known: nobody's number.
const UNKNOWN: c_long = -2;

/// Numbers from here on are the same for all.
const SAME: c_long = 424;

/// i386's number of what writes, changes owners, or takes attributes away, and ours. Their arguments stand in the same places.
#[cfg(target_arch = "x86_64")]
const NUMBERS: &[(c_long, c_long)] = &[
    (4, libc::SYS_write),
    (181, libc::SYS_pwrite64),
    (146, libc::SYS_writev),
    (334, libc::SYS_pwritev),
    (379, libc::SYS_pwritev2),
    (187, libc::SYS_sendfile),
    (239, libc::SYS_sendfile),
    (313, libc::SYS_splice),
    (377, libc::SYS_copy_file_range),
    (324, libc::SYS_fallocate),
    (5, libc::SYS_open),
    (8, libc::SYS_creat),
    (295, libc::SYS_openat),
    (92, libc::SYS_truncate),
    (193, libc::SYS_truncate),
    (93, libc::SYS_ftruncate),
    (194, libc::SYS_ftruncate),
    (182, libc::SYS_chown),
    (212, libc::SYS_chown),
    (16, libc::SYS_lchown),
    (198, libc::SYS_lchown),
    (95, libc::SYS_fchown),
    (207, libc::SYS_fchown),
    (298, libc::SYS_fchownat),
    (235, libc::SYS_removexattr),
    (236, libc::SYS_lremovexattr),
    (237, libc::SYS_fremovexattr),
];
#[cfg(not(target_arch = "x86_64"))]
const NUMBERS: &[(c_long, c_long)] = &[];

/// Our number of a call that has this one in 32-bit programs, where an offset is two arguments: the first becomes the whole.
pub(super) fn ours(theirs: c_long, arguments: &mut [u64]) -> c_long {
    let known = NUMBERS.iter().find(|(number, _)| *number == theirs).map(|(_, ours)| *ours);
    if let Some(libc::SYS_pwrite64 | libc::SYS_pwritev | libc::SYS_pwritev2) = known
        && let [_, _, _, low, high, ..] = arguments
    {
        *low |= *high << 32;
    }
    known.unwrap_or(if theirs >= SAME { theirs } else { UNKNOWN })
}

/// Whether a thread whose stack ends here is in a call of that kind: that of any other lies beyond what four bytes can name. Where one does not,
/// its calls are taken for ones that nobody knows.
pub(super) fn is_one(stack: u64) -> bool {
    u32::try_from(stack).is_ok() && stack != 0
}
