//! Simulations that drive the shipping voucher code: whole clusters with faults ([`faults`]), and the paper's
//! performance study ([`study`]).

#![deny(missing_docs)]

pub mod faults;
mod rng;
pub mod study;
mod threads;

pub use rng::Rng;
