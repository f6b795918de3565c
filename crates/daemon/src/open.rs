//! Opening a space: catalog, pools, recovery.

use crate::adapt::{MarksOf, NumbersOf};
use crate::ballast::{self, Ballast};
use crate::control::limit::refusal;
use crate::import::{drop_stale, import};
use crate::pools::changes::Changes;
use crate::settings::first_use;
use crate::settings::numbers;
use crate::turns::Turns;
use crate::{Error, Kind, Layout, PoolSettings, Progress, Result, SpaceSettings, State, command, refuse_places, turns};
use rustc_hash::FxHashSet;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use ullage_catalog::{Catalog, CatalogMarks, Limit, Subject};
use ullage_fs::{PoolMember, Pools, Recovered, Space, SpaceOptions};
use ullage_kv::{EngineKind, Options, Store};
use ullage_policy::choose::Spread;
use ullage_pool::{AbsentPool, DirPool, NullPool, Pool, PoolConfig, Tree, Uuid};
use ullage_types::{Bytes, PoolId, ROOT};

/// Reads what a space is to be opened with: its settings as they are now, and what was asked for.
pub type ReadSettings<'a> = dyn Fn() -> Result<SpaceSettings> + 'a;

/// An open space, not yet mounted.
pub struct OpenSpace {
    /// The file system.
    pub space: Arc<Space>,
    /// Its store, for figures.
    pub store: Arc<Store>,
    /// Its settings, with every pool's identity.
    pub settings: SpaceSettings,
    /// Its state, held open.
    pub(crate) state: State,
    /// What had to be mended.
    pub recovered: Recovered,
    /// What is counted in state and pools.
    pub(crate) turns: Arc<Turns>,
    /// Room that the catalog has for itself.
    pub(crate) ballast: Arc<Ballast>,
    /// Whose turn it is to change the pools.
    pub(crate) changes: Changes,
}

impl OpenSpace {
    /// Opens the space of this state, making what is new in it. Nothing is changed when anything is refused.
    ///
    /// `read` reads the settings, anew for each try. What is to be imported is; `progress` is told how far that has come.
    pub fn open(
        state: &State,
        read: &ReadSettings<'_>,
        options: SpaceOptions,
        progress: &mut Progress<'_>,
    ) -> Result<Self> {
        match Self::with(state, read, options.clone(), false, progress) {
            // What is free on the disk says nothing of a quota.
            Err(error) if error.is_full() && ballast::give_up(state) => {
                tracing::warn!(
                    "the state has no room left ({error}): half of what was held for this is used now; make room"
                );
                Self::with(state, read, options, true, progress)
            }
            opened => opened,
        }
    }

    /// With what is held for the catalog given up in part, none is held again.
    fn with(
        state: &State,
        read: &ReadSettings<'_>,
        options: SpaceOptions,
        given_up: bool,
        progress: &mut Progress<'_>,
    ) -> Result<Self> {
        // Nothing is locked yet: what changes the pools of a space that is down may be at work.
        let known = state.load()?;
        let is_changed = |state: &State| state.load().is_ok_and(|now| now != known);
        let mut settings = read()?;
        let spread: Spread = settings
            .spread
            .parse()
            .map_err(|error| Error::Refused(format!("{}: {error}", state.settings_path().display())))?;
        refuse_places(&settings, state)?;
        refuse_all_absent(&settings)?;
        refuse_half_imported(&settings)?;
        state.refuse_without_catalog()?;
        first_use::take_up(state, &mut settings)?;
        let space_uuid = state.uuid_in(&settings)?;
        for pool in settings.pools.iter().filter(|pool| !pool.absent) {
            precheck(pool, space_uuid, state, &settings.mountpoint).map_err(|refused| {
                if first_use::is_overtaken(state, &settings) {
                    Error::Overtaken(state.dir().to_owned())
                } else if is_changed(state) {
                    Error::Changed(state.dir().to_owned())
                } else {
                    refused
                }
            })?;
        }
        turns::refuse_older(state, &settings)?;
        let behind = turns::behind(state, &settings);
        numbers::refuse_renumbered(state, &settings)?;
        state.make()?;
        let state = &state.hold()?;
        let mut ballast = Ballast::of(state)?;
        if ballast.release()? {
            tracing::warn!("the disk of the catalog is full: what was held for this is used now; make room");
        }
        let store = open_store(state)?;
        // From here on nobody else writes them; what is known is written below.
        if is_changed(state) {
            return Err(Error::Changed(state.dir().to_owned()));
        }
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let catalog = Catalog::open(store.clone(), uid, gid, ullage_fs::now())?;
        let mut members = Vec::new();
        let mut marks = Vec::new();
        first_use::begin(state, &settings)?;
        for pool in &mut settings.pools {
            let id = PoolId(pool.id);
            let pool_marks = Arc::new(catalog.marks(id)?);
            let (name, reserve) = (pool.name.clone(), pool.reserve_bytes);
            if pool.absent {
                let absent = AbsentPool::new(Arc::new(MarksOf(pool_marks)), pool.layout.name(), pool.path.clone());
                members.push(PoolMember { id, name, pool: Arc::new(absent), reserve: Bytes(0), tree: None });
                continue;
            }
            let (driver, tree) = open_pool(pool, space_uuid, &catalog, pool_marks.clone())?;
            members.push(PoolMember { id, name, pool: driver, reserve, tree });
            marks.push((id, pool_marks));
        }
        state.store(&settings)?;
        first_use::end(state);
        if given_up {
            ballast.keep_given_up();
        }
        leave_room(&ballast, &mut members)?;
        let ballast = Arc::new(ballast);
        store.set_room(ballast.clone());
        let size = options.size.map(|bytes| move |before| Limit { bytes, ..before });
        // What stands in the tree of one that is not there stays as it is.
        let of_now = turns::is_of_now(state, &settings, &state.in_step_path())?;
        let has_trees = settings.pools.iter().any(|pool| pool.layout == Layout::Mirror);
        let trees_in_step = has_trees && take_in_step(state)? && of_now;
        let options = SpaceOptions { trees_in_step, ..options };
        let space = Space::new(catalog, Arc::new(Pools::new(members, spread, Some(ballast.disk()))), options);
        // What goes on in it would have its store locked when that is opened once more.
        let (recovered, turns) =
            begin(state, &space, &mut settings, &marks, behind, size, progress).inspect_err(|_| space.give_up())?;
        let state = state.clone();
        Ok(Self { space, store, settings, state, recovered, turns, ballast, changes: Changes::default() })
    }
}

