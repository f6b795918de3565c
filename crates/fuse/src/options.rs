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
/// All readers share one queue, so none can be bound to the CPU its requests come from. Measured with
/// `examples/roundtrip.rs` (2 CPUs, busy machine, medians of 7 rounds): one reader and two bound ones answer a single
/// client nearly alike (p50 3.5 and 3.8 µs); two bound ones serve two clients at 382,000 calls/s against 255,000; two
/// that are not bound are less steady (p50 3.6 to 11.6 µs from round to round) and slower; polling before sleeping takes
/// the CPU from the client it waits for (p99 25 to 51 µs). Hence the default: one per CPU, bound, no polling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readers {
    /// How many threads; 0: one for each allowed CPU, eight at most.
    pub threads: usize,
    /// Whether each is bound to a CPU.
    pub pinned: bool,
    /// How long a reader polls before it sleeps.
    pub spin: Duration,
}

impl Default for Readers {
    fn default() -> Self {
        Self { threads: 0, pinned: true, spin: Duration::ZERO }
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
    /// Threads for calls that wait for disks, at most.
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
