//! The catalog against a reference model: generated operations, power cuts, threads.

#![allow(missing_docs, clippy::unwrap_used)]

mod bed;
mod born;
mod faults;
mod limits;
mod memory;
mod model;
mod named;
mod properties;
mod repair;
mod run;
mod threads;
#[allow(dead_code)]
#[path = "../../../kv/tests/it/world.rs"]
mod world;
