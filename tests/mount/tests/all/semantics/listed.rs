//! Whether the document and the tests know each other.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Where tests and checks are, from the top of the project.
const SOURCES: [&str; 8] = [
    "tests/mount/tests",
    "tests/posix",
    "crates/catalog",
    "crates/daemon",
    "crates/fs",
    "crates/fuse/tests",
    "crates/pool",
    "crates/cli/tests",
];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The statements of the document, each with what follows it up to the next.
fn statements(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut open = false;
    for line in text.lines() {
        if line.starts_with("- ") {
            found.push(String::new());
            open = true;
        } else if !line.starts_with("  ") {
            open = false;
        }
        if let (true, Some(statement)) = (open, found.last_mut()) {
            statement.push_str(line.trim());
            statement.push(' ');
        }
    }
    found
}

#[test]
fn every_statement_names_tests_and_each_exists() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(top.join("docs/SEMANTICS.md")).unwrap();
    let mut files = Vec::new();
    for directory in SOURCES {
        sources(&top.join(directory), &mut files);
    }
    let mut functions = BTreeSet::new();
    for file in files {
        let source = fs::read_to_string(file).unwrap();
        let names = source.lines().filter_map(|line| line.trim().strip_prefix("fn ")?.split(['(', '<']).next());
        functions.extend(names.map(str::to_owned));
    }
    let statements = statements(&text);
    assert!(statements.len() > 40, "the document is read: {}", statements.len());
    for statement in statements {
        let (_, tests) = statement.rsplit_once('→').unwrap_or_else(|| panic!("no test is named: {statement}"));
        let names: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "no test is named: {statement}");
        for name in names {
            assert!(functions.contains(name), "there is no test `{name}`: {statement}");
        }
    }
}
