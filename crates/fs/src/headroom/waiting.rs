//! What a process that waits for our answer is doing.

mod compat;
pub(crate) mod looks;
mod place;
mod queues;
mod within;

pub(crate) use place::{Place, furthest, place};
pub(crate) use within::copies_up;

use crate::{Outcome, hurry};
use looks::patient;
use rustix::fs::{AtFlags, CWD, StatxFlags};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};
use ullage_policy::headroom::CALL;

/// How long to look again and again at one that has not gone to sleep yet: on a busy machine it gets its turn late. And the first pause, and
/// the longest.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// System calls that take away capabilities and write no data themselves.
const HARMLESS: &[libc::c_long] = &[
    libc::SYS_truncate,
    libc::SYS_ftruncate,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
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

/// The most that sendfile(2) hands on at once, and that a page of a pipe stands for which came from a socket.
const SENT: u64 = 64 << 10;
const IN_A_PAGE: u64 = 64 << 10;
const SMALLEST_PAGE: u64 = 4096;
/// Buffers that one call may name (`UIO_MAXIOV`).
const MOST_BUFFERS: usize = 1024;

/// What a thread that waits for us is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// It writes nothing, or what it writes comes to us.
    Nothing,
    /// It writes so many bytes at most, if that is known.
    Writing(Option<u64>),
}

/// What a thread that waits for us is about to do: the worst, where it is not known.
///
/// # Errors
/// LATER when it has not gone to sleep yet, and who asks may not wait.
pub(crate) fn doing(thread: u32) -> Outcome<Doing> {
    doing_within(thread, PATIENCE)
}

fn doing_within(thread: u32, patience: Duration) -> Outcome<Doing> {
    let (began, mut pause) = (Instant::now(), PAUSE);
    while began.elapsed() < patience {
        let Ok(text) = std::fs::read_to_string(format!("/proc/{thread}/syscall")) else {
            return Ok(Doing::Writing(None));
        };
        if text.trim_end() != "running" {
            let Some(call) = Call::of(thread, &text) else { return Ok(Doing::Writing(None)) };
            if call.is_queued() || call.is_in_memory() {
                // All descriptors of its process are looked through for rings, or its memory for what it writes. Whoever holds the lock of
                // that may wait for us as well: he unmaps a file of ours, which writes its pages.
                hurry::may_wait()?;
                // Where it cannot be read, it may be as long as any.
                let long = Doing::Writing(Some(CALL));
                return Ok(patient(Some(thread), move || call.doing(thread)).unwrap_or(long));
            }
            return Ok(call.doing(thread));
        }
        hurry::may_wait()?;
        std::thread::sleep(pause);
        pause = LONGEST_PAUSE.min(pause * 2);
    }
    // It will tell once it has had its turn, and may be any call.
    Ok(Doing::Writing(Some(CALL)))
}

/// Whether any thread may be waiting for its turn to write to a file: yes, where one does not let itself be looked at. Of one that becomes
/// another program nothing is shown until it has closed files, which may be of a file system that does not answer.
pub(crate) fn is_waited_for(file: Option<File>) -> bool {
    let threads = |process| numbers(format!("/proc/{process}/task"));
    let any = move || numbers("/proc").flat_map(threads).any(|thread| waits_to_write(thread, file));
    patient(None, any).unwrap_or(true)
}

/// The numbers of processes or threads that a directory lists.
fn numbers(directory: impl AsRef<Path>) -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

fn waits_to_write(thread: u32, file: Option<File>) -> bool {
    // Whoever waits for a lock is in the state that is called so.
    if state_of(thread).is_none_or(|(state, _)| state != 'D') {
        return false;
    }
    let Some(call) = call_of(thread) else { return false };
    match call.descriptor() {
        Some(descriptor) => {
            file.zip(file_at(thread, descriptor)).is_none_or(|(file, its)| file == its) && call.may_write(thread)
        }
        None => call.is_queued(),
    }
}

