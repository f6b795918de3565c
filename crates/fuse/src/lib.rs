//! FUSE adapter: decode, call, reply; transports behind one trait.
//!
//! [`mount`] serves an [`ullage_fs::Filesystem`] over the best transport the machine has: FUSE over io_uring, where a
//! request is handled on the CPU that sent it, or readers of `/dev/fuse`.

#![deny(missing_docs)]

mod abi;
mod affinity;
mod choose;
mod connection;
mod core;
mod counters;
mod courtesy;
mod decode;
#[cfg(test)]
mod decode_tests;
mod device;
mod dispatch;
mod entrance;
mod envoy;
mod fuser_adapter;
mod lines;
mod mapped;
mod message;
mod mount;
mod mounts;
mod negotiate;
mod options;
mod point;
mod refresh;
mod reply;
#[cfg(test)]
mod reply_tests;
mod request;
mod servers;
mod standing;
mod sys;
mod uring;
mod workers;

pub use choose::{Chosen, Transport, refuse_uring, uring_is_off};
pub use connection::mounted_at;
pub use counters::Counters;
pub use envoy::{be_envoy, is_envoy};
pub use fuser_adapter::{FuserMount, FuserOptions, mount_with_fuser};
pub use mount::{Mounted, mount};
pub use mounts::{Listed, list_mounts};
pub use options::{Choice, MountOptions, Readers};
pub use point::unmount_at;
pub use rustix::mount::MountFlags;

/// Decodes bytes as if the device had sent them, as far as it goes: the fuzzer's way in. Must never panic.
#[doc(hidden)]
pub fn fuzz_decode(bytes: &[u8], setxattr_ext: bool) {
    let dialect = message::Dialect { setxattr_ext };
    if let Ok(message) = message::Message::from_device(bytes, dialect)
        && let Ok(request) = decode::decode(&message, dialect)
    {
        let _ = (request.blocks(true), request.is_silent());
        if let request::Request::BatchForget(forgets) = &request {
            forgets.iter().for_each(drop);
        }
    }
}
