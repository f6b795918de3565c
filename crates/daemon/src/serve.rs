//! A mounted space from its first request to its last.

use crate::control::limit;
use crate::control::messages::{Answer, Request, StatusReport};
use crate::control::report;
use crate::error::io_error;
use crate::mirror::Mirror;
use crate::mounting::mount::{Mount, ServeOptions};
use crate::mounting::mountable;
use crate::mounting::mountpoint;
use crate::mounting::mounts;
use crate::open::{OpenSpace, ReadSettings};
use crate::pools::add;
use crate::pools::drain;
use crate::pools::remove;
use crate::process::notify::{self, GoesOn};
use crate::process::rlimits;
use crate::settings::config::replace;
use crate::{Progress, Result, State, control, end_signals};
use parking_lot::Mutex;
use signal_hook::iterator::{Handle, Signals};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use ullage_fs::SpaceOptions;

/// How long what another process has locked is waited for: it may be ending, or be another `up` that has come first.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);

/// Between two tries to unmount where no process can be started for that.
const END_PAUSE: Duration = Duration::from_millis(500);

/// How long is waited until it is known how limited files can be written.
const WAYS_PATIENCE: Duration = Duration::from_secs(3);

/// A mounted space.
pub struct Serving {
    mount: Arc<Mount>,
    open: Arc<OpenSpace>,
    mirror: Option<Arc<Mirror>>,
    listening: control::Listening,
    waiter: Waiter,
}

/// Opens and mounts a space.
///
/// `read` reads its settings: anew whenever another process was waited for, which may have changed them. `progress` is told how far what
/// takes long has come.
pub fn serve(
    state: &State,
    read: &ReadSettings<'_>,
    options: SpaceOptions,
    how: ServeOptions,
    progress: &mut Progress<'_>,
) -> Result<Serving> {
    let _starts = GoesOn::begin();
    let point = read()?.mountpoint;
    mountable::refuse_unmountable()?;
    how.refuse_unmountable()?;
    state.refuse_users()?;
    limit::refuse_size(options.size.flatten())?;
    rlimits::raise_rlimits();
    let files = rlimits::raise_descriptors();
    let options = SpaceOptions { linger_max: options.linger_max.min(files as usize / 4 * 3), ..options };
    let mut start = || -> Result<Serving> {
        let open = Arc::new(OpenSpace::open(state, read, options.clone(), progress)?);
        let mirror = Mirror::start(&open)?.map(Arc::new);
        // Where a signal still ended the process, it would leave a mount that nobody serves. Before, it leaves nothing.
        let signals = Signals::new(end_signals()).map_err(io_error("wait for signals of", "this process"))?;
        let mount = mountpoint::alone(&point, || Mount::new(open.space.clone(), &point, &open.state, how))?;
        let mount = Arc::new(mount);
        let begin = || -> Result<_> {
            let listening = listen(&point, &mount, &open, mirror.clone())?;
            open.space.show_top(WAYS_PATIENCE);
            // It is tried in the mount, which is in use meanwhile: who takes it down at once would be refused.
            if open.space.has_limited_files() {
                open.space.learn_ways(WAYS_PATIENCE);
            }
            Ok((listening, Waiter::start(signals, mount.clone(), point.clone())?))
        };
        let (listening, waiter) = begin().inspect_err(|_| {
            // Nobody would serve it.
            let _ = mount.unmount(true);
            let _ = mount.wait();
        })?;
        Ok(Serving { mount, open, mirror, listening, waiter })
    };
    let (until, mut made) = (Instant::now() + LOCK_PATIENCE, Vec::new());
    loop {
        let ready = mountpoint::prepare(&point, state).map(|new| made.extend(new));
        match ready.and_then(|()| start()) {
            Err(error) if error.is_lock() && Instant::now() < until => std::thread::sleep(Duration::from_millis(50)),
            outcome => {
                // Whoever has the lock may be about to mount there.
                return outcome.map_err(|error| {
                    if !error.is_lock() {
                        for dir in &made {
                            let _ = std::fs::remove_dir(dir);
                        }
                    }
                    error.with_holder()
                });
            }
        }
    }
}

impl Serving {
    /// Serves until the mount ends: by `ullage down`, umount(8), or a signal.
    pub fn run(self) -> Result<()> {
        notify::supervisor(notify::READY);
        let ended = self.mount.wait();
        notify::supervisor(notify::STOPPING);
        let _ends = GoesOn::begin();
        self.waiter.stop();
        let over = self.open.changes.end();
        let written = self.open.store.settle();
        if let Some(mirror) = &self.mirror {
            mirror.finish();
        }
        if let Err(error) = self.open.turns.count() {
            tracing::warn!("{error}");
        }
        if matches!(written, Ok(true)) {
            if self.open.space.trees_in_step() && !self.open.settings.pools.iter().any(|pool| pool.absent) {
                leave_in_step(&self.open.state, self.open.turns.now());
            }
            let take_out = || remove::all_drained(&self.open.state, self.open.settings_now()?, &*self.open.store);
            if over && let Err(error) = take_out() {
                tracing::warn!("a pool that was to be emptied stays in the space: {error}");
            }
        }
        // Last.
        self.listening.end(Duration::from_secs(1));
        written?;
        ended
    }
}

