//! Crash campaigns: a daemon is killed under load, again and again, and whatever was promised is looked for.
//!
//! Every file is made of cells that carry the file's own tag ([`cell`]), so that bytes in the wrong file show. Names
//! carry the tag too, over renames and links. Who fsyncs a file and its directory writes down what is now promised
//! (`promise`); what happens to it later makes the promise weaker before it begins, and stronger again when it is durable.

pub mod cache;
pub mod cell;
pub mod failing;
pub mod fault;
mod lives;
pub mod power;
mod promise;
pub mod round;
mod verify;
mod workload;

pub use verify::broken_promise;
