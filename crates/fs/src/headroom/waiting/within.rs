//! What a thread does in the kernel within a call that says something else: overlayfs copies a whole file up within open(2), and
//! copy_file_range(2) writes itself what it cannot have copied.

use super::{Doing, SENT, call_of};

/// A thread that a signal wakes for a moment has no stack to be seen then: so often it is looked again.
const LOOKS: usize = 64;

/// The functions that it is in, if this kernel shows that: none, where it did not just then.
fn stack(thread: u32) -> Option<String> {
    for _ in 0..LOOKS {
        let stack = std::fs::read_to_string(format!("/proc/{thread}/stack")).ok()?;
        if !stack.is_empty() {
            return Some(stack);
        }
        std::thread::yield_now();
    }
    Some(String::new())
}

/// What it does, if this kernel shows that: the worst, where it did not just then.
pub(super) fn doing(thread: u32) -> Option<Doing> {
    stack(thread).map(|stack| told_by(&stack))
}

/// Whether it copies a file of an overlay up, as far as this kernel shows that. An ordinary user's daemon is shown the number of the
/// call only, which is another one in 32-bit programs; but what it mounts gives nobody any rights.
pub(crate) fn copies_up(thread: u32) -> bool {
    match stack(thread) {
        Some(stack) => stack.contains("ovl_copy_up"),
        None if rustix::process::geteuid().is_root() => false,
        None => call_of(thread).is_some_and(|call| !call.changes_owner()),
    }
}

/// What the functions say that a thread is in. Those by which a file is written are called so, also where compilers leave some out.
fn told_by(stack: &str) -> Doing {
    let is_in = |function: &str| stack.lines().any(|line| line.contains(function));
    // A stack that is shown to its bottom begins in a system call.
    let is_whole = is_in("syscall") || is_in("SYSCALL") || is_in("int80");
    match () {
        () if is_in("splice_write") => Doing::Writing(Some(SENT)),
        () if is_in("write") || !is_whole => Doing::Writing(None),
        () => Doing::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_writes_within_another_call_is_told_from_who_does_not() {
        let asks = "[<0>] fuse_removexattr+0x9c/0xe0\n[<0>] notify_change+0x4d1/0x580\n";
        let cuts = "[<0>] do_truncate+0x98/0xf0\n[<0>] do_open+0x2c4/0x480\n";
        let bottom = "[<0>] do_syscall_64+0x5f/0x3c0\n[<0>] entry_SYSCALL_64_after_hwframe+0x76/0x7e\n";
        assert_eq!(told_by(&[asks, cuts, bottom].concat()), Doing::Nothing);
        // One that is cut short, or has no names.
        assert_eq!(told_by(&[asks, cuts].concat()), Doing::Writing(None));
        assert_eq!(told_by("[<0>] 0xffffffff81234567\n"), Doing::Writing(None));
        let copies = "[<0>] backing_file_splice_write+0x7f/0x150\n[<0>] ovl_open+0x9d/0x100\n";
        assert_eq!(told_by(&[asks, copies].concat()), Doing::Writing(Some(SENT)));
        let dumps = "[<0>] fuse_passthrough_write_iter+0xc5/0x180\n[<0>] do_coredump+0x9d/0x100\n";
        assert_eq!(told_by(&[asks, dumps].concat()), Doing::Writing(None));
    }
}
