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
        crate::output::text(&script(self.shell));
        ExitCode::SUCCESS
    }
}

fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut crate::Arguments::command(), "ullage", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of files were offered in their place.
    #[test]
    fn the_transports_are_offered_by_name() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell);
            for name in ["io-uring", "fuser"] {
                assert!(script.contains(name), "{shell} offers no {name}");
            }
        }
    }
}
