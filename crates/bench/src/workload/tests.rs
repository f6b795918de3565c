use super::*;
use std::collections::HashSet;

fn context(scratch: &Path) -> Context {
    Context {
        helper: crate::worker::tests::helper(),
        scratch: scratch.to_owned(),
        cache: std::env::temp_dir().join("ullage-bench-sources"),
        seed: 1,
        quick: true,
        file_bytes: 4 << 20,
    }
}

#[test]
fn names_are_unique_and_fit_for_a_command_line() {
    let names: Vec<String> = catalogue().iter().map(|w| w.name()).collect();
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
    assert!(names.iter().all(|n| n.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')));
}

/// Runs every workload of a group twice in its quick form on a plain directory.
fn leaves_nothing_behind(group: &str) {
    let mut ran = 0;
    for workload in catalogue().into_iter().filter(|w| w.name().starts_with(group)) {
        let name = workload.name();
        let (scratch, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let context = context(scratch.path());
        if let Some(reason) = workload.unavailable(&context) {
            panic!("{name}: {reason}");
        }
        workload.prepare(&context, place.path()).unwrap();
        for seed in 1..3 {
            let measured = workload.run(&context, place.path(), seed).unwrap();
            assert!(!measured.is_empty() && measured.iter().all(|m| m.value > 0.0), "{name}: {measured:?}");
            workload.reset(&context, place.path()).unwrap();
        }
        assert!(workload.operations(&context).0 > 0);
        workload.cleanup(&context, place.path()).unwrap();
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "{name} leaves something");
        ran += 1;
    }
    assert!(ran > 0);
}

#[test]
fn postmark_leaves_nothing_behind() {
    leaves_nothing_behind("postmark");
}

#[test]
fn find_leaves_nothing_behind() {
    leaves_nothing_behind("find");
}

#[test]
fn build_leaves_nothing_behind() {
    leaves_nothing_behind("build");
}

#[test]
fn io_leaves_nothing_behind() {
    leaves_nothing_behind("io");
}

#[test]
fn metarates_leaves_nothing_behind() {
    leaves_nothing_behind("metarates");
}

#[test]
fn durable_workloads_leave_nothing_behind() {
    for group in ["fsync", "git", "sqlite", "mail"] {
        leaves_nothing_behind(group);
    }
}
