//! One file per command; this list is their table of contents.

mod bank;
mod bench;
mod check;
mod completions;
mod df;
mod down;
mod du;
mod get;
mod hint;
mod interrupt;
mod limit;
mod ls;
mod man;
mod memory;
mod mount;
mod pipe;
mod pki;
mod pool;
mod put;
mod rebuild;
mod remote;
mod rm;
mod simulate;
mod stat;
mod status;
mod store;
mod up;

pub use mount::MountHelper;

use anyhow::Context;
use clap::Subcommand;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use ullage_daemon::State;

/// What the user asks for.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a space, or start one that was made before, and mount it.
    Up(up::Up),
    /// Unmount a space and end its daemon.
    Down(down::Down),
    /// Show how a space is.
    Status(status::Status),
    /// Show what a space knows of a file: class, pool, backing path, charge.
    Stat(stat::Stat),
    /// Show what lies below a directory, at once however large it is.
    Du(du::Du),
    /// Show what is free and what is used, at once.
    Df(df::Df),
    /// Limit what a user, a directory or the whole space may use, or show the limits.
    Limit(limit::Limit),
    /// Look at pools, add some, and take them away.
    Pool(pool::Pool),
    /// Check a space that is down: every record, every total, every backing file.
    Check(check::Check),
    /// Make the state of a space again from its pools.
    Rebuild(rebuild::Rebuild),
    /// Measure ullage beside native ext4 and other stacked file systems.
    Bench(bench::Bench),
    /// Lend idle memory to background work, and take it back unmissed.
    Memory(memory::Memory),
    /// Print a completion script for a shell.
    Completions(completions::Completions),
    /// Write the manual pages.
    Man(man::Man),
    /// Simulate banks, clients and storage servers with the code that ships.
    Simulate(simulate::Simulate),
    /// Run a bank, or ask one: quotas, history, cheaters
    Bank(bank::Arguments),
    /// Copy a file from the storage servers
    Get(get::Arguments),
    /// List files on the storage servers
    Ls(ls::Arguments),
    /// Make certificates, keys and tokens
    Pki(pki::Arguments),
    /// Copy a file to the storage servers
    Put(put::Arguments),
    /// Remove files from the storage servers
    Rm(rm::Arguments),
    /// Run a storage server
    Store(store::Arguments),
}

/// Runs one command and gives its exit code: 0 done, 1 refused or failed (2 is clap's, for usage).
pub fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Up(up) => up.refuse_misuse().unwrap_or_else(|error| error.exit()).run(),
        Command::Down(down) => down.run(),
        Command::Status(status) => status.run(),
        Command::Stat(stat) => stat.run(),
        Command::Du(du) => du.run(),
        Command::Df(df) => df.run(),
        Command::Limit(limit) => limit.run(),
        Command::Pool(pool) => pool.run(),
        Command::Check(check) => check.run(),
        Command::Rebuild(rebuild) => rebuild.run(),
        Command::Bench(bench) => bench.run(),
        Command::Completions(completions) => Ok(completions.run()),
        Command::Man(man) => man.run(),
        Command::Memory(memory) => memory::run(memory),
        Command::Simulate(simulate) => simulate.run(),
        Command::Bank(arguments) => bank::run(arguments),
        Command::Get(arguments) => get::run(arguments),
        Command::Ls(arguments) => ls::run(arguments),
        Command::Pki(arguments) => pki::run(arguments),
        Command::Put(arguments) => put::run(arguments),
        Command::Rm(arguments) => rm::run(arguments),
        Command::Store(arguments) => store::run(arguments),
    }
}

/// The state of the space mounted (or to be mounted) at a path, or else of the one that it lies in.
fn state_of(path: &Path, state: Option<&Path>) -> anyhow::Result<ullage_daemon::State> {
    let own = state_at(path, state)?;
    // A space that is down may be meant to be mounted within one that is up.
    if state.is_some() || own.settings_path().exists() {
        return Ok(own);
    }
    Ok(ullage_daemon::find_mount(path).map_or(own, |(_, around)| around))
}

/// The same for one that is, or is to be, mounted at this very path.
fn state_at(path: &Path, state: Option<&Path>) -> anyhow::Result<ullage_daemon::State> {
    if let Some(state) = state {
        return Ok(ullage_daemon::State::at(std::path::absolute(state)?));
    }
    let settled = settled(path)?;
    match ullage_daemon::find_mount(path) {
        Ok((point, state)) if point == settled => Ok(state),
        _ => Ok(ullage_daemon::State::of_mountpoint(&settled)),
    }
}

