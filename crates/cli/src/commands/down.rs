//! `ullage down`.

use super::hint;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use ullage_daemon::{Answer, Client, Error, Request, State, quoted};

/// How long it waits without a word.
const SAYS_NOTHING: Duration = Duration::from_secs(2);
/// How long a daemon that answers nobody any more may take to end.
const ENDS_SOON: Duration = Duration::from_secs(10);
/// How long is looked, after a space was taken away lazily, whether it has ended with that: nobody may have used it.
const ENDS_AT_ONCE: Duration = Duration::from_secs(1);
/// How long the daemon may think before a mount is taken away without it.
const LAZY_PATIENCE: Duration = Duration::from_secs(5);

/// Unmount a space and end its daemon.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ullage down /srv/space
  ullage down --lazy /srv/space    take it away at once; it ends with its last user
  ullage down --lazy /srv/space --json | jq .down
                                   whether it has ended: `false` with the process (`pid`) that goes on for its users")]
pub struct Down {
    /// Where it is mounted.
    mountpoint: PathBuf,
    /// Its state directory, where it is not the usual one.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Do not wait for those who use it.
    #[arg(long)]
    lazy: bool,
    /// Print what was done as JSON.
    #[arg(long)]
    json: bool,
}

impl Down {
    /// Asks the daemon to unmount and waits until everything is on disk. A mount whose daemon was killed only goes.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        super::refuse_silent_around(&self.mountpoint)?;
        self.refuse_inner()?;
        let state = super::state_of(&self.mountpoint, self.state.as_deref())?;
        let Some(mut client) = Client::connect(&state)? else {
            if state.load()?.is_none() || !ullage_daemon::clear_dead(&self.mountpoint)? {
                return Err(super::not_up(&state, &self.mountpoint));
            }
            whisper!(
                "its daemon had ended before; what it served is taken away, and `{}` brings it back",
                hint::command("up", &state, &self.mountpoint)
            );
            return self.done();
        };
        client.patience(Some(if self.lazy { LAZY_PATIENCE } else { super::PATIENCE }));
        let status = match client.ask(&Request::Status) {
            Ok(Answer::Status(status)) => status,
            Ok(_) => anyhow::bail!("the daemon answered another question"),
            Err(ref silent @ Error::Silent(pid)) if self.lazy => return self.detach(&state, silent, pid),
            Err(_) if is_over(&state, state.dir(), client.process())? => return self.over(),
            Err(error) => return Err(error.into()),
        };
        // By the name that it was mounted with: the one here may be a link.
        let source = &status.state;
        self.refuse_elsewhere(&state, source, &status.mountpoint)?;
        client.patience(None);
        // As it is numbered here: it may be a container's.
        let pid = client.process();
        match client.ask(&Request::Down { lazy: self.lazy }) {
            Err(_) if is_over(&state, source, pid)? => return self.over(),
            asked => asked?,
        };
        if !self.lazy
            && let Some(point) = ullage_daemon::mounts_of(&state, source)?.first()
        {
            anyhow::bail!(
                "{} was taken away, but the space is still mounted at {}, and its daemon ends with that: `umount {}`",
                status.mountpoint.display(),
                point.display(),
                quoted(point)
            );
        }
        let (began, mut told) = (Instant::now(), false);
        while !self.lazy
            && (Client::connect(&state)?.is_some() || pid.is_some_and(|pid| !ullage_daemon::has_ended(pid)))
        {
            if began.elapsed() > Duration::from_secs(120) {
                anyhow::bail!(
                    "the daemon is still writing; `{}` will say when it has ended",
                    hint::command("status", &state, &status.mountpoint)
                );
            }
            if !told && began.elapsed() > SAYS_NOTHING {
                told = true;
                whisper!(
                    "waiting for the daemon, process {}: it still writes, or the space is mounted in another mount namespace too (a \
                     container's), and ends when it is unmounted there",
                    pid.unwrap_or(status.pid)
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        if self.lazy { self.taken_away(&state, pid) } else { self.done() }
    }

    /// Says whether a space that is to be seen no more has ended, too: with its last user it does.
    fn taken_away(&self, state: &State, pid: Option<u32>) -> anyhow::Result<ExitCode> {
        if self.json {
            let listens = || matches!(Client::connect(state), Ok(Some(_)));
            // A number in a container is another's here.
            let until = Instant::now() + ENDS_AT_ONCE;
            let has_ended = pid.is_none_or(|pid| ended_by(pid, until)) && !listens();
            crate::output::json(&serde_json::json!({"down": has_ended, "detached": true, "pid": pid}))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Takes it away without the daemon, which is silent and finds its mount gone when it goes on.
    fn detach(&self, state: &State, silent: &Error, pid: Option<u32>) -> anyhow::Result<ExitCode> {
        let named = ullage_daemon::settled(&self.mountpoint)?;
        match ullage_daemon::find_mount(&self.mountpoint) {
            Ok((point, found))
                if point == named && ullage_daemon::settled(found.dir())? == ullage_daemon::settled(state.dir())? =>
            {
                ullage_daemon::detach(&point)?;
                whisper!(
                    "{} was taken away, but {silent}; until then nobody can start the space again",
                    point.display()
                );
                self.taken_away(state, pid)
            }
            _ => anyhow::bail!("{silent}; and the space is not mounted at {}", named.display()),
        }
    }

    /// It has ended while this asked. One that was killed leaves its mount.
    fn over(&self) -> anyhow::Result<ExitCode> {
        if ullage_daemon::clear_dead(&self.mountpoint)? {
            whisper!("its daemon ended before it had answered; what it served is taken away");
        }
        self.done()
    }

    fn done(&self) -> anyhow::Result<ExitCode> {
        if self.json {
            crate::output::json(&serde_json::json!({"down": true}))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The daemon takes down the mount that it made. Who names a bind mount of a part of it, or a path that only shares its state, may
    /// not know that one. A space whose parent was renamed is where nobody said it should be.
    fn refuse_elsewhere(&self, state: &State, source: &Path, point: &PathBuf) -> anyhow::Result<()> {
        let named = ullage_daemon::settled(&self.mountpoint)?;
        if named != *point && ullage_daemon::mounts_of(state, source)?.contains(point) {
            anyhow::bail!(
                "the space is mounted at {0}, not at {1}; `{2}` takes it down",
                point.display(),
                named.display(),
                hint::command("down", state, point)
            );
        }
        Ok(())
    }

    /// Other commands find the space by any path in it. Who names a directory here may think that only this is taken down.
    fn refuse_inner(&self) -> anyhow::Result<()> {
        let path = ullage_daemon::settled(&self.mountpoint)?;
        if let Ok((point, _)) = ullage_daemon::find_mount(&self.mountpoint)
            && path != point
        {
            anyhow::bail!("{} is no mount point; it lies in the space at {}", path.display(), point.display());
        }
        Ok(())
    }
}

/// Whether the space has ended meanwhile, since somebody else took it down too, or killed its daemon, which is waited for.
fn is_over(state: &State, source: &Path, pid: Option<u32>) -> anyhow::Result<bool> {
    let is_over = Client::connect(state)?.is_none() && ullage_daemon::mounts_of(state, source)?.is_empty();
    if is_over && let Some(pid) = pid {
        ended_by(pid, Instant::now() + ENDS_SOON);
    }
    Ok(is_over)
}

/// Waits for the end of a daemon, until then; whether it came.
fn ended_by(pid: u32, until: Instant) -> bool {
    loop {
        let has_ended = ullage_daemon::has_ended(pid);
        if has_ended || Instant::now() >= until {
            return has_ended;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