/// Brings a space that is open to where it can be mounted.
fn begin(
    state: &State,
    space: &Space,
    settings: &mut SpaceSettings,
    marks: &[(PoolId, Arc<CatalogMarks>)],
    behind: Vec<String>,
    size: Option<impl Fn(Limit) -> Limit>,
    progress: &mut Progress<'_>,
) -> Result<(Recovered, Arc<Turns>)> {
    let marked: Vec<(PoolId, &CatalogMarks)> = marks.iter().map(|(id, marks)| (*id, &**marks)).collect();
    let recovered = space
        .recover(&marked)
        .map_err(|error| Error::Refused(format!("recovery failed: {}", std::io::Error::from_raw_os_error(error.0))))?;
    if import_pools(space, settings, state.turns_path().exists(), progress)? {
        state.store(settings)?;
    }
    // Not before it is known that all is in: an import that goes on reads the permissions of the top again.
    for (pool, member) in settings.pools.iter().zip(space.pools().members()) {
        let closed = member.tree.as_ref().map_or(Ok(()), |tree| tree.close());
        closed.map_err(|source| Error::Pool { name: pool.name.clone(), source })?;
    }
    // Until here nothing was made that an older state would not know: a start that fails leaves it the newest.
    for told in behind {
        tracing::warn!("{told}");
    }
    let turns = Arc::new(Turns::hold(state, settings)?);
    turns.count()?;
    if let Some(sized) = size {
        let root = Subject::Directory(ROOT);
        space.change_limit(root, sized).map_err(|error| Error::Refused(refusal(&error)))?;
    }
    for member in space.pools().members() {
        member.pool.begin();
    }
    for pool in settings.pools.iter().filter(|pool| pool.draining && !pool.absent) {
        space.drain(PoolId(pool.id)).map_err(crate::error::io_error("start to empty", &pool.path))?;
    }
    Ok((recovered, turns))
}

/// Takes what lies in the directories of new `mirror` pools into the space, and closes these. Whether there were any.
fn import_pools(
    space: &Space,
    settings: &mut SpaceSettings,
    was_up: bool,
    progress: &mut Progress<'_>,
) -> Result<bool> {
    let trees: Vec<&Tree> = space.pools().members().filter_map(|member| member.tree.as_deref()).collect();
    let (mut imported, mut met) = (false, FxHashSet::default());
    if settings.pools.iter().any(|pool| pool.import) && !space.catalog().created() && !was_up {
        // Of an import that was refused, after which things were given other names. Not of one that an earlier version left for later: what was
        // made since is in no tree.
        drop_stale(space.catalog(), &trees)?;
        space.let_unnamed_go().map_err(|error| {
            Error::Refused(format!("what was removed cannot go: {}", std::io::Error::from_raw_os_error(error.0)))
        })?;
    }
    for (pool, member) in settings.pools.iter_mut().zip(space.pools().members()) {
        let Some(tree) = &member.tree else { continue };
        if pool.import {
            let files = import(space, (member.id, &*member.pool), tree, &mut met, progress)?;
            // The names that the pool gave them, before it is known that there is nothing more to be taken in.
            member.pool.sync().map_err(|source| Error::Pool { name: pool.name.clone(), source })?;
            tracing::info!(pool = pool.name, files, "imported");
            pool.import = false;
            imported = true;
        }
    }
    Ok(imported)
}

