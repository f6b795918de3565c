//! The kernel's FUSE protocol, version 7.45 (Linux 6.18), as plain structures.
//!
//! Field names are the kernel's own, so that `layout_tests` can hold every offset against `linux/fuse.h`.

pub mod init;
pub mod input;
pub mod opcode;
pub mod output;
pub mod ring;

#[cfg(test)]
mod layout_tests;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Declares wire structures: C layout, no implicit padding, any bytes are a value.
macro_rules! wire {
    ($($(#[$doc:meta])* $name:ident { $($field:ident : $kind:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)]
        pub struct $name { $(pub $field: $kind),* }

        impl Default for $name {
            fn default() -> Self {
                zerocopy::FromZeros::new_zeroed()
            }
        }
    )*};
}
pub(crate) use wire;

/// The major version spoken here.
pub const MAJOR: u32 = 7;
/// The minor version spoken here.
pub const MINOR: u32 = 45;

wire! {
    /// `struct fuse_in_header`: starts every request.
    InHeader {
        len: u32,
        opcode: u32,
        unique: u64,
        nodeid: u64,
        uid: u32,
        gid: u32,
        pid: u32,
        total_extlen: u16,
        padding: u16,
    }
    /// `struct fuse_out_header`: starts every reply and notification.
    OutHeader { len: u32, error: i32, unique: u64 }
}

/// Bytes of [`InHeader`].
pub const IN_HEADER: usize = size_of::<InHeader>();
/// Bytes of [`OutHeader`].
pub const OUT_HEADER: usize = size_of::<OutHeader>();

/// Reads a structure from the front of `bytes`; `None` when they are too few.
pub fn read<T: FromBytes + KnownLayout + Immutable>(bytes: &[u8]) -> Option<T> {
    T::read_from_prefix(bytes).ok().map(|(value, _)| value)
}

/// Writes a structure to the front of `into`; `None` when it does not fit.
pub fn write<T: IntoBytes + Immutable>(value: &T, into: &mut [u8]) -> Option<usize> {
    value.write_to_prefix(into).ok().map(|()| size_of::<T>())
}
