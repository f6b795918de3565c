//! Opening: the lock, the format file, the engine, the log and what it replays.

use super::core::Core;
use super::format::Format;
use super::options::{Canary, EngineKind, Options};
use super::{Store, keeper};
use crate::engine::Torn;
use crate::held::shown;
use crate::log::{FileMedium, Log, Medium, recover};
use crate::{Engine, Error, FjallEngine, MemoryEngine, Seq};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Names of the log files.
const LOGS: [&str; 2] = ["log.0", "log.1"];

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Io { doing, path: shown(path), source }
}

impl Store {
    /// Opens the store in the directory `dir`, creating it where there is none; brings everything durable
    /// back, so that exactly a prefix of all commits is there.
    ///
    /// Fails with [`Error::Locked`] while another process has it open, [`Error::Newer`] when a later version
    /// wrote it, [`Error::Corrupt`] when something durable is missing or damaged.
    pub fn open(dir: &Path, kind: EngineKind, options: Options) -> Result<Self, Error> {
        fs::create_dir_all(dir).map_err(io_error("create", dir))?;
        let lock = lock(dir)?;
        match kind {
            EngineKind::Memory => {
                let core = Core::new(Box::new(MemoryEngine::new()), None, Seq(0), options, shown(dir), Some(lock));
                Self::start(core)
            }
            EngineKind::Fjall => {
                let store = prepare(dir, &options)?;
                let media = || -> io::Result<[Box<dyn Medium>; 2]> {
                    let [a, b] = LOGS.map(|name| FileMedium::open(&dir.join(name)));
                    Ok([Box::new(a?), Box::new(b?)])
                };
                let media = media().map_err(io_error("open the log of", dir))?;
                let engine = open_engine(&dir.join("engine"), &media, store, &options)?;
                Self::on(Box::new(engine), media, store, options, Some(lock), shown(dir))
            }
        }
    }

    /// Whether a store was made in the directory `dir`: one whose making was broken off is none.
    pub fn is_in(dir: &Path) -> Result<bool, Error> {
        Ok(Format::read(dir)?.is_some())
    }

    /// Opens a store on any engine and any two log media, both all zeros at first. `identity` must be the
    /// same at every opening.
    pub fn open_on(
        engine: Box<dyn Engine>,
        media: [Box<dyn Medium>; 2],
        identity: u64,
        options: Options,
    ) -> Result<Self, Error> {
        Self::on(engine, media, identity, options, None, PathBuf::from("(in memory)"))
    }

    fn on(
        engine: Box<dyn Engine>,
        media: [Box<dyn Medium>; 2],
        identity: u64,
        options: Options,
        lock: Option<Lock>,
        path: PathBuf,
    ) -> Result<Self, Error> {
        let applied = engine.applied()?;
        let checked = options.canary != Some(Canary::IgnoreChecksum);
        let both = [media[0].as_ref(), media[1].as_ref()];
        let recovered =
            recover(both, &path, identity, applied, checked, &mut |changes, last| engine.apply(changes, last))?;
        // The log is begun anew below, so what it held must not need it any more.
        engine.persist()?;
        if recovered.records > 0 {
            tracing::info!(path = %path.display(), records = recovered.records, newest = recovered.newest.0,
                "replayed the catalog's log");
        }
        let newest = recovered.newest;
        let log = Log::begin(media, identity, recovered).map_err(io_error("open the log of", &path))?;
        Self::start(Core::new(engine, Some(log), newest, options, path, lock))
    }

    fn start(core: Core) -> Result<Self, Error> {
        let core = Arc::new(core);
        let keeper = match core.options.interval {
            None => None,
            Some(interval) => {
                let shared = Arc::clone(&core);
                let thread = std::thread::Builder::new().name("kv-keeper".to_owned());
                let spawned = thread.spawn(move || keeper::run(&shared, interval));
                Some(spawned.map_err(io_error("start the writer of", &core.path))?)
            }
        };
        Ok(Self { core, keeper, closed: false })
    }
}

/// Gives the lock back by name: closing the descriptor is not enough while a child that is just being started has a copy.
#[derive(Debug)]
pub(super) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // It ends with the last descriptor at the latest.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

fn lock(dir: &Path) -> Result<Lock, Error> {
    let path = dir.join("lock");
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(io_error("open", &path))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Lock(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::Locked(shown(dir))),
        Err(e) => Err(io_error("lock", &path)(e.into())),
    }
}

/// Sees that the files are there, or makes them; gives back the store's identity.
///
/// The format file is written last: while it is missing, no commit was ever accepted and everything else may
/// be made anew; once it is there, everything else must be too.
fn prepare(dir: &Path, options: &Options) -> Result<u64, Error> {
    if let Some(format) = Format::read(dir)? {
        for name in LOGS.iter().chain(&["engine"]) {
            if !dir.join(name).exists() {
                return Err(Error::Corrupt(format!("{} is missing", shown(&dir.join(name)).display())));
            }
        }
        return Ok(format.identity);
    }
    let engine_dir = dir.join("engine");
    if engine_dir.exists() {
        let engine = FjallEngine::open(&engine_dir, options.engine)?;
        if engine.applied()? > Seq(0) {
            return Err(Error::Corrupt(format!("{} is missing", shown(&Format::path(dir)).display())));
        }
    }
    let made = make(dir, &engine_dir, options);
    if made.is_err() && matches!(Format::path(dir).try_exists(), Ok(false)) {
        // On a full disk nobody who failed to start keeps room from the others.
        for name in LOGS {
            let _ = fs::remove_file(dir.join(name));
        }
    }
    made
}

fn make(dir: &Path, engine_dir: &Path, options: &Options) -> Result<u64, Error> {
    for name in LOGS {
        let path = dir.join(name);
        FileMedium::create(&path, options.log_bytes).map_err(io_error("create", &path))?;
    }
    if !engine_dir.exists() {
        make_engine(engine_dir, options)?;
    }
    let format = Format::new();
    format.write(dir)?;
    Ok(format.identity)
}

/// Opens the engine; without the torn end of its journal, where the log holds all that was in it.
fn open_engine(
    path: &Path,
    media: &[Box<dyn Medium>; 2],
    identity: u64,
    options: &Options,
) -> Result<FjallEngine, Error> {
    let damaged = match FjallEngine::open(path, options.engine) {
        Err(error @ Error::Corrupt(_)) => error,
        opened => return opened,
    };
    let Some(torn) = Torn::find(path).map_err(io_error("read", path))? else { return Err(damaged) };
    let both = [media[0].as_ref(), media[1].as_ref()];
    // Where nothing before it says its commit, the log is asked for the last one here, and for the rest once the engine is open.
    let before = torn.before.unwrap_or(Seq(torn.last.0.saturating_sub(1)));
    let held = recover(both, path, identity, before, true, &mut |_, _| Ok(()));
    if !held.is_ok_and(|held| held.newest >= torn.last) {
        return Err(damaged);
    }
    tracing::warn!(path = %shown(path).display(), last = torn.last.0, "the engine's journal is torn: what it held is taken from the log");
    torn.cut().map_err(io_error("cut", path))?;
    FjallEngine::open(path, options.engine)
}

/// Only a whole one gets the name: what a kill leaves of one that is being made does not open.
fn make_engine(path: &Path, options: &Options) -> Result<(), Error> {
    let draft = path.with_extension("new");
    match fs::remove_dir_all(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io_error("remove", &draft)(error)),
        _ => {}
    }
    drop(FjallEngine::open(&draft, options.engine)?);
    fs::rename(&draft, path).map_err(io_error("rename", &draft))
}
