//! What a process that waits for our answer is doing.

use std::os::unix::fs::FileExt;
use std::time::Duration;

/// How often to look again at one that has not gone to sleep yet, and after which pause.
const LOOKS: u32 = 20;
const PAUSE: Duration = Duration::from_micros(50);

/// System calls that take away capabilities and write no data in the kernel.
const HARMLESS: &[libc::c_long] = &[
    libc::SYS_truncate,
    libc::SYS_ftruncate,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fallocate,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_creat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
];

/// The most that sendfile(2) hands on at once, and splice(2) from a pipe of the size that everybody may have.
const SENT: u64 = 64 << 10;
const SPLICED: u64 = 1 << 20;
/// Buffers that one call may name (`UIO_MAXIOV`).
const MOST_BUFFERS: usize = 1024;

/// What a thread that waits for us is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// It writes nothing.
    Nothing,
    /// It writes so many bytes at most, if that is known.
    Writing(Option<u64>),
}

/// What a thread that waits for us is about to do: the worst, where it is not known.
pub(crate) fn doing(thread: u32) -> Doing {
    for _ in 0..LOOKS {
        let Ok(text) = std::fs::read_to_string(format!("/proc/{thread}/syscall")) else { break };
        if text.trim_end() != "running" {
            return parse(&text, thread).unwrap_or(Doing::Writing(None));
        }
        std::thread::sleep(PAUSE);
    }
    Doing::Writing(None)
}

/// Whether a thread waits in this system call.
pub(crate) fn waits_in(thread: i32, call: libc::c_long) -> bool {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall")).unwrap_or_default();
    text.split_whitespace().next().and_then(|number| number.parse().ok()) == Some(call)
}

/// Of what `/proc/PID/syscall` says: the number of the call and its arguments. They are the kernel's own copy, which nobody changes.
fn parse(text: &str, thread: u32) -> Option<Doing> {
    let mut words = text.split_whitespace();
    let number = words.next()?.parse::<libc::c_long>().ok()?;
    let arguments: Vec<u64> = words.map_while(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()).collect();
    let argument = |index: usize| arguments.get(index).copied();
    Some(match number {
        number if HARMLESS.contains(&number) => Doing::Nothing,
        libc::SYS_write | libc::SYS_pwrite64 => Doing::Writing(argument(2)),
        libc::SYS_sendfile => Doing::Writing(argument(3).map(|length| length.min(SENT))),
        libc::SYS_splice => Doing::Writing(argument(4).map(|length| length.min(SPLICED))),
        libc::SYS_writev | libc::SYS_pwritev | libc::SYS_pwritev2 => {
            Doing::Writing(argument(1).zip(argument(2)).and_then(|(at, count)| lengths(thread, at, count)))
        }
        _ => Doing::Writing(None),
    })
}

/// The sum of the lengths of a vector of buffers, in the memory of who waits. Another of its threads may have changed it.
fn lengths(thread: u32, at: u64, count: u64) -> Option<u64> {
    const ENTRY: usize = size_of::<libc::iovec>();
    let mut bytes = vec![0; ENTRY * usize::try_from(count).ok().filter(|count| *count <= MOST_BUFFERS)?];
    std::fs::File::open(format!("/proc/{thread}/mem")).ok()?.read_exact_at(&mut bytes, at).ok()?;
    let length = |entry: &[u8]| entry.last_chunk().map(|length| usize::from_ne_bytes(*length) as u64);
    bytes.chunks_exact(ENTRY).try_fold(0u64, |sum, entry| sum.checked_add(length(entry)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::sync::mpsc;

    /// What is said of a thread that waits in `wait`.
    fn asked(wait: impl FnOnce() + Send + 'static, wake: impl FnOnce()) -> Doing {
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            sender.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
            wait();
        });
        let tid = receiver.recv().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let says = doing(tid);
        wake();
        thread.join().unwrap();
        says
    }

    #[test]
    fn who_waits_in_a_call_that_may_write_is_told_from_who_opens() {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        // 1 MiB is more than a pipe takes.
        let write = move || writer.write_all(&vec![0; 1 << 20]).unwrap();
        let says = asked(write, || reader.read_exact(&mut vec![0; 1 << 20]).unwrap());
        // The rest of what did not fit at first, where that is already being written.
        assert!(matches!(says, Doing::Writing(Some(length)) if (1..=1 << 20).contains(&length)), "{says:?}");

        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let path = fifo.clone();
        let open = move || drop(std::fs::File::open(path).unwrap());
        let says = asked(open, || drop(std::fs::OpenOptions::new().write(true).open(&fifo).unwrap()));
        assert_eq!(says, Doing::Nothing);
    }

    #[test]
    fn the_buffers_of_a_vector_are_added_up() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let write = move || {
            let (first, second) = (vec![0; 1 << 20], vec![0; 5000]);
            let vector = [std::io::IoSlice::new(&first), std::io::IoSlice::new(&second)];
            (&writer).write_vectored(&vector).unwrap();
        };
        let says = asked(write, || reader.read_exact(&mut vec![0; (1 << 20) + 5000]).unwrap());
        assert_eq!(says, Doing::Writing(Some((1 << 20) + 5000)));
    }

    #[test]
    fn of_who_is_not_there_the_worst_is_thought() {
        assert_eq!(doing(0), Doing::Writing(None));
        for worst in ["-1 0x7f 0x0", "20 0x3 0x7f 0x2", "1 0x3"] {
            assert_eq!(parse(worst, 0), Some(Doing::Writing(None)), "{worst}");
        }
        assert_eq!((parse("", 0), parse("what", 0)), (None, None));
    }
}