/// Names that only a pool shows which is not there would be taken for ones that are gone, once it is.
fn refuse_half_imported(settings: &SpaceSettings) -> Result<()> {
    match settings.pools.iter().find(|pool| pool.absent && pool.import) {
        None => Ok(()),
        Some(pool) => Err(Error::Refused(format!(
            "what lies in the pool '{0}' ({1}) is still to be taken in, before anybody uses the space: start it with that pool; or, to do \
             without, make a new space of the others, with another state",
            pool.name,
            pool.path.display()
        ))),
    }
}

fn refuse_all_absent(settings: &SpaceSettings) -> Result<()> {
    let is_one = settings.pools.iter().any(|pool| pool.absent);
    if is_one && settings.pools.iter().all(|pool| pool.absent || pool.draining) {
        return Err(Error::Refused(
            "without these there is no pool that takes files; start the space with one that is there".into(),
        ));
    }
    Ok(())
}

/// Pools leave to the catalog the inodes that it needs, and on a disk that is nearly full the room.
pub(crate) fn leave_room(ballast: &Ballast, members: &mut [PoolMember]) -> Result<()> {
    let room = ballast.take()?;
    for member in members {
        if ballast.shares(member.pool.disk()) {
            member.reserve = member.reserve.max(Bytes(room));
            member.pool.leave_inodes(ballast.least_inodes());
            if let Some(tree) = &member.tree {
                tree.leave_inodes(ballast.least_inodes());
            }
        }
    }
    Ok(())
}

/// Whether the plain trees were left in step, at some time; from here on they are not known to be.
pub(crate) fn take_in_step(state: &State) -> Result<bool> {
    let path = state.in_step_path();
    match std::fs::remove_file(&path) {
        Ok(()) => {
            let flush = std::fs::File::open(state.place()).and_then(|dir| dir.sync_all());
            flush.map_err(crate::error::io_error("flush", state.dir()))?;
            Ok(true)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(crate::error::io_error("remove", path)(error)),
    }
}

/// What can be refused before anything is made.
pub(crate) fn precheck(pool: &PoolSettings, space: Uuid, state: &State, mountpoint: &Path) -> Result<()> {
    if pool.kind == Kind::Null {
        return Ok(());
    }
    // What else can be done where one that the space has had before is not what it was.
    let or_without = || {
        let starts = command(&format!("up --without {}", pool.name), state, mountpoint);
        format!("; or start without it: `{starts}`")
    };
    match std::fs::metadata(&pool.path) {
        Ok(meta) if meta.is_dir() => {}
        Ok(_) => {
            return Err(Error::Refused(format!("pool '{}': {} is not a directory", pool.name, pool.path.display())));
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Error::Refused(format!(
                "pool '{}': {} does not exist; {}",
                pool.name,
                pool.path.display(),
                if pool.uuid.is_some() {
                    format!(
                        "mount what belongs there, or, where the pool lies elsewhere now, correct its path in the state's space.toml, and \
                         try again{}",
                        or_without()
                    )
                } else {
                    "create it, or mount what belongs there, and try again".to_owned()
                }
            )));
        }
        Err(error) => return Err(Error::Io { doing: "look at", path: pool.path.clone(), source: error }),
    }
    let fail = |source| Error::Pool { name: pool.name.clone(), source };
    let expected = pool.uuid.as_deref().and_then(Uuid::parse);
    if pool.layout == Layout::Mirror && expected.is_none() {
        Tree::examine(&pool.path, pool.import).map_err(fail)?;
        if !pool.files().is_dir() {
            return Ok(());
        }
    }
    DirPool::examine(&pool.files(), space, expected).map_err(|source| match source {
        // The disk is not mounted, or another one is.
        ullage_pool::Error::Unusable(text) if pool.uuid.is_some() => {
            Error::Refused(format!("pool '{}': {text}{}", pool.name, or_without()))
        }
        source => fail(source),
    })
}

fn open_store(state: &State) -> Result<Arc<Store>> {
    let dir = state.catalog_path();
    let mode = |path: &Path, mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, mode).map_err(crate::error::io_error("set the mode of", path))
    };
    if dir.exists() {
        // It may be a copy that somebody put back in its place.
        mode(&dir, 0o700)?;
    } else {
        // Others reach the control socket, and nothing else.
        state.make()?;
        // Another start may make it just now.
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .map_err(crate::error::io_error("create", &dir))?;
    }
    Ok(Arc::new(Store::open(&dir, EngineKind::Fjall, Options::default())?))
}

