//! Opening a space: catalog, pools, recovery.

use crate::adapt::{MarksOf, NumbersOf};
use crate::ballast::Ballast;
use crate::{Error, Kind, Layout, PoolSettings, Result, SpaceSettings, State};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use ullage_catalog::{Catalog, CatalogMarks, Limit, Subject};
use ullage_fs::{PoolMember, Pools, Recovered, Space, SpaceOptions};
use ullage_kv::{EngineKind, Options, Store};
use ullage_policy::choose::Spread;
use ullage_pool::{DirPool, NullPool, Pool, PoolConfig, Uuid};
use ullage_types::{Bytes, PoolId, ROOT};

/// An open space, not yet mounted.
pub struct OpenSpace {
    /// The file system.
    pub space: Arc<Space>,
    /// Its store, for figures.
    pub store: Arc<Store>,
    /// Its settings, with every pool's identity.
    pub settings: SpaceSettings,
    /// What had to be mended.
    pub recovered: Recovered,
}

impl OpenSpace {
    /// Opens the space of this state, making what is new in it. Nothing is changed when anything is refused.
    pub fn open(state: &State, mut settings: SpaceSettings, options: SpaceOptions) -> Result<Self> {
        let spread: Spread = settings
            .spread
            .parse()
            .map_err(|error| Error::Refused(format!("{}: {error}", state.settings_path().display())))?;
        for pool in &settings.pools {
            precheck(pool)?;
        }
        std::fs::create_dir_all(state.dir()).map_err(crate::error::io_error("create", state.dir()))?;
        let ballast = Ballast::of(state)?;
        ballast.release()?;
        let store = open_store(state)?;
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let catalog = Catalog::open(store.clone(), uid, gid, ullage_fs::now())?;
        let mut members = Vec::new();
        let mut marks = Vec::new();
        let space_uuid = Uuid::parse(&settings.uuid).ok_or_else(|| {
            Error::Refused(format!("{}: '{}' is no uuid", state.settings_path().display(), settings.uuid))
        })?;
        for pool in &mut settings.pools {
            let id = PoolId(pool.id);
            let pool_marks = Arc::new(catalog.marks(id)?);
            let driver = open_pool(pool, space_uuid, &catalog, pool_marks.clone())?;
            members.push(PoolMember { id, name: pool.name.clone(), pool: driver, reserve: pool.reserve_bytes });
            marks.push((id, pool_marks));
        }
        state.store(&settings)?;
        leave_room(&ballast, &mut members)?;
        let size = options.size;
        let space = Space::new(catalog, Arc::new(Pools::new(members, spread)), options);
        let marked: Vec<(PoolId, &CatalogMarks)> = marks.iter().map(|(id, marks)| (*id, &**marks)).collect();
        let recovered = space.recover(&marked).map_err(|error| {
            Error::Refused(format!("recovery failed: {}", std::io::Error::from_raw_os_error(error.0)))
        })?;
        if let Some(bytes) = size {
            let root = Subject::Directory(ROOT);
            let before = space.catalog().limit(root).unwrap_or(Limit::NONE);
            space.set_limit(root, Limit { bytes, ..before })?;
        }
        Ok(Self { space, store, settings, recovered })
    }
}

/// On a disk that is nearly full, pools leave to the catalog what it needs.
fn leave_room(ballast: &Ballast, members: &mut [PoolMember]) -> Result<()> {
    let devices: Vec<u64> = members.iter().filter_map(|member| member.pool.device()).collect();
    let room = ballast.take(&devices)?;
    for member in members {
        if ballast.shares(member.pool.device()) {
            member.reserve = member.reserve.max(Bytes(room));
        }
    }
    Ok(())
}

/// What can be refused before anything is made.
fn precheck(pool: &PoolSettings) -> Result<()> {
    if pool.kind == Kind::Null {
        return Ok(());
    }
    match std::fs::metadata(&pool.path) {
        Ok(meta) if meta.is_dir() => Ok(()),
        Ok(_) => Err(Error::Refused(format!("pool '{}': {} is not a directory", pool.name, pool.path.display()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(Error::Refused(format!(
            "pool '{}': {} does not exist; create it, or mount what belongs there, and try again",
            pool.name,
            pool.path.display()
        ))),
        Err(error) => Err(Error::Io { doing: "look at", path: pool.path.clone(), source: error }),
    }
}

fn open_store(state: &State) -> Result<Arc<Store>> {
    let dir = state.catalog_path();
    if !dir.exists() {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .map_err(crate::error::io_error("create", &dir))?;
        // Others reach the control socket, and nothing else.
        let open = std::fs::Permissions::from_mode(0o711);
        std::fs::set_permissions(state.dir(), open).map_err(crate::error::io_error("open up", state.dir()))?;
    }
    Ok(Arc::new(Store::open(&dir, EngineKind::Fjall, Options::default())?))
}

fn open_pool(
    settings: &mut PoolSettings,
    space: Uuid,
    catalog: &Arc<Catalog>,
    marks: Arc<CatalogMarks>,
) -> Result<Arc<dyn Pool>> {
    let fail = |name: &str| {
        let name = name.to_owned();
        move |source| Error::Pool { name, source }
    };
    let numbers = Arc::new(NumbersOf(catalog.numbers()));
    match (settings.kind, settings.layout) {
        (Kind::Null, _) => Ok(Arc::new(NullPool::new(numbers).map_err(fail(&settings.name))?)),
        (Kind::Dir, Layout::Sparse) => {
            let expected = settings.uuid.as_deref().and_then(Uuid::parse);
            let config = PoolConfig::new(space, expected);
            let pool = DirPool::open(Path::new(&settings.path), config, numbers, Arc::new(MarksOf(marks)))
                .map_err(fail(&settings.name))?;
            settings.uuid = Some(pool.uuid().to_string());
            Ok(Arc::new(pool))
        }
    }
}
