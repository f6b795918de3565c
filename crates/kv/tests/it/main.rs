//! Tests of the store from outside.

#![allow(clippy::unwrap_used, reason = "all of this is tests")]

mod basics;
mod faults;
mod follow;
mod kill;
mod model;
mod power;
mod room;
mod threads;
mod torn;
mod world;
