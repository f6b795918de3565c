//! The program as its users run it, without a mount: banks, stores and clients as processes, benches, simulations.

#![allow(missing_docs, clippy::format_collect, clippy::format_push_string, clippy::unwrap_used)]

mod bench;
mod clients;
mod crash;
mod faults;
mod install;
mod private;
mod simulate;
mod site;
mod transfers;
