//! `dir` pools on real file systems.

#![allow(missing_docs, clippy::unwrap_used)]

mod cold;
mod common;
mod holders;
mod layout;
mod life;
mod refusals;
