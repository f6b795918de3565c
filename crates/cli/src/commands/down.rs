//! `ullage down`.

use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use ullage_daemon::{Answer, Client, Request};

/// Unmount a space and end its daemon.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ullage down /srv/space
  ullage down --lazy /srv/space    take it away at once; it ends with its last user")]
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
        self.refuse_inner()?;
        let state = super::state_of(&self.mountpoint, self.state.as_deref())?;
        let Some(mut client) = Client::connect(&state)? else {
            if state.load()?.is_none() || !ullage_daemon::clear_dead(&self.mountpoint)? {
                return Err(super::not_up(&state, &self.mountpoint));
            }
            eprintln!(
                "its daemon had ended before; what it served is taken away, and `ullage up {}` brings it back",
                self.mountpoint.display()
            );
            return self.done();
        };
        let Answer::Status(status) = client.ask(&Request::Status)? else {
            anyhow::bail!("the daemon answered another question")
        };
        client.ask(&Request::Down { lazy: self.lazy })?;
        let began = Instant::now();
        while !self.lazy && (Client::connect(&state)?.is_some() || !ullage_daemon::has_ended(status.pid)) {
            if began.elapsed() > Duration::from_secs(120) {
                anyhow::bail!("the daemon is still writing; `ullage status` will say when it has ended");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.done()
    }

    fn done(&self) -> anyhow::Result<ExitCode> {
        if self.json {
            crate::output::json(&serde_json::json!({"down": true}))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Other commands find the space by any path in it. Who names a directory here may think that only this is taken down.
    fn refuse_inner(&self) -> anyhow::Result<()> {
        if let (Ok((point, _)), Ok(path)) =
            (ullage_daemon::find_mount(&self.mountpoint), self.mountpoint.canonicalize())
            && path != point
        {
            anyhow::bail!("{} is no mount point; it lies in the space at {}", path.display(), point.display());
        }
        Ok(())
    }
}