/// Who waits for signals.
struct Waiter {
    handle: Handle,
    thread: JoinHandle<()>,
}

impl Waiter {
    /// Begins to wait: before anybody is told that the space is up, since there may be no thread to be had for it.
    fn start(mut signals: Signals, mount: Arc<Mount>, mountpoint: PathBuf) -> Result<Self> {
        let handle = signals.handle();
        let wait = move || {
            for signal in signals.forever() {
                tracing::info!("unmounting {} on signal {signal}", mountpoint.display());
                end(&mount);
            }
        };
        let thread = std::thread::Builder::new().name("signals".into()).spawn(wait);
        Ok(Self { handle, thread: thread.map_err(io_error("wait for signals of", "this process"))? })
    }

    fn stop(self) {
        self.handle.close();
        let _ = self.thread.join();
    }
}

/// Unmounts for a signal, of which there may be no second. Where the process that does it for an ordinary user cannot be started, until it can.
fn end(mount: &Mount) {
    let mut said = false;
    // While somebody uses it, it disappears from the tree now and ends with its last user.
    while mount.unmount(false).is_err()
        && let Err(error) = mount.unmount(true)
    {
        if !std::mem::replace(&mut said, true) {
            tracing::error!("{error}");
        }
        if !error.lacks_process() {
            return;
        }
        std::thread::sleep(END_PAUSE);
    }
}

fn listen(
    mountpoint: &Path,
    mount: &Arc<Mount>,
    open: &Arc<OpenSpace>,
    mirror: Option<Arc<Mirror>>,
) -> Result<control::Listening> {
    let state = open.state.clone();
    mounts::note_device(&state, mount.device());
    let (open, mount, started) = (open.clone(), mount.clone(), Instant::now());
    let mountpoint = mountpoint.to_owned();
    // It is tried in the mount, which is in use meanwhile.
    let learns = Mutex::new(());
    let answer = move |request, peer| match request {
        Request::Status => status(&open, &mount, &mountpoint, started, peer),
        Request::Pools => {
            let _learns = learns.lock();
            open.space.learn_ways(WAYS_PATIENCE);
            status(&open, &mount, &mountpoint, started, peer)
        }
        Request::Stat { ino, proof } => report::stat(&open.space, ino, proof, peer),
        Request::Du { ino, proof } => report::du(&open.space, ino, proof, peer),
        Request::Limits { directory: Some(ino), .. } => limit::on(&open.space, &mountpoint, ino, peer),
        Request::Limits { user, directory: None } => limit::list(&open.space, &mountpoint, user, peer),
        Request::SetLimit { subject, bytes, inodes } => limit::set(&open.space, subject, bytes, inodes, peer),
        Request::Drain { pool, drains } => drain::set(&open, &pool, drains, peer),
        Request::AddPool { pool } => add::while_up(&open, mirror.as_deref(), &pool, peer),
        Request::Df => limit::df(&open.space),
        Request::Sync => match ullage_fs::Filesystem::syncfs(&*open.space) {
            Ok(()) => Answer::Done,
            Err(error) => report::refuse(std::io::Error::from_raw_os_error(error.0)),
        },
        Request::Down { lazy } => {
            let _learns = learns.lock();
            down(&mount, lazy, peer)
        }
    };
    control::listen(&state, Arc::new(answer))
}

/// The next start need not compare the plain trees with the catalog, where both are of this turn.
fn leave_in_step(state: &State, turn: u64) {
    let path = state.in_step_path();
    if let Err(error) = replace(&path, &turn.to_string()) {
        tracing::info!("{} cannot be made ({error}): the next start looks at all of the plain trees", path.display());
    }
}

fn down(mount: &Mount, lazy: bool, peer: u32) -> Answer {
    if !control::may_end(peer) {
        return report::refuse("only root and who mounted it may unmount it");
    }
    match mount.unmount(lazy) {
        Ok(()) => Answer::Done,
        Err(error) => report::refuse(error),
    }
}

fn status(open: &OpenSpace, mount: &Mount, mountpoint: &Path, started: Instant, peer: u32) -> Answer {
    open.space.measure_closed();
    let totals = open.space.catalog().root().totals().now();
    let store = open.store.stats();
    let members = || open.space.pools().members();
    let failure = store.poisoned.as_ref().map(|why| format!("{}: {why}", ullage_kv::POISONED));
    Answer::Status(Box::new(StatusReport {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        uuid: open.settings.uuid.clone(),
        mountpoint: mountpoint.to_owned(),
        detached: mount.is_away(),
        state: open.state.dir().to_owned(),
        uptime_seconds: started.elapsed().as_secs(),
        transport: mount.transport(),
        transport_why: mount.why().to_owned(),
        passthrough: open.space.uses_passthrough() && members().any(|member| member.pool.moves_in_kernel()),
        catalog_failed: failure.is_some(),
        catalog_failure: failure,
        used: report::space_use(&totals),
        pools: members().map(|member| report::pool(&open.space, member, peer)).collect(),
        store: store.named().into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        messages: mount.messages(),
        trees_behind: open.space.trees_behind(),
        recovered: serde_json::to_value(open.recovered).unwrap_or_default(),
    }))
}
