//! How to mount.

use rustix::mount::MountFlags;
use std::time::Duration;

/// Which transport to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The best there is on this machine.
    #[default]
    Best,
    /// FUSE over io_uring or nothing.
    IoUring,
    /// `/dev/fuse` only.
    Device,
}

/// How `/dev/fuse` is read.
///
/// All readers share one queue, from which the kernel wakes the one that has waited longest, wherever it runs. Measured with
/// `examples/roundtrip.rs` (2 CPUs, busy machine, medians of 5 rounds, two runs): one reader that follows its caller answers a single client
/// in 6.4 µs, p99 9 µs, two bound ones in 6.3 to 8.0 µs, p99 42 to 47 µs; over io_uring it takes 7.5 and 11 µs. Clients on both
/// CPUs are served alike by either, since all readers come where one does not keep up. Polling before sleeping takes the CPU
/// from the client that is waited for (p99 25 to 51 µs).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readers {
    /// How many threads; 0: one for each allowed CPU, eight at most.
    pub threads: usize,
    /// Whether each is bound to a CPU.
    pub pinned: bool,
    /// How long a reader polls before it sleeps.
    pub spin: Duration,
    /// Whether one reader alone, where its caller runs, waits for requests as long as it keeps up with them.
    pub follow: bool,
}

impl Default for Readers {
    fn default() -> Self {
        Self { threads: 0, pinned: true, spin: Duration::ZERO, follow: true }
    }
}

/// How to mount a file system.
#[allow(clippy::struct_excessive_bools, reason = "independent mount options are independent switches")]
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Shown as the mount's source.
    pub source: String,
    /// Shown after `fuse.` as its type.
    pub subtype: String,
    /// Which transport to use.
    pub transport: Choice,
    /// Switch the kernel module's parameter `enable_uring` on if it is off (needs root, affects the whole machine and
    /// stays on).
    pub enable_uring: bool,
    /// How `/dev/fuse` is read where it is the transport.
    pub readers: Readers,
    /// Requests a CPU's ring holds at first; it grows while workers hold some. Each takes 1 MiB of address space, and of
    /// memory what it uses.
    pub ring_depth: usize,
    /// Threads for calls that wait for disks, as long as those return.
    pub max_workers: usize,
    /// READ and WRITE wait for disks too.
    pub blocking_io: bool,
    /// Ask for passthrough.
    pub passthrough: bool,
    /// Other users than the one who mounts may use it.
    pub allow_other: bool,
    /// What mount(2) is told: read-only, without setuid programs and the like.
    pub flags: MountFlags,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            source: "ullage".into(),
            subtype: "ullage".into(),
            transport: Choice::Best,
            enable_uring: false,
            readers: Readers::default(),
            ring_depth: 8,
            max_workers: 64,
            blocking_io: false,
            passthrough: true,
            allow_other: true,
            flags: MountFlags::empty(),
        }
    }
}
