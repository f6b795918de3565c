//! Measuring: a user goes away and comes back, beside a hog, under several systems (figures 6 to 8).

mod away;
mod figure3;
pub mod load;
mod report;
mod sandbox;
mod sweep;

pub use away::{Plan, Record, SETS, SYSTEMS, run};
pub use report::{read, write};
pub use sweep::watch;