/// What the space gives only to who may read a file, so that its daemon can be shown that. Links are followed.
fn proof(path: &Path) -> Option<u64> {
    let mut value = [0; 20];
    let length = rustix::fs::getxattr(path, "user.ullage.proof", &mut value[..]).ok()?;
    std::str::from_utf8(&value[..length]).ok()?.parse().ok()
}

/// Refuses a space that is up, for what needs one that is down.
fn refuse_up(mountpoint: &Path, state: &ullage_daemon::State) -> anyhow::Result<()> {
    if ullage_daemon::Client::connect(state)?.is_some() {
        anyhow::bail!(
            "{} is up; end it with `{}` first",
            mountpoint.display(),
            hint::command("down", state, mountpoint)
        );
    }
    Ok(())
}

/// Refuses a path within a space whose daemon is silent: looking at it would never end. At its mount point itself the daemon is asked, or
/// done without.
fn refuse_silent_around(path: &Path) -> anyhow::Result<()> {
    let path = std::path::absolute(path)?;
    Ok(path.parent().map_or(Ok(()), |parent| ullage_daemon::refuse_silent(parent, PATIENCE))?)
}

/// A path by its one name, of a mount point that may lie in a space.
fn settled(path: &Path) -> anyhow::Result<PathBuf> {
    refuse_silent_around(path)?;
    Ok(ullage_daemon::settled(path)?)
}

/// How long the answer to a question may take.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

/// Has the daemon do something that it says nothing of but that it is done. One that is silent is not waited for.
fn have_done(client: &mut ullage_daemon::Client, request: &ullage_daemon::Request) -> anyhow::Result<()> {
    client.patience(Some(PATIENCE));
    match client.ask(request)? {
        ullage_daemon::Answer::Done => Ok(()),
        _ => anyhow::bail!("the daemon answered another question"),
    }
}

/// What is told of each path. Of those of which nothing can be told standard error says why, and so does the exit code.
fn of_each<T>(paths: &[PathBuf], ask: impl Fn(&Path) -> anyhow::Result<T>) -> (Vec<(&PathBuf, T)>, ExitCode) {
    let (mut told, mut code) = (Vec::new(), ExitCode::SUCCESS);
    for path in paths {
        match ask(path) {
            Ok(answer) => told.push((path, answer)),
            Err(error) => {
                code = ExitCode::FAILURE;
                whisper!("ullage: {}", crate::output::error(&error));
            }
        }
    }
    (told, code)
}

/// A connection to the daemon of a space that is up, for questions.
fn connect(state: &ullage_daemon::State, mountpoint: &Path) -> anyhow::Result<ullage_daemon::Client> {
    let mut client = ullage_daemon::Client::connect(state)?.ok_or_else(|| not_up(state, mountpoint))?;
    client.patience(Some(PATIENCE));
    Ok(client)
}

/// What was seen of a path in a space, before its daemon is asked. Where nothing could be seen, that may be since there is none.
fn seen(path: &Path, looked: std::io::Result<Metadata>, state: &State, mountpoint: &Path) -> anyhow::Result<Metadata> {
    if looked.is_err() {
        connect(state, mountpoint)?;
    }
    looked.with_context(|| format!("cannot look at {}", path.display()))
}

/// Why there is no daemon to talk to, and what to do.
fn not_up(state: &ullage_daemon::State, mountpoint: &Path) -> anyhow::Error {
    let point = mountpoint.display();
    match state.settings_path().try_exists() {
        Ok(false) if let Some(why) = ullage_daemon::lacks_state(mountpoint) => anyhow::anyhow!(why),
        Ok(false) if let Some(why) = dangling(state) => anyhow::anyhow!(why),
        Ok(false) => anyhow::anyhow!(
            "there is no space at {point}: its state would be in {}; `ullage up --help` says how one is made",
            state.dir().display()
        ),
        _ => anyhow::anyhow!("{point} is not up; start it with `{}`", hint::command("up", state, mountpoint)),
    }
}

/// Of a link that leads to a state that is not there, what to do about it: its disk may only not be mounted yet.
fn dangling(state: &ullage_daemon::State) -> Option<String> {
    let target = std::fs::read_link(state.dir()).ok().filter(|_| !state.dir().exists())?;
    Some(format!(
        "{} is a link to the state of this space, and {} is not there: mount the disk that it is on; or remove the link, if that space is \
         given up, and try again",
        state.dir().display(),
        target.display()
    ))
}
