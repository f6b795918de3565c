//! What the project wants ullage to reach, as multiples of native ext4.

/// The wanted ratio for one metric of a workload: at most this for times, at least this for throughput.
pub fn reach(system: &str, workload: &str, metric: &str) -> Option<f64> {
    if system != "ullage" && !system.starts_with("ullage:") {
        return None;
    }
    let group = workload.split('-').next().unwrap_or(workload);
    match (group, metric) {
        ("postmark", "total") if workload["postmark".len()..].trim_start_matches('-').parse::<u8>().is_ok() => {
            Some(3.0)
        }
        ("postmark", "total") if workload == "postmark" => Some(3.0),
        ("find", _) => Some(if workload.starts_with("find-cold") { 1.2 } else { 0.8 }),
        ("build", _) => Some(1.05),
        ("io", _) => Some(if metric.ends_with("-4k") { 0.92 } else { 0.97 }),
        ("metarates", "create") => Some(4.0),
        ("metarates", "stat") => Some(1.1),
        ("metarates", "unlink") => Some(2.0),
        ("fsync", _) => Some(1.3),
        ("git" | "sqlite", _) | ("mail", "deliver") => Some(1.5),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::reach;

    #[test]
    fn only_ullage_is_asked_for_anything() {
        assert_eq!(reach("ullage:--transport fuser", "postmark-8", "total"), Some(3.0));
        assert_eq!(reach("mergerfs", "postmark-8", "total"), None);
        assert_eq!(reach("ullage", "postmark-unbuffered", "total"), None);
        assert_eq!(reach("ullage", "postmark", "create"), None);
        assert_eq!(reach("ullage", "find-cold-sizes", "total"), Some(1.2));
        assert_eq!(reach("ullage", "io", "read-seq-4k"), Some(0.92));
    }
}