/// The device and the number of a file, as the kernel knows them without asking us.
pub(crate) type File = (u32, u32, u64);

/// The file that a descriptor of a thread's stands for.
fn file_at(thread: u32, descriptor: u64) -> Option<File> {
    let path = format!("/proc/{thread}/fd/{descriptor}");
    let stat = rustix::fs::statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::INO).ok()?;
    Some((stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino))
}

fn call_of(thread: u32) -> Option<Call> {
    Call::of(thread, &std::fs::read_to_string(format!("/proc/{thread}/syscall")).ok()?)
}

/// Flags of a task that the kernel gives to workers of rings (`PF_IO_WORKER`), and to threads of its own (`PF_KTHREAD`).
const WORKER: u32 = 0x10;
const KERNEL: u32 = 0x20_0000;

/// Whether a thread is the kernel's own, which is in no call that says what it writes, or one that we are not shown.
pub(crate) fn is_kernels(thread: u32) -> bool {
    thread == 0 || state_of(thread).is_some_and(|(_, flags)| flags & KERNEL != 0)
}

/// The most that a thread of the kernel's writes at once for others: a request to a loop device, as large as this kernel lets it be, or
/// what a server of files was sent.
pub(crate) fn longest_request() -> u64 {
    const USUAL: u64 = 4 << 20;
    let devices = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let loops = devices.filter(|device| device.file_name().as_encoded_bytes().starts_with(b"loop"));
    let kilobytes = |device: std::fs::DirEntry| -> Option<u64> {
        std::fs::read_to_string(device.path().join("queue/max_sectors_kb")).ok()?.trim().parse().ok()
    };
    loops.filter_map(kilobytes).max().map_or(USUAL, |most| most << 10)
}

/// The state of a thread as the kernel writes it, and its flags.
fn state_of(thread: u32) -> Option<(char, u32)> {
    /// The place of the flags behind the state.
    const FLAGS: usize = 6;
    let stat = std::fs::read_to_string(format!("/proc/{thread}/stat")).ok()?;
    // Its name may hold anything.
    let (_, rest) = stat.rsplit_once(") ")?;
    let flags: u32 = rest.split(' ').nth(FLAGS)?.parse().ok()?;
    Some((rest.chars().next()?, flags))
}

/// Whether a thread that waits for us removes an extended attribute.
pub(crate) fn removes_attribute(thread: u32) -> bool {
    /// Since Linux 6.13.
    const REMOVEXATTRAT: libc::c_long = 466;
    let calls = [libc::SYS_removexattr, libc::SYS_lremovexattr, libc::SYS_fremovexattr, REMOVEXATTRAT];
    call_of(thread).is_some_and(|call| calls.contains(&call.number))
}

/// Whether a thread that waits for us changes an owner.
pub(crate) fn changes_owner(thread: u32) -> bool {
    call_of(thread).is_some_and(|call| call.changes_owner())
}

/// Whether a process of one thread waits in this system call.
pub(crate) fn waits_in(process: i32, call: libc::c_long) -> bool {
    u32::try_from(process).ok().and_then(call_of).is_some_and(|it| it.number == call)
}

/// What `/proc/PID/syscall` says: the number of the call and its arguments. They are the kernel's own copy, which nobody changes.
struct Call {
    number: libc::c_long,
    arguments: Vec<u64>,
    /// Of a program whose addresses have four bytes.
    is_compat: bool,
}

impl Call {
    /// That of a thread. A worker of a ring is in none of its own: what is written there is what its process did when it came to be.
    fn of(thread: u32, text: &str) -> Option<Self> {
        let call = Self::parse(text)?;
        let works = state_of(thread).is_some_and(|(_, flags)| flags & WORKER != 0);
        let in_rings = || Self { number: libc::SYS_io_uring_enter, arguments: Vec::new(), is_compat: false };
        Some(if works { in_rings() } else { call })
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let number = words.next()?.parse().ok()?;
        let mut arguments: Vec<u64> =
            words.map_while(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()).collect();
        // Six of them, where its stack is, and the next instruction.
        let is_compat = arguments.get(6).is_some_and(|stack| compat::is_one(*stack));
        let number = if is_compat { compat::ours(number, &mut arguments) } else { number };
        Some(Self { number, arguments, is_compat })
    }

