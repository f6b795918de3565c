//! Stores, the client and the bank, over real connections and on real disks.

#![allow(missing_docs, clippy::format_collect, clippy::format_push_string, clippy::unwrap_used)]

mod addressed;
mod bad_input;
mod bounds;
mod chunks;
mod cluster;
mod disk;
mod disks;
mod ends;
mod failing;
mod files;
mod late;
mod lives;
mod names;
mod repeats;
mod revocation;
mod stopped;
