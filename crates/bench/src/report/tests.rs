use super::*;
use std::path::{Path, PathBuf};

fn needs() -> Needs {
    Needs {
        helper: Vec::new(),
        scratch: PathBuf::new(),
        cache: PathBuf::new(),
        seed: 1,
        quick: true,
        file_bytes: 1 << 20,
    }
}

/// A report as a run would make it.
pub fn example() -> Report {
    let options = Options {
        systems: vec!["native".into(), "ullage".into()],
        extra_up: Vec::new(),
        workloads: vec!["postmark".into()],
        runs: 3,
        quick: true,
        seed: 1,
        work: PathBuf::new(),
        image_bytes: 1 << 30,
        file_bytes: 1 << 20,
        program: PathBuf::new(),
        helper: Vec::new(),
    };
    let needs = needs();
    let workload = crate::workload::catalogue().remove(0);
    let runs = |values: [f64; 3]| values.map(|v| vec![Measurement::seconds("total", v)]).to_vec();
    let messages = Some(MessageCounts::from([("LOOKUP".into(), 800)]));
    let sides = [("native".into(), runs([1.0, 2.0, 3.0]), None), ("ullage".into(), runs([2.0, 2.0, 12.0]), messages)];
    let mut report = Report::new(Environment::here(), options);
    report.series = Series::of(&*workload, &needs, sides).unwrap();
    report.skip(&|_| (), "bindfs", None, "bindfs is not installed".into());
    report
}

#[test]
fn ratios_are_taken_within_pairs() {
    let report = example();
    let series = &report.series[0];
    // 2/1, 2/2, 12/3: the median of ratios is 2, not the ratio of medians 2/2.
    assert_eq!(series.ratio.as_ref().unwrap().median, 2.0);
    assert_eq!((series.reach, series.reached()), (Some(3.0), Some(true)));
    assert_eq!(series.messages["LOOKUP"], 2.0, "800 in 400 transactions");
}

#[test]
fn every_form_shows_the_figures_and_what_was_left_out() {
    let report = example();
    let table = table_of(&report);
    assert!(
        table.contains("postmark") && table.contains("2.00") && table.contains("bindfs is not installed"),
        "{table}"
    );
    assert!(table.contains("LOOKUP 2.00"), "{table}");
    let svg = svg_of(&report).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("postmark") && svg.trim_end().ends_with("</svg>"));
    let json: serde_json::Value = serde_json::to_value(&report).unwrap();
    assert_eq!(json["version"], 1);
    assert_eq!(json["series"][0]["ratio"]["median"], 2.0);
}

#[test]
fn files_are_written_whole_into_a_directory_that_need_not_exist() {
    let directory = tempfile::tempdir().unwrap();
    let written = write_files(&example(), &directory.path().join("a/b"), "name").unwrap();
    assert_eq!(written.len(), 2);
    assert!(written.iter().all(|path| std::fs::metadata(path).unwrap().len() > 500));
    assert_eq!(std::fs::read_dir(directory.path().join("a/b")).unwrap().count(), 2, "no temporary file stays");
}

/// Regression: after hours the report could not be written, and was lost.
#[test]
fn what_cannot_be_written_is_refused_before_it_is_measured() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["a/b", "/a", "..", ".", "", "a/"] {
        assert!(make_place(directory.path(), name).unwrap_err().to_string().contains("--out"), "{name:?}");
    }
    // Nobody, root neither, writes there.
    assert!(make_place(Path::new("/proc/self"), "name").is_err());
    make_place(directory.path(), "name").unwrap();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// Regression: where the first system was not installed the figures were said to be its multiples.
#[test]
fn the_baseline_is_named_that_was_measured() {
    let mut report = example();
    report.options.systems.insert(0, "mergerfs".into());
    assert!(table_of(&report).contains("system ÷ native"), "{}", table_of(&report));
    assert!(svg_of(&report).unwrap().contains("Multiples of native"));
}

/// Regression: what is wanted as a multiple of native ext4 was compared with multiples of any other system.
#[test]
fn only_multiples_of_native_are_held_against_what_is_wanted() {
    let workload = crate::workload::catalogue().remove(0);
    let runs = |value| vec![vec![Measurement::seconds("total", value)]];
    let reach = |baseline: &str| {
        let sides = [(baseline.to_owned(), runs(1.0), None), ("ullage".into(), runs(2.0), None)];
        Series::of(&*workload, &needs(), sides).unwrap()[0].reach
    };
    assert_eq!((reach("native"), reach("mergerfs")), (Some(3.0), None));
}
