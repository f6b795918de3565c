//! One figure of one run.

use serde::Serialize;

/// What a figure counts, and so which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Seconds for the whole of it: less is better.
    Seconds,
    /// Seconds for one operation: less is better.
    SecondsPerOperation,
    /// Bytes moved in a second: more is better.
    BytesPerSecond,
}

impl Unit {
    /// Whether a larger figure is the better one.
    pub fn more_is_better(self) -> bool {
        self == Self::BytesPerSecond
    }

    /// A figure as a person reads it.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::BytesPerSecond => format!("{:.0} MB/s", value / 1e6),
            Self::Seconds | Self::SecondsPerOperation if value >= 0.1 => format!("{value:.2} s"),
            Self::Seconds | Self::SecondsPerOperation if value >= 1e-3 => format!("{:.2} ms", value * 1e3),
            Self::Seconds | Self::SecondsPerOperation => format!("{:.2} µs", value * 1e6),
        }
    }
}

/// One figure of one run of a workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measurement {
    /// Which part of the workload: `total`, `create`, `read-4k` and the like.
    pub metric: String,
    /// The figure, in `unit`.
    pub value: f64,
    /// What it counts.
    pub unit: Unit,
}

impl Measurement {
    /// Seconds that a part took.
    pub fn seconds(metric: &str, value: f64) -> Self {
        Self { metric: metric.into(), value, unit: Unit::Seconds }
    }

    /// Seconds that each of `operations` took on average.
    pub fn per_operation(metric: &str, seconds: f64, operations: u64) -> Self {
        Self { metric: metric.into(), value: seconds / operations as f64, unit: Unit::SecondsPerOperation }
    }

    /// Throughput of moving `bytes` in `seconds`.
    pub fn throughput(metric: &str, bytes: u64, seconds: f64) -> Self {
        Self { metric: metric.into(), value: bytes as f64 / seconds, unit: Unit::BytesPerSecond }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_well() {
        assert_eq!(Unit::Seconds.show(12.345), "12.35 s");
        assert_eq!(Unit::Seconds.show(0.0123), "12.30 ms");
        assert_eq!(Unit::SecondsPerOperation.show(2.7e-6), "2.70 µs");
        assert_eq!(Unit::BytesPerSecond.show(2.5e9), "2500 MB/s");
    }

    #[test]
    fn rates_are_per_operation_and_per_second() {
        assert_eq!(Measurement::per_operation("create", 1.0, 4).value, 0.25);
        assert_eq!(Measurement::throughput("read", 100, 2.0).value, 50.0);
        assert!(Unit::BytesPerSecond.more_is_better() && !Unit::Seconds.more_is_better());
    }
}
