//! `ullage completions`.

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::process::ExitCode;

/// Print a completion script for a shell.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  ullage completions bash > /etc/bash_completion.d/ullage")]
pub struct Completions {
    /// The shell.
    shell: Shell,
}

impl Completions {
    /// Prints it.
    pub fn run(self) -> ExitCode {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::Arguments::command(), "ullage", &mut script);
        crate::output::text(&String::from_utf8_lossy(&script));
        ExitCode::SUCCESS
    }
}
