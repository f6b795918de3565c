//! The time that new timestamps get.

use ullage_types::Timestamp;

/// The kernel's coarse clock: the one file systems stamp their files with, so that a time given here is never later
/// than one that a backing file gets afterwards.
pub fn now() -> Timestamp {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    Timestamp { seconds: time.tv_sec, nanoseconds: time.tv_nsec as u32 }
}
