//! `ullage man`.

use anyhow::Context;
use clap::{Args, CommandFactory};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write the manual pages.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  ullage man /usr/local/share/man/man1")]
pub struct Man {
    /// The directory to write them to.
    directory: PathBuf,
}

impl Man {
    /// Writes one page a command.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        std::fs::create_dir_all(&self.directory)
            .with_context(|| format!("cannot create {}", self.directory.display()))?;
        for command in [crate::Arguments::command(), super::MountHelper::command()] {
            let mut command = command.disable_help_subcommand(true);
            command.build();
            write(command, &self.directory).with_context(|| format!("cannot write to {}", self.directory.display()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The pages of a command and those below it.
fn write(command: clap::Command, directory: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()).cloned() {
        write(below, directory)?;
    }
    let page = clap_mangen::Man::new(command);
    let mut text = Vec::new();
    page.render(&mut text)?;
    std::fs::write(directory.join(page.get_filename()), keep_lines(&String::from_utf8_lossy(&text)))
}

/// The text after the options has examples in it, which would be filled like prose.
fn keep_lines(page: &str) -> String {
    const EXTRA: &str = "\n.SH EXTRA\n";
    let Some((before, rest)) = page.split_once(EXTRA) else { return page.to_owned() };
    let (extra, after) = rest.split_at(rest.find("\n.SH ").unwrap_or(rest.len()));
    let kept = |block: &str| {
        let indented = block.lines().any(|line| line.starts_with(' '));
        if indented { format!(".nf\n{block}\n.fi") } else { block.to_owned() }
    };
    let blocks: Vec<String> = extra.trim_end().split("\n\n").map(kept).collect();
    format!("{before}{EXTRA}{}{after}", blocks.join("\n\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `pool`, `bank serve` and `bank rebuild` had none.
    #[test]
    fn every_command_has_an_example() {
        fn look(command: &clap::Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example") || help.contains("In /etc/fstab"), "{path}");
            command.get_subcommands().filter(|below| !below.is_hide_set()).for_each(|below| look(below, &path));
        }
        look(&crate::Arguments::command(), "");
        look(&super::super::MountHelper::command(), "");
    }

    #[test]
    fn examples_in_manual_pages_keep_their_lines() {
        let directory = tempfile::tempdir().unwrap();
        Man { directory: directory.path().to_owned() }.run().unwrap();
        let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
        let check = read("ullage-check.1");
        let extra = &check[check.find(".SH EXTRA").unwrap()..];
        let first = extra.find(".nf\nExamples:\n  ullage down /srv/space").unwrap();
        assert!(extra.find("With ").unwrap() < first, "prose is filled: {extra}");
        assert!(extra.contains("\n.fi\n.SH VERSION"), "{extra}");
        assert!(read("ullage-bank-quota.1").contains(".nf\nExample"));
        assert!(read("mount.fuse.ullage.1").contains(".nf\nIn /etc/fstab:"));
    }
}
