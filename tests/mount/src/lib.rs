//! Tests of the whole program on real mounts. This library starts the program, gives each test a ground of its own
//! and takes everything away again, also when a test fails or hangs. What goes wrong in it panics: it fails the test.

#![deny(missing_docs)]

pub mod binary;
pub mod crash;
pub mod edit;
pub mod ground;
pub mod map;
pub mod process;
pub mod recount;
pub mod run;
pub mod space;
mod sys;
pub mod watchdog;

pub use sys::{
    Handle, Lister, close, come_first, handle_of, has_extent_map, is_delayed, list_into, open_handle, project,
    ring_write, with_own_descriptors, write_as_32_bit_program,
};
