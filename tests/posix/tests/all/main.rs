//! The suite on native ext4, where it proves itself, and on spaces.

#![allow(missing_docs, clippy::unwrap_used)]

mod native_ext4;
mod on_a_space;
mod suite;