    fn changes_owner(&self) -> bool {
        let calls = [
            libc::SYS_fchown,
            libc::SYS_fchownat,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_chown,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_lchown,
        ];
        calls.contains(&self.number)
    }

    /// Whether what it does lies in a queue.
    fn is_queued(&self) -> bool {
        matches!(self.number, libc::SYS_io_submit | libc::SYS_io_uring_enter)
    }

    /// Whether how much it writes lies in the memory of its process.
    fn is_in_vector(&self) -> bool {
        matches!(self.number, libc::SYS_writev | libc::SYS_pwritev | libc::SYS_pwritev2)
    }

    /// Whether that does, or where it writes to.
    fn is_in_memory(&self) -> bool {
        self.is_in_vector() || self.number == libc::SYS_splice && self.arguments.get(3).is_some_and(|at| *at != 0)
    }

    /// Whether it may be about to write, in this thread: said without a look at memory, the lock of which somebody may hold for long. Of
    /// calls that name a descriptor.
    fn may_write(&self, thread: u32) -> bool {
        self.is_in_vector() || matches!(self.doing(thread), Doing::Writing(_))
    }

    /// What it is about to do, in this thread. What it writes is as long as any where its length cannot be read.
    fn doing(&self, thread: u32) -> Doing {
        let argument = |index: usize| self.arguments.get(index).copied();
        match self.number {
            number if HARMLESS.contains(&number) => within::doing(thread).unwrap_or(Doing::Nothing),
            libc::SYS_fallocate => Doing::Nothing,
            // Between two file systems the kernel writes itself, piece by piece.
            libc::SYS_copy_file_range => match within::doing(thread) {
                Some(Doing::Nothing) => Doing::Nothing,
                _ => Doing::Writing(argument(4).map(|length| length.min(SENT))),
            },
            libc::SYS_write | libc::SYS_pwrite64 => Doing::Writing(argument(2)),
            libc::SYS_sendfile => Doing::Writing(argument(3).map(|length| length.min(SENT))),
            libc::SYS_splice => Doing::Writing(argument(4).map(spliced)),
            _ if self.is_in_vector() => {
                let lengths = |(at, count)| lengths(thread, at, count, self.is_compat);
                Doing::Writing(argument(1).zip(argument(2)).and_then(lengths).or(Some(CALL)))
            }
            libc::SYS_io_submit | libc::SYS_io_uring_enter => {
                let longest = || self.queued(thread).and_then(|queued| queues::longest(&queued)).unwrap_or(CALL);
                match within::doing(thread) {
                    Some(Doing::Nothing) => Doing::Nothing,
                    // What is spliced, or an open(2) that copies.
                    Some(Doing::Writing(Some(piece))) => Doing::Writing(Some(longest().max(piece))),
                    _ => Doing::Writing(Some(longest())),
                }
            }
            _ => within::doing(thread).unwrap_or(Doing::Writing(None)),
        }
    }

    /// The writes that it brings, or that wait in the rings of its process.
    fn queued(&self, thread: u32) -> Option<Vec<queues::Queued>> {
        match (self.number, &self.arguments[..]) {
            (libc::SYS_io_submit, [_, count, at, ..]) => queues::submitted(thread, *at, *count),
            (libc::SYS_io_uring_enter, _) => queues::in_rings(thread),
            _ => None,
        }
    }

    /// The descriptor that it writes to, if it is one that does.
    fn descriptor(&self) -> Option<u64> {
        let index = match self.number {
            libc::SYS_write
            | libc::SYS_pwrite64
            | libc::SYS_writev
            | libc::SYS_pwritev
            | libc::SYS_pwritev2
            | libc::SYS_sendfile
            | libc::SYS_fallocate => 0,
            libc::SYS_splice | libc::SYS_copy_file_range => 2,
            _ => return None,
        };
        self.arguments.get(index).copied()
    }
}

