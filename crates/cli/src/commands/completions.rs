//! `ullage completions`.

use clap::{Args, Command, CommandFactory};
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
    clap_complete::generate(shell, &mut shown(&crate::Arguments::command()), "ullage", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// A command without what it does not show, which scripts would offer: nothing takes a command away from another, so what is shown is put
/// together anew. Its names stay for as long as this process, which is a moment.
fn shown(command: &Command) -> Command {
    let kept = |name: &str| -> &'static str { name.to_owned().leak() };
    Command::new(kept(command.get_name()))
        .about(command.get_about().cloned().unwrap_or_default())
        .visible_aliases(command.get_visible_aliases().map(kept))
        .version(command.get_version().map(kept))
        .propagate_version(true)
        .args(command.get_arguments().filter(|argument| !argument.is_hide_set()))
        .subcommands(command.get_subcommands().filter(|below| !below.is_hide_set()).map(shown))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    /// Commands were offered that `ullage` runs for itself alone.
    #[test]
    fn what_is_hidden_is_not_offered() {
        fn hidden(command: &Command) -> usize {
            let below = command.get_subcommands().map(|below| usize::from(below.is_hide_set()) + hidden(below));
            below.sum::<usize>() + command.get_arguments().filter(|argument| argument.is_hide_set()).count()
        }
        let all = crate::Arguments::command();
        assert!(hidden(&all) > 4 && hidden(&shown(&all)) == 0);
        for shell in Shell::value_variants() {
            let script = script(*shell);
            for name in ["sweep", "guard", "report-ready", "linger-ms"] {
                let word = |word: &str| word == name || word == format!("--{name}");
                let mut words = script.split(|char: char| !char.is_alphanumeric() && char != '-');
                assert!(!words.any(word), "{shell} offers {name}");
            }
            assert!(script.contains("histogram"), "{shell}");
        }
    }

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
