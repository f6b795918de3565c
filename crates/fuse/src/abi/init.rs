//! INIT: structures and flags. The low half of the flags travels in `flags`, the high half in `flags2`.

use super::wire;

wire! {
    /// `struct fuse_init_in`
    InitIn { major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11] }
    /// `struct fuse_init_out`
    InitOut {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        max_background: u16,
        congestion_threshold: u16,
        max_write: u32,
        time_gran: u32,
        max_pages: u16,
        map_alignment: u16,
        flags2: u32,
        max_stack_depth: u32,
        request_timeout: u16,
        unused: [u16; 11],
    }
}

/// Bytes of `struct fuse_init_in` before 7.36.
pub const COMPAT_INIT_IN: usize = 16;

/// Declares the flags, with a table for the layout tests.
macro_rules! flags {
    ($($name:ident = $bit:literal),* $(,)?) => {
        $(pub const $name: u64 = 1 << $bit;)*
        /// Every flag, for the layout tests.
        #[cfg(test)]
        pub const ALL: &[(&str, u64)] = &[$((stringify!($name), 1 << $bit)),*];
    };
}

flags! {
    ASYNC_READ = 0,
    EXPORT_SUPPORT = 4,
    BIG_WRITES = 5,
    DONT_MASK = 6,
    DO_READDIRPLUS = 13,
    READDIRPLUS_AUTO = 14,
    PARALLEL_DIROPS = 18,
    POSIX_ACL = 20,
    ABORT_ERROR = 21,
    MAX_PAGES = 22,
    CACHE_SYMLINKS = 23,
    EXPLICIT_INVAL_DATA = 25,
    HANDLE_KILLPRIV_V2 = 28,
    SETXATTR_EXT = 29,
    INIT_EXT = 30,
    HAS_EXPIRE_ONLY = 35,
    DIRECT_IO_ALLOW_MMAP = 36,
    PASSTHROUGH = 37,
    OVER_IO_URING = 41,
}