/// The sum of the lengths of a vector of buffers, in the memory of who waits, which may be a 32-bit program. Another of its threads may have
/// changed it.
fn lengths(thread: u32, at: u64, count: u64, is_compat: bool) -> Option<u64> {
    let entry = if is_compat { 2 * size_of::<u32>() } else { size_of::<libc::iovec>() };
    let bytes = memory(thread, at, entry * usize::try_from(count).ok().filter(|count| *count <= MOST_BUFFERS)?)?;
    let length = |entry: &[u8]| {
        if is_compat {
            entry.last_chunk().map(|length| u64::from(u32::from_ne_bytes(*length)))
        } else {
            entry.last_chunk().map(|length| usize::from_ne_bytes(*length) as u64)
        }
    };
    bytes.chunks_exact(entry).try_fold(0u64, |sum, entry| sum.checked_add(length(entry)?))
}

/// The most of a length that one splice(2) from a pipe writes: what fits into one as large as everybody may have it. The pipe is not
/// asked: its lock may be held by who waits for us.
fn spliced(length: u64) -> u64 {
    let most = std::fs::read_to_string("/proc/sys/fs/pipe-max-size").ok().and_then(|text| text.trim().parse().ok());
    length.min(most.map_or(u64::MAX, |bytes: u64| (bytes / SMALLEST_PAGE).saturating_mul(IN_A_PAGE)))
}

