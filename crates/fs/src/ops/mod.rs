//! One operation, or one family of them, per file.

mod copy;
mod create;
mod data;
mod directory;
mod fallocate;
mod forget;
mod link;
mod lookup;
mod lseek;
mod open;
mod rename;
mod setattr;
mod statfs;
mod sync;
mod unlink;
mod xattr;

pub(crate) use data::Stream;
pub(crate) use directory::Listing;
