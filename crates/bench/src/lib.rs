//! Workloads and the side-by-side harness behind `ullage bench`.
//!
//! Every workload runs on a plain ext4 and on file systems stacked over that same ext4, in interleaved pairs; what is
//! reported is the median over pairs of the ratio within a pair, with its confidence interval. `docs/BENCHMARKS.md`
//! says how to run it and what each workload does.

#![deny(missing_docs)]
#![cfg_attr(test, allow(clippy::float_cmp, reason = "tests choose figures that are exact"))]

mod caches;
mod cleanup;
mod environment;
mod ground;
mod harness;
mod measurement;
mod options;
mod random;
mod report;
mod shell;
mod sources;
mod statistics;
mod system;
mod tree;
mod worker;
mod workload;

pub use cleanup::install as install_cleanup;
pub use environment::Environment;
pub use harness::run;
pub use measurement::{Measurement, Unit};
pub use options::Options;
pub use report::{Report, Series, Skipped, make_place, svg_of, table_of, write_files};
pub use statistics::{Interval, Summary};
pub use worker::run_worker;
pub use workload::{Workload, catalogue};
