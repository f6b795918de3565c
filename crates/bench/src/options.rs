//! What a run of the bench does.

use serde::Serialize;
use std::ffi::OsString;
use std::path::PathBuf;

/// Everything that is decided before the first sample.
#[derive(Clone, Debug, Serialize)]
pub struct Options {
    /// Systems, as `KIND` or `KIND:ARGUMENTS`; the first is what the others are compared with.
    pub systems: Vec<String>,
    /// Further arguments for every `ullage up`.
    pub extra_up: Vec<String>,
    /// Names or groups (`metarates` for all of its sizes); empty is all.
    pub workloads: Vec<String>,
    /// Pairs per workload and system, the discarded warm-up not counted.
    pub runs: usize,
    /// The short form.
    pub quick: bool,
    /// Decides the order within pairs and what the workloads do.
    pub seed: u64,
    /// Where the image lies.
    #[serde(skip)]
    pub work: PathBuf,
    /// Size of the image.
    pub image_bytes: u64,
    /// Size of the file of the workload `io`.
    pub file_bytes: u64,
    /// The `ullage` to measure.
    #[serde(skip)]
    pub program: PathBuf,
    /// The command that makes this program a worker.
    #[serde(skip)]
    pub helper: Vec<OsString>,
}
