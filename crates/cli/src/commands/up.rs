//! `ullage up`.

mod place;
mod remount;

use super::limit::Most;
use anyhow::Context;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, CommandFactory};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use ullage_daemon::{Flags, PROGRESS, PoolSettings, ServeOptions, State, TransportChoice};
use ullage_fs::SpaceOptions;
use ullage_types::Bytes;

/// Make a space, or start one that was made before, and mount it.
#[allow(clippy::struct_excessive_bools, reason = "independent switches of a command line")]
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ullage up /srv/space --pool main=/data/pool
                           first use: makes the space, its state is /srv/space.ullage
  ullage up /srv/space     later: everything is known
  ullage up /mnt --state /var/lib/ullage/a --pool fast=/nvme/p --pool big=/hdd/p,reserve=10G
  ullage up /srv/space --pool main=/data/tree,layout=mirror --import
                           over a directory with files in it: they are in the space and stay where they are
  ullage up /srv/space --without big
                           the disk of the pool `big` is gone, or does not answer: all other files are there
  ullage up /srv/space -o nosuid,nodev
  ullage up /srv/space --foreground
                           for systemd (Type=notify) and other supervisors
At boot, in /etc/fstab (`make install` puts the helper mount.fuse.ullage in place):
  /srv/space.ullage  /srv/space  fuse.ullage  defaults,nofail  0  0")]
pub struct Up {
    /// Where to mount; made if it does not exist.
    mountpoint: PathBuf,
    /// The state directory: settings, catalog, log, control socket [default: MOUNTPOINT.ullage].
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// A pool.
    #[arg(
        long = "pool",
        value_name = "POOL",
        help = "A pool: NAME=PATH[,kind=dir|null][,layout=sparse|mirror][,reserve=SIZE]. At first use; later only the same",
        long_help = "A pool: NAME=PATH[,kind=dir|null][,layout=sparse|mirror][,reserve=SIZE]. At first use; later only the same. \
                     How its files are laid out is told by depth=N (levels of directories, 2), entries=N (most files in a \
                     directory, 512) and random-bits=N (a group is spread over 2^N directories, 1)"
    )]
    pools: Vec<PoolSettings>,
    /// Take what lies in the directories of `mirror` pools into the space, as it is. At first use only.
    #[arg(long)]
    import: bool,
    /// How files are spread over several pools. At first use; later only the same.
    #[arg(long, value_parser = ["most-free", "round-robin", "first-fit"])]
    spread: Option<String>,
    /// The most that all files together may use, or `none`; stays until it is changed.
    #[arg(long, value_name = "SIZE")]
    size: Option<Most>,
    /// Room that every pool keeps free, but for those that this command names with a reserve of their own.
    #[arg(long, value_name = "SIZE")]
    reserve: Option<Bytes>,
    /// Start without a pool whose disk is gone, or does not answer: its files are there by name, and cannot be read or written. With the next
    /// start that does not say so it is there again.
    #[arg(long, value_name = "NAME")]
    without: Vec<String>,
    /// Mount options, as mount(8) has them: ro, nosuid, nodev, noexec and others. Times of access are the business of the disk below.
    #[arg(short = 'o', long = "options", value_name = "OPTIONS", default_value_t)]
    flags: Flags,
    /// Stay in the foreground.
    #[arg(long)]
    foreground: bool,
    /// Move all data through the server, even where the kernel could do it.
    #[arg(long)]
    no_passthrough: bool,
    /// How requests come from the kernel.
    #[arg(long, default_value_t, value_parser = transports())]
    transport: TransportChoice,
    /// Switch FUSE over io_uring on in the kernel if it is off; for the whole machine, until it is booted again.
    #[arg(long)]
    enable_uring: bool,
    /// Keep a backing file open this long after its last use, in milliseconds.
    #[arg(long, default_value_t = 2000, hide = true)]
    linger_ms: u64,
    /// Print what was done as JSON.
    #[arg(long)]
    json: bool,
    /// Print a line when ready (how `up` waits for its own daemon).
    #[arg(long, hide = true)]
    report_ready: bool,
}

/// By their names, which completions offer.
fn transports() -> impl TypedValueParser<Value = TransportChoice> {
    PossibleValuesParser::new(["auto", "io-uring", "device", "fuser"]).try_map(|name| name.parse())
}

impl Up {
    /// What a command line cannot mean. A line of fstab(5) may have it that has been mounted so before: that is to go on.
    pub fn refuse_misuse(self) -> Result<Self, clap::Error> {
        if self.enable_uring && !self.may_use_uring() {
            let text = format!("--enable-uring is for --transport io-uring or auto, not for {}\n", self.transport);
            return Err(crate::Arguments::command().error(clap::error::ErrorKind::ArgumentConflict, text));
        }
        Ok(self)
    }

    fn may_use_uring(&self) -> bool {
        matches!(self.transport, TransportChoice::Auto | TransportChoice::IoUring)
    }