/// So many bytes of a thread's memory. Waits for who changes what is mapped there.
fn memory(thread: u32, at: u64, length: usize) -> Option<Vec<u8>> {
    #[cfg(test)]
    tests::LOOKED.set(tests::LOOKED.get() + 1);
    let mut bytes = vec![0; length];
    std::fs::File::open(format!("/proc/{thread}/mem")).ok()?.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Errno, hurried};
    use std::cell::Cell;
    use std::io::{Read, Write};
    use std::sync::mpsc;

    thread_local! {
        /// How often memory of others was looked at.
        pub(super) static LOOKED: Cell<u32> = const { Cell::new(0) };
    }

    /// What is said of a thread that waits in `wait`.
    fn asked(wait: impl FnOnce() + Send + 'static, wake: impl FnOnce()) -> Doing {
        asked_of(|thread| doing(thread).unwrap(), wait, wake)
    }

    fn asked_of<T>(what: impl FnOnce(u32) -> T, wait: impl FnOnce() + Send + 'static, wake: impl FnOnce()) -> T {
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            sender.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
            wait();
        });
        let tid = receiver.recv().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let says = what(tid);
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
            let _ = (&writer).write_vectored(&vector).unwrap();
        };
        let says = asked(write, || reader.read_exact(&mut vec![0; (1 << 20) + 5000]).unwrap());
        assert_eq!(says, Doing::Writing(Some((1 << 20) + 5000)));
    }

    /// A thread of the writer's that holds its memory's lock waited for the queue whose thread waited for that lock; and whoever asked whether
    /// anybody waits to write to a file waited for every process of the machine that holds its own.
    #[test]
    fn memory_is_looked_at_by_nobody_who_may_not_wait_nor_where_the_length_does_not_matter() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let write = move || {
            let bytes = vec![0; 1 << 20];
            let _ = (&writer).write_vectored(&[std::io::IoSlice::new(&bytes)]).unwrap();
        };
        let before = LOOKED.get();
        let asks = |thread| (hurried(|| doing(thread)), call_of(thread).is_some_and(|call| call.may_write(thread)));
        let says = asked_of(asks, write, || reader.read_exact(&mut vec![0; 1 << 20]).unwrap());
        assert_eq!(says, (Err(Errno::LATER), true));
        assert_eq!(LOOKED.get(), before);
        let splice = |behind: u64| Call {
            number: libc::SYS_splice,
            arguments: vec![0, 0, 0, behind, 1000, 0],
            is_compat: false,
        };
        assert!(splice(4096).is_in_memory() && !splice(0).is_in_memory());
    }

    /// What came from a socket stands for more than a page in a page of a pipe: 4 MiB were let go on as one.
    #[test]
    fn a_splice_is_as_long_as_a_pipe_may_hold() {
        let splice = |length: u64| {
            Call { number: libc::SYS_splice, arguments: vec![0, 0, 0, 0, length, 0], is_compat: false }.doing(0)
        };
        assert_eq!(splice(1000), Doing::Writing(Some(1000)));
        let Doing::Writing(Some(most)) = splice(1 << 40) else { panic!("{:?}", splice(1 << 40)) };
        let pipe: u64 = std::fs::read_to_string("/proc/sys/fs/pipe-max-size").unwrap().trim().parse().unwrap();
        assert_eq!(most, pipe / 4096 * (64 << 10));
    }

    /// On a machine that was starved for half a second a write of 64 KiB was let go on as one of a block.
    #[test]
    fn who_gets_no_turn_to_go_to_sleep_is_waited_for_or_taken_for_the_longest_call() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let write = move || {
            let until = Instant::now() + Duration::from_millis(900);
            while Instant::now() < until {}
            let _ = (&writer).write(&vec![0; 1 << 20]).unwrap();
        };
        let asks = |thread| [doing_within(thread, Duration::from_millis(100)), doing(thread)].map(Result::unwrap);
        let says = asked_of(asks, write, || reader.read_exact(&mut vec![0; 1 << 20]).unwrap());
        assert_eq!(says, [Doing::Writing(Some(CALL)), Doing::Writing(Some(1 << 20))]);
    }

    /// Their write(2) was taken for a stat(2), of which nobody knows what it writes, and the getpid(2) of others for a writev(2).
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn calls_of_32_bit_programs_have_numbers_of_their_own() {
        let call = |text: &str| Call::parse(text).unwrap();
        let short = "0xffd01000 0xf7fc5579";
        let write = call(&format!("4 0x3 0x8049000 0x20000 0x0 0x0 0x0 {short}"));
        assert_eq!((write.doing(0), write.descriptor()), (Doing::Writing(Some(0x20000)), Some(3)));
        assert_eq!(call(&format!("181 0x3 0x8049000 0x10 0x1000 0x2 0x0 {short}")).arguments[3], 0x2_0000_1000);
        assert!(call(&format!("212 0x8049000 0x1 0x1 0x0 0x0 0x0 {short}")).changes_owner());
        assert!(!call(&format!("20 0x1 0x2 0x3 0x0 0x0 0x0 {short}")).is_in_vector());
        let long = call("4 0x3 0x7fff0000 0x20000 0x0 0x0 0x0 0x7ffed5465728 0x5594f61a4c8b");
        assert_eq!((long.doing(0), long.descriptor()), (Doing::Writing(None), None));
    }

    /// Regression: at the limit a write from a ring was let go on while a block was left, since rings of other threads came and went as it was
    /// looked for; so was every one from a ring that its process had not mapped.
    #[test]
    fn what_is_written_is_as_long_as_any_where_its_length_cannot_be_read() {
        let call = |number| Call { number, arguments: vec![1, 1, 8, 1, 0, 0], is_compat: false };
        for number in [libc::SYS_writev, libc::SYS_io_submit, libc::SYS_io_uring_enter] {
            assert_eq!(call(number).doing(0), Doing::Writing(Some(CALL)), "{number}");
        }
    }

    #[test]
    fn of_who_is_not_there_the_worst_is_thought() {
        assert_eq!(doing(0), Ok(Doing::Writing(None)));
        for worst in ["-1 0x7f 0x0", "1 0x3"] {
            assert_eq!(Call::parse(worst).unwrap().doing(0), Doing::Writing(None), "{worst}");
        }
        assert!(Call::parse("").is_none() && Call::parse("what").is_none());
    }
}
