//! Running the suite.

use std::path::Path;
use std::process::{Command, Output};

pub fn suite(arguments: &[&str], paths: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_posix-suite")).args(arguments).args(paths).output().unwrap()
}

/// Runs it; what did not pass shows when it fails.
pub fn passes(arguments: &[&str], paths: &[&Path]) {
    let output = suite(arguments, paths);
    let text = String::from_utf8_lossy(&output.stdout);
    let told: Vec<&str> = text.lines().filter(|line| !line.starts_with("passed")).collect();
    assert!(output.status.success(), "{}\n{}", told.join("\n"), String::from_utf8_lossy(&output.stderr));
}
