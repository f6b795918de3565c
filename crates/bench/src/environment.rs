//! Where the figures come from.

use serde::Serialize;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

/// The machine and the moment of a report.
#[derive(Clone, Debug, Serialize)]
pub struct Environment {
    /// `uname -r`.
    pub kernel: String,
    /// CPUs that the bench may use.
    pub cpus: usize,
    /// The processor's name.
    pub cpu: String,
    /// Memory of the machine.
    pub memory_bytes: u64,
    /// Version of ullage.
    pub ullage: String,
    /// When the bench began, in seconds since 1970.
    pub began_s: u64,
    /// Load average when the bench began: on a busy machine only ratios mean something.
    pub load: f64,
}

impl Environment {
    /// As it is now.
    pub fn here() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, key: &str| {
            let line = text.lines().find(|line| line.starts_with(key));
            line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        Self {
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            cpus: std::thread::available_parallelism().map_or(1, Into::into),
            cpu: field(&read("/proc/cpuinfo"), "model name"),
            memory_bytes: memory.trim_end_matches(" kB").parse::<u64>().unwrap_or(0) << 10,
            ullage: env!("CARGO_PKG_VERSION").into(),
            began_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            load: read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0),
        }
    }
}
