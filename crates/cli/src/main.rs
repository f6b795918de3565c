//! The `ullage` command: arguments, one call, output.

#[macro_use]
mod output;
mod commands;
mod log;
mod users;

use clap::Parser;

/// Disk space that is elastic, guaranteed, fairly reclaimed and exactly accounted for.
#[derive(Debug, Parser)]
#[command(
    name = "ullage",
    version,
    propagate_version = true,
    max_term_width = 100,
    after_help = "\
Examples:
  ullage up /srv/space --pool main=/data/pool    make a space; its files lie in /data/pool
  ullage status /srv/space
  ullage du /srv/space/projects
  ullage down /srv/space
  ullage COMMAND --help                          examples of each command
  ULLAGE_LOG=debug ullage up /srv/space          more in the log: error, warn, info, debug or trace"
)]
pub struct Arguments {
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> std::process::ExitCode {
    let name = std::env::args_os().next();
    if ullage_daemon::is_envoy(name.as_deref()) {
        return ullage_daemon::be_envoy();
    }
    let filter = log::filter(std::env::var_os("ULLAGE_LOG").as_deref());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(log::Log::default())
        .with_target(false)
        .with_ansi(false)
        .log_internal_errors(false)
        .init();
    if commands::MountHelper::is_meant(name.as_ref()) {
        return commands::MountHelper::start();
    }
    match commands::run(Arguments::parse().command).and_then(|code| output::finish().map(|()| code)) {
        Ok(code) => code,
        Err(error) => {
            whisper!("ullage: {}", output::error(&error));
            std::process::ExitCode::from(1)
        }
    }
}
