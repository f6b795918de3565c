//! A space driven as a transport drives it, without a mount, against a model: names, contents, attributes, and what is
//! left in the pool.

#![allow(missing_docs, clippy::unwrap_used)]

mod bed;
mod disks;
mod limits;
mod model;
mod modes;
mod properties;
mod rest;
mod threads;