/// A pool, and its plain tree where it has one.
pub(crate) type Opened = (Arc<dyn Pool>, Option<Arc<Tree>>);

pub(crate) fn open_pool(
    settings: &mut PoolSettings,
    space: Uuid,
    catalog: &Arc<Catalog>,
    marks: Arc<CatalogMarks>,
) -> Result<Opened> {
    let numbers = Arc::new(NumbersOf(catalog.numbers()));
    let name = settings.name.clone();
    let fail = |source| Error::Pool { name: name.clone(), source };
    if settings.kind == Kind::Null {
        return Ok((Arc::new(NullPool::new(numbers).map_err(fail)?), None));
    }
    let expected = settings.uuid.as_deref().and_then(Uuid::parse);
    let mut config = PoolConfig::new(space, expected);
    config.sparse = settings.sparse.of(config.sparse);
    let mut tree = None;
    if settings.layout == Layout::Mirror {
        config.layout = settings.layout.name();
        // What is gone is not made again: it is told from what is new by whether it was there before.
        if expected.is_none() {
            Tree::prepare(&settings.path, settings.import).map_err(fail)?;
        }
    }
    let pool = DirPool::open(&settings.files(), config, numbers, Arc::new(MarksOf(marks))).map_err(fail)?;
    if settings.layout == Layout::Mirror {
        tree = Some(Arc::new(Tree::open(&settings.path, space).map_err(fail)?));
    }
    settings.uuid = Some(pool.uuid().to_string());
    Ok((Arc::new(pool), tree))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the state has no room, what is held for that is given up and the start tried again at once: it was refused, since the first
    /// try still had its store locked.
    #[test]
    fn a_start_that_failed_can_be_tried_once_more_at_once() {
        let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [pool, state] = &dirs;
        let state = State::at(state.path().join("state"));
        let place = format!("p={}", pool.path().display()).parse().unwrap();
        let settings = SpaceSettings::new(&pool.path().join("none"), vec![place], "most-free".into()).unwrap();
        let open = || OpenSpace::open(&state, &|| Ok(settings.clone()), SpaceOptions::default(), &mut |_, _| {});
        // What is counted cannot be written, which is done when the space is open.
        let blocked = state.dir().join("turns.new");
        std::fs::create_dir_all(&blocked).unwrap();
        for _ in 0..2 {
            let error = open().err().expect("it cannot start").to_string();
            assert!(error.contains("turns"), "{error}");
        }
        std::fs::remove_dir(&blocked).unwrap();
        open().unwrap_or_else(|error| panic!("{error}")).space.give_up();
    }

    /// Settings of another space may have been put in the place of its own by hand.
    #[test]
    fn settings_of_another_space_are_not_taken_for_its_own() {
        let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [pool, state] = &dirs;
        let state = State::at(state.path().join("state"));
        let settings = || {
            let place = format!("p={}", pool.path().display()).parse().unwrap();
            SpaceSettings::new(&pool.path().join("none"), vec![place], "most-free".into())
        };
        let opened = OpenSpace::open(&state, &settings, SpaceOptions::default(), &mut |_, _| {});
        let opened = opened.unwrap_or_else(|error| panic!("{error}"));
        opened.settings_now().unwrap();
        state.store(&settings().unwrap()).unwrap();
        let error = opened.settings_now().unwrap_err().to_string();
        let path = state.dir().canonicalize().unwrap().join("space.toml");
        assert!(error.contains("of another space") && error.contains(path.to_str().unwrap()), "{error}");
        opened.space.give_up();
    }

    /// What `pool add` wrote was written over by a start that had read the settings before it had the catalog.
    #[test]
    fn a_start_whose_settings_were_changed_before_it_had_the_catalog_leaves_them_and_is_tried_again() {
        let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let [pool, more, state] = &dirs;
        let state = State::at(state.path().join("state"));
        let place = |name, dir: &tempfile::TempDir| format!("{name}={}", dir.path().display()).parse().unwrap();
        let first = || SpaceSettings::new(&pool.path().join("none"), vec![place("p", pool)], "most-free".into());
        let open = |read: &ReadSettings<'_>| OpenSpace::open(&state, read, SpaceOptions::default(), &mut |_, _| {});
        open(&first).unwrap_or_else(|error| panic!("{error}")).space.give_up();
        let read = || {
            let settings = state.existing()?;
            let mut added = settings.clone();
            added.pools.push(PoolSettings { id: 1, ..place("more", more) });
            state.store(&added)?;
            Ok(settings)
        };
        let error = open(&read).err().expect("they were changed");
        assert!(error.is_lock(), "{error}");
        let opened = open(&|| state.existing()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(opened.settings.pools.len(), 2);
        opened.space.give_up();
    }
}