    /// Mounts and, unless in the background, serves.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if self.foreground {
            return match self.serve() {
                Err(error) if self.report_ready => {
                    say!("{}", crate::output::error(&error));
                    Err(error)
                }
                outcome => outcome,
            };
        }
        let (mountpoint, state) = self.place()?;
        let settings = self.settings(&mountpoint, &state)?;
        let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
        command.arg("up").arg(&mountpoint).arg("--state").arg(state.dir()).args(["--foreground", "--report-ready"]);
        if self.no_passthrough {
            command.arg("--no-passthrough");
        }
        if self.enable_uring && self.may_use_uring() {
            command.arg("--enable-uring");
        }
        if let Some(Most(most)) = self.size {
            command.arg("--size").arg(most.map_or_else(|| "none".to_owned(), |most| format!("{most}B")));
        }
        if let Some(reserve) = self.reserve {
            command.arg("--reserve").arg(format!("{}B", reserve.0));
        }
        // In one word with the flag: a name may begin as flags do.
        for name in &self.without {
            command.arg(format!("--without={name}"));
        }
        command.arg("--options").arg(self.flags.to_string());
        command.arg("--transport").arg(self.transport.to_string());
        command.arg("--linger-ms").arg(self.linger_ms.to_string());
        // A first use is written down by the daemon once everything was found in order; until then it is handed over. Later a pool may
        // be named to say that `--reserve` is not for it.
        let is_first = state.load()?.is_none();
        for pool in if is_first { &settings.pools } else { &self.pools } {
            command.arg(format!("--pool={pool}"));
        }
        if is_first {
            command.arg("--spread").arg(&settings.spread);
            if self.import {
                command.arg("--import");
            }
        }
        // Before it counts; the daemon tells it to its log.
        let behind = ullage_daemon::behind(&state, &settings);
        let mut spinner = None;
        let pid = ullage_daemon::start_in_background(command, &state, &mut |line| {
            let (count, what) = line.split_once(' ').unwrap_or_default();
            let spinner = spinner.get_or_insert_with(crate::output::spinner);
            spinner.set_position(count.parse().unwrap_or_default());
            spinner.set_message(what.to_owned());
        });
        if let Some(spinner) = spinner {
            spinner.finish_and_clear();
        }
        let pid = match pid {
            // As its caller expects.
            Err(error @ ullage_daemon::Error::Interrupted(signal)) => {
                whisper!("ullage: {error}");
                let _ = signal_hook::low_level::emulate_default_handler(signal);
                return Err(error.into());
            }
            pid => pid?,
        };
        for told in behind {
            whisper!("ullage: {}", crate::output::shown(told));
        }
        if is_first {
            say_if_closed(&state);
        }
        self.done(&mountpoint, &state, pid)?;
        Ok(ExitCode::SUCCESS)
    }

    /// It is mounted.
    fn done(&self, mountpoint: &Path, state: &State, pid: u32) -> anyhow::Result<()> {
        link_state(mountpoint, state);
        if self.json {
            crate::output::json(&serde_json::json!({"mountpoint": mountpoint, "state": state.dir(), "pid": pid}))?;
        }
        Ok(())
    }

    fn serve(&self) -> anyhow::Result<ExitCode> {
        let (mountpoint, state) = self.place()?;
        let refused = |error: anyhow::Error| {
            error.downcast().unwrap_or_else(|error| ullage_daemon::Error::Refused(format!("{error:#}")))
        };
        let read = || self.settings(&mountpoint, &state).map_err(refused);
        let options = SpaceOptions {
            passthrough: !self.no_passthrough,
            linger: Duration::from_millis(self.linger_ms),
            size: self.size.map(|most| most.0),
            ..SpaceOptions::default()
        };
        let how = ServeOptions { transport: self.transport, enable_uring: self.enable_uring, flags: self.flags };
        let mut told = Instant::now();
        ullage_daemon::end_at_any_panic();
        crate::log::bound();
        // Who waits for this may have been ended: the mount serves whether or not anybody listens.
        let serving = ullage_daemon::serve(&state, &read, options, how, &mut |what, count| {
            if self.report_ready && told.elapsed() > Duration::from_millis(100) {
                told = Instant::now();
                say!("{PROGRESS}{count} {what}");
            }
        })?;
        if self.report_ready {
            say!("ready");
        } else {
            self.done(&mountpoint, &state, std::process::id())?;
        }
        serving.run()?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A directory that was there keeps the mode that somebody gave it.
fn say_if_closed(state: &State) {
    let mode = std::fs::metadata(state.dir()).map_or(0o711, |dir| dir.permissions().mode());
    if mode & 0o001 == 0 {
        let dir = ullage_daemon::quoted(state.dir());
        whisper!(
            "ullage: others cannot ask of the space (`ullage du`, `stat`, `limit`), since its state directory has the mode {:o}; `chmod a+x {}` \
             lets them",
            mode & 0o7777,
            crate::output::shown(dir)
        );
    }
}

/// So that later commands find a state that lies elsewhere by the mount point alone.
fn link_state(mountpoint: &Path, state: &State) {
    let usual = State::of_mountpoint(mountpoint);
    if usual.dir() != state.dir() && !usual.dir().exists() {
        if let Some(before) = std::fs::read_link(usual.dir()).ok().filter(|before| before != state.dir()) {
            tracing::warn!(
                "{} led to {}, which is not there, and leads to {} now",
                usual.dir().display(),
                before.display(),
                state.dir().display()
            );
        }
        let _ = std::fs::remove_file(usual.dir());
        if let Err(error) = std::os::unix::fs::symlink(state.dir(), usual.dir()) {
            tracing::info!("later commands will need --state: {} cannot be made ({error})", usual.dir().display());
        }
    }
}
