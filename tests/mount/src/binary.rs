//! The program under test.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The `ullage` binary: `ULLAGE_BIN`, or else built now, once a process.
pub fn path() -> &'static PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| std::env::var_os("ULLAGE_BIN").map_or_else(build, PathBuf::from))
}

fn build() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "-p", "ullage-cli", "--message-format=json", "--manifest-path"]);
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml"));
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    let output = command.output().expect("cargo can be started");
    assert!(output.status.success(), "the program cannot be built:\n{}", String::from_utf8_lossy(&output.stderr));
    // Cargo says itself where it put the program.
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "ullage")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .expect("cargo names the program it built")
}
