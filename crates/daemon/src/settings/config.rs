//! `space.toml`: what a space consists of, written at its first `up`.

use super::bounds;
use super::places::missing;
use super::shape::Shape;
use crate::ballast::give_to_file;
use crate::error::{io_error, is_full};
use crate::held::Held;
use crate::{Error, Result, quoted};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use ullage_kv::shown;
use ullage_pool::Uuid;
use ullage_types::Bytes;

/// The format this version writes.
const FORMAT: u32 = 1;

/// Kind of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A directory on any file system.
    #[default]
    Dir,
    /// No data at all, for measuring.
    Null,
}

/// Layout of a `dir` pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Paths that suit the file system below (COFS §4.2).
    #[default]
    Sparse,
    /// The same beside a plain tree of the paths that users see.
    Mirror,
}

impl Layout {
    /// As settings and commands name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sparse => "sparse",
            Self::Mirror => "mirror",
        }
    }
}

/// One pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolSettings {
    /// Its name.
    pub name: String,
    /// Its number, stored with every file in it.
    pub id: u16,
    /// Where it is.
    pub path: PathBuf,
    /// Its kind.
    #[serde(default)]
    pub kind: Kind,
    /// Its layout.
    #[serde(default)]
    pub layout: Layout,
    /// Bytes that new files leave free.
    #[serde(default)]
    pub reserve_bytes: Bytes,
    /// It is being emptied, to leave the space: its files go to the other pools.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draining: bool,
    /// The space is started without it this time.
    #[serde(skip)]
    pub absent: bool,
    /// What lies in its directory is still to be taken into the space.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub import: bool,
    /// What its marker must say; none before its first use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// What its layout is told other than the usual.
    #[serde(default, skip_serializing_if = "Shape::is_usual")]
    pub sparse: Shape,
}

impl PoolSettings {
    /// The directory in which its backing files lie, its marker, and the catalog's copy.
    pub fn files(&self) -> PathBuf {
        match self.layout {
            Layout::Sparse => self.path.clone(),
            Layout::Mirror => self.path.join(ullage_pool::FILES),
        }
    }

    /// Whether `asked`, as a command line has it, says nothing else than what is there.
    pub fn is_as_asked(&self, asked: &Self) -> bool {
        let reserve = asked.reserve_bytes.0 == 0 || asked.reserve_bytes == self.reserve_bytes;
        let same =
            (&self.name, &self.path, self.kind, self.layout) == (&asked.name, &asked.path, asked.kind, asked.layout);
        same && reserve && (asked.sparse.is_usual() || asked.sparse == self.sparse)
    }

    /// The layout of the pool that is at a path, where nobody knows it.
    pub fn layout_of(path: &Path) -> Layout {
        if path.join(ullage_pool::FILES).is_dir() { Layout::Mirror } else { Layout::Sparse }
    }
}

/// `NAME=PATH[,kind=dir|null][,layout=sparse|mirror][,reserve=SIZE]`.
impl FromStr for PoolSettings {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        const FORM: &str = "write NAME=PATH[,kind=dir|null][,layout=sparse|mirror][,reserve=SIZE]\
            [,depth=N][,entries=N][,random-bits=N]";
        let (name, rest) = text.split_once('=').ok_or_else(|| format!("'{text}' names no path: {FORM}"))?;
        if let Some(why) = bounds::wrong_name(name) {
            return Err(why);
        }
        let mut parts = rest.split(',');
        let path = parts.next().unwrap_or_default();
        if path.is_empty() {
            return Err(format!("pool '{name}' has no path: {FORM}"));
        }
        let path = std::path::absolute(path).map_err(|error| format!("pool '{name}': {error}"))?;
        let mut pool = Self {
            name: name.to_owned(),
            id: 0,
            path,
            kind: Kind::Dir,
            layout: Layout::Sparse,
            reserve_bytes: Bytes(0),
            draining: false,
            absent: false,
            import: false,
            uuid: None,
            sparse: Shape::default(),
        };
        for part in parts {
            let parameter = part.split_once('=').and_then(|(key, value)| pool.sparse.take(key, value));
            if let Some(taken) = parameter {
                taken.map_err(|error| format!("pool '{name}': {error}"))?;
                continue;
            }
            match part.split_once('=') {
                Some(("kind", "dir")) => pool.kind = Kind::Dir,
                Some(("kind", "null")) => pool.kind = Kind::Null,
                Some(("layout", "sparse")) => pool.layout = Layout::Sparse,
                Some(("layout", "mirror")) => pool.layout = Layout::Mirror,
                Some(("reserve", size)) => {
                    pool.reserve_bytes = size.parse().map_err(|error| format!("pool '{name}': {error}"))?;
                }
                _ => return Err(format!("pool '{name}': '{part}' is unknown: {FORM}")),
            }
        }
        Ok(pool)
    }
}

/// As [`PoolSettings::from_str`] reads it.
impl std::fmt::Display for PoolSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            Kind::Dir => "dir",
            Kind::Null => "null",
        };
        write!(f, "{}={},kind={kind}", self.name, self.path.display())?;
        if self.kind == Kind::Dir {
            write!(f, ",layout={}", self.layout.name())?;
            self.sparse.fmt(f)?;
        }
        if self.reserve_bytes.0 > 0 {
            write!(f, ",reserve={}B", self.reserve_bytes.0)?;
        }
        Ok(())
    }
}

/// What `space.toml` holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpaceSettings {
    /// Format of this file.
    pub format: u32,
    /// The space's identity, which its pools carry too.
    pub uuid: String,
    /// Where it is mounted.
    pub mountpoint: PathBuf,
    /// How files are spread over the pools: `most-free`, `round-robin` or `first-fit`.
    #[serde(default = "default_spread")]
    pub spread: String,
    /// Seconds between two copies of the catalog's changes into the pools, which `ullage rebuild` reads; 0 for none.
    #[serde(default = "default_mirror")]
    pub mirror_seconds: u64,
    /// The least number that no pool has had, where one was taken away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_pool: Option<u16>,
    /// The pools.
    #[serde(rename = "pool")]
    pub pools: Vec<PoolSettings>,
}

/// Only the format: what every later one will still have.
#[derive(Deserialize)]
struct Version {
    format: u32,
}

fn default_mirror() -> u64 {
    30
}

fn default_spread() -> String {
    "most-free".into()
}

impl SpaceSettings {
    /// The settings of a new space.
    pub fn new(mountpoint: &Path, mut pools: Vec<PoolSettings>, spread: String) -> Result<Self> {
        for (index, pool) in pools.iter_mut().enumerate() {
            pool.id = u16::try_from(index).map_err(|_| Error::Refused("a space has at most 65,536 pools".into()))?;
        }
        let uuid = Uuid::random().map_err(io_error("read", "the random numbers of the kernel"))?.to_string();
        let settings = Self {
            format: FORMAT,
            uuid,
            mountpoint: mountpoint.to_owned(),
            spread,
            mirror_seconds: default_mirror(),
            next_pool: None,
            pools,
        };
        bounds::wrong(&settings).map_or(Ok(settings), |why| Err(Error::Refused(why)))
    }

    /// What was read at `path`.
    pub(crate) fn parse(text: &str, path: &Path) -> Result<Self> {
        let invalid = |source| Error::Settings { path: shown(path), source: Box::new(source) };
        // First: a newer one has keys that are not known here.
        let Version { format } = toml::from_str(text).map_err(invalid)?;
        if format > FORMAT {
            return Err(Error::Refused(format!(
                "{} has format {format}, newer than the {FORMAT} this version knows; use a newer ullage",
                shown(path).display()
            )));
        }
        toml::from_str(text).map_err(invalid)
    }

    /// A number for one more pool: none that another has or had. None where all are given out.
    pub(crate) fn next_number(&self) -> Option<u16> {
        let newest = self.pools.iter().map(|pool| pool.id).max();
        let after = newest.map_or(Some(0), |newest| newest.checked_add(1))?;
        Some(after.max(self.next_pool.unwrap_or(0)))
    }

    /// Says of the pool with this number whether it is being emptied.
    pub(crate) fn set_draining(&mut self, id: u16, drains: bool) {
        self.pools.iter_mut().filter(|pool| pool.id == id).for_each(|pool| pool.draining = drains);
    }

    /// The pools that have files of their own, and are there.
    pub(crate) fn with_files(&self) -> impl Iterator<Item = &PoolSettings> {
        self.pools.iter().filter(|pool| pool.kind == Kind::Dir && !pool.absent)
    }

    /// Has the space started without the pool of this name.
    ///
    /// # Errors
    /// Where it has none such.
    pub fn leave_out(&mut self, name: &str) -> Result<()> {
        let id = self.pool_called(name)?.id;
        self.pools.iter_mut().filter(|pool| pool.id == id).for_each(|pool| pool.absent = true);
        Ok(())
    }

    /// The pool of this name.
    ///
    /// # Errors
    /// With the names that there are, where it is none.
    pub(crate) fn pool_called(&self, name: &str) -> Result<&PoolSettings> {
        self.pools.iter().find(|pool| pool.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.pools.iter().map(|pool| pool.name.as_str()).collect();
            Error::Refused(format!("the space has no pool '{name}': it has {}", names.join(", ")))
        })
    }
}

/// A space's state directory: settings, catalog, log, control socket.
#[derive(Clone, Debug)]
pub struct State {
    dir: PathBuf,
    /// What has it open while its space is up.
    held: Option<Arc<Held>>,
}

impl State {
    /// The state in this directory.
    pub fn at(dir: PathBuf) -> Self {
        Self { dir, held: None }
    }

    /// Where the state of a space lies when nothing else was said: `MNT.ullage`.
    pub fn of_mountpoint(mountpoint: &Path) -> Self {
        let mut dir = mountpoint.as_os_str().to_owned();
        dir.push(".ullage");
        Self::at(dir.into())
    }

    /// The directory, as people know it.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The same state from now on, whatever becomes of its path: directories above it are renamed, its disk is unmounted lazily or another one
    /// mounted over it, and another space may be made in its place. What its files are called then is for this process alone.
    pub(crate) fn hold(&self) -> Result<Self> {
        Ok(Self { dir: self.dir.clone(), held: Some(Arc::new(Held::open(&self.dir)?)) })
    }

    /// The way to the directory for this process.
    pub(crate) fn place(&self) -> PathBuf {
        self.held.as_ref().map_or_else(|| self.dir.clone(), |held| held.path())
    }

    /// The settings file.
    pub fn settings_path(&self) -> PathBuf {
        self.place().join("space.toml")
    }

    /// The catalog's directory.
    pub fn catalog_path(&self) -> PathBuf {
        self.place().join("catalog")
    }

    /// The log of a daemon in the background.
    pub fn log_path(&self) -> PathBuf {
        self.place().join("ullage.log")
    }

    /// There while the plain trees of `mirror` pools are known to show what the catalog says: never while the space is up.
    pub(crate) fn in_step_path(&self) -> PathBuf {
        self.place().join("trees-in-step")
    }

    /// How often the space was started, ended in order, and changed (`turns.rs`).
    pub(crate) fn turns_path(&self) -> PathBuf {
        self.place().join(crate::turns::IN_STATE)
    }

    /// Which device the space is mounted as (`mounting/mounts.rs`).
    pub(crate) fn device_path(&self) -> PathBuf {
        self.place().join("mounted-as")
    }

    /// The control socket.
    pub fn socket_path(&self) -> PathBuf {
        self.place().join(crate::control::SOCKET)
    }

    /// The settings, if there are any.
    pub fn load(&self) -> Result<Option<SpaceSettings>> {
        let path = self.settings_path();
        let text = match read_small(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error("read", path)(error)),
        };
        let settings = SpaceSettings::parse(&text, &path)?;
        if let Some(why) = bounds::wrong(&settings) {
            return Err(Error::Refused(format!("{}: {why}", shown(&path).display())));
        }
        Ok(Some(settings))
    }

    /// The settings of a space that was made.
    pub fn existing(&self) -> Result<SpaceSettings> {
        self.load()?.ok_or_else(|| Error::Refused(format!("there is no space at {}", self.dir.display())))
    }

    /// The space's uuid, as its settings have it.
    pub(crate) fn uuid_in(&self, settings: &SpaceSettings) -> Result<Uuid> {
        Uuid::parse(&settings.uuid).ok_or_else(|| {
            Error::Refused(format!("{}: '{}' is no uuid", shown(&self.settings_path()).display(), settings.uuid))
        })
    }

    /// Refuses a space that was made and whose catalog is not there: an empty one in its place would begin the numbers anew, over
    /// pools that are full. The settings are written when there is a catalog.
    pub(crate) fn refuse_without_catalog(&self) -> Result<()> {
        let (settings, catalog) = (self.settings_path(), self.catalog_path());
        if !settings.exists() || ullage_kv::Store::is_in(&catalog)? {
            return Ok(());
        }
        Err(Error::Refused(format!(
            "the catalog of this space is gone: there is none in {}; put it back, or make a new one from the pools with `ullage \
             rebuild` in another state directory",
            shown(&catalog).display()
        )))
    }

    /// Refuses a space of an ordinary user's to root: what root writes there only root can read, which keeps its user out; and where
    /// names in it lead is for that user to say. Until there are settings it is whose the directory is, and the link that leads to it.
    ///
    /// # Errors
    /// Says whose it is and what to do.
    pub fn refuse_users(&self) -> Result<()> {
        let is_new = fs::symlink_metadata(self.settings_path()).is_err_and(|error| error.kind() == ErrorKind::NotFound);
        // With a slash at its end it would be what the link leads to.
        let dir: PathBuf = self.dir.components().collect();
        if !is_new {
            return refuse_users_of(&self.dir, &self.settings_path());
        }
        let there = fs::metadata(&dir).ok();
        if let Some(open) = there.as_ref().filter(|there| there.mode() & 0o002 != 0) {
            return Err(Error::Refused(format!(
                "everybody may write in {} (its mode is {:o}): have the state in a directory of its own (--state)",
                dir.display(),
                open.mode() & 0o7777
            )));
        }
        let owners = [fs::symlink_metadata(&dir).ok(), there];
        let user = owners.into_iter().flatten().map(|there| there.uid()).find(|owner| *owner != 0);
        match user.filter(|_| rustix::process::geteuid().is_root()) {
            None => Ok(()),
            Some(user) => Err(Error::Refused(format!(
                "{} belongs to user {user}, who could have root write wherever a link in it leads: run this as that user (`sudo -u '#{user}' \
                 ullage …`), or have the state in a directory of root's (--state), or one that is not there yet",
                dir.display()
            ))),
        }
    }

    /// Refuses a link of an ordinary user's that leads root to a space which was mounted elsewhere: to another one of root's, maybe.
    ///
    /// # Errors
    /// Says whose the link is and what to do.
    pub fn refuse_users_link(&self, mountpoint: &Path) -> Result<()> {
        let dir: PathBuf = self.dir.components().collect();
        let owner = fs::symlink_metadata(&dir).ok().filter(fs::Metadata::is_symlink).map_or(0, |link| link.uid());
        if owner == 0 || !rustix::process::geteuid().is_root() {
            return Ok(());
        }
        match self.load()? {
            Some(settings) if settings.mountpoint != mountpoint => Err(Error::Refused(format!(
                "{} is a link that belongs to user {owner}, and leads to the space that was mounted at {}: name the state itself with --state",
                dir.display(),
                settings.mountpoint.display()
            ))),
            _ => Ok(()),
        }
    }

    /// Whether a process has the catalog.
    pub(crate) fn is_in_use(&self) -> bool {
        let lock = fs::File::open(self.catalog_path().join("lock"));
        lock.is_ok_and(|lock| {
            let taken = flock(&lock, FlockOperation::NonBlockingLockExclusive);
            // By name: a child that is just being started has a copy of the descriptor.
            let _ = flock(&lock, FlockOperation::Unlock);
            taken.is_err()
        })
    }

    /// Writes the settings in one step, where they are others: a disk that is full stops no start that has nothing to write.
    pub fn store(&self, settings: &SpaceSettings) -> Result<()> {
        let text = toml::to_string_pretty(settings).map_err(|error| Error::Refused(error.to_string()))?;
        if fs::read_to_string(self.settings_path()).is_ok_and(|now| now == text) {
            return Ok(());
        }
        self.replace(&self.settings_path(), &text)
    }

    /// Makes the directory, if it is not there: others pass through it to the control socket, whatever the umask. The directories that it made, the
    /// innermost first.
    pub(crate) fn make(&self) -> Result<Vec<PathBuf>> {
        if self.held.is_some() {
            return Ok(Vec::new());
        }
        let mut missing = missing(&self.dir);
        let make = || -> std::io::Result<bool> {
            self.dir.parent().map_or(Ok(()), fs::create_dir_all)?;
            match fs::DirBuilder::new().mode(0o711).create(&self.dir) {
                // One that was there has the mode that somebody gave it.
                Err(error) if error.kind() == ErrorKind::AlreadyExists && self.dir.is_dir() => Ok(false),
                Err(error) => Err(error),
                Ok(()) => fs::set_permissions(&self.dir, fs::Permissions::from_mode(0o711)).map(|()| true),
            }
        };
        let made = make().map_err(io_error("create", &self.dir))?;
        missing.retain(|dir| made || *dir != self.dir);
        Ok(missing)
    }

    /// Writes one of its files, durably and in one step.
    pub(crate) fn replace(&self, path: &Path, text: &str) -> Result<()> {
        self.make()?;
        let written = match replace(path, text) {
            Err(error) if is_full(&error) && give_to_file(&self.place()).unwrap_or(false) => replace(path, text),
            outcome => outcome,
        };
        written.map_err(io_error("write", path))
    }
}

/// The same of a directory of a space, by the file in it that its owner made.
pub(crate) fn refuse_users_of(dir: &Path, made: &Path) -> Result<()> {
    let owner = fs::symlink_metadata(made).map_or(0, |made| made.uid());
    if owner == 0 || !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "the space of {0} belongs to user {owner}, who could not start it any more after root has changed it: run this as that user \
         (`sudo -u '#{owner}' ullage …`); to have it be root's for good, `chown -R root {1}`",
        dir.display(),
        quoted(dir)
    )))
}

/// The longest file that is read as a whole.
const SMALL: u64 = 1 << 20;

/// What stands in a small file. It may be a user's, and root read it: what is no file would be waited for, or have no end.
pub(crate) fn read_small(path: &Path) -> std::io::Result<String> {
    let file = fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::new(ErrorKind::InvalidData, "it is no file"));
    }
    let mut text = String::new();
    if file.take(SMALL).read_to_string(&mut text)? as u64 == SMALL {
        return Err(std::io::Error::new(ErrorKind::InvalidData, "it is too long"));
    }
    Ok(text)
}

/// A file that is none of others' business, whatever the umask: who could write to it would have the space end or go elsewhere. No link leads
/// to it: that may be somebody's who can write in the directory.
pub(crate) fn private() -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    options
}

/// The same in the place of what a crash may have left there, or somebody has put there.
pub(crate) fn anew(path: &Path) -> std::io::Result<fs::File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    private().create_new(true).open(path)
}

/// Writes a file durably and in one step, for nobody but its owner.
pub(crate) fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let write = || {
        let mut file = anew(Path::new(&new))?;
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    // What could not be written whole is not left there to take room.
    write().inspect_err(|_| drop(fs::remove_file(&new)))?;
    path.parent().map_or(Ok(()), |dir| fs::File::open(dir)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_read_from_the_command_line() {
        let pool: PoolSettings = "fast=/srv/fast,kind=dir,layout=sparse,reserve=1G".parse().expect("valid");
        assert_eq!(
            (pool.name.as_str(), pool.path.as_path(), pool.reserve_bytes),
            ("fast", Path::new("/srv/fast"), Bytes(1 << 30))
        );
        for text in ["", "x", "=/a", "a=", "a b=/x", "a=/x,kind=tape", "a=/x,reserve=much", "a=/x,layout"] {
            assert!(text.parse::<PoolSettings>().is_err(), "{text}");
        }
    }

    #[test]
    fn pools_of_one_name_are_refused() {
        let pools =
            |texts: &[&str]| texts.iter().map(|text| text.parse().expect("valid")).collect::<Vec<PoolSettings>>();
        assert!(SpaceSettings::new(Path::new("/mnt"), pools(&["a=/x", "a=/y"]), default_spread()).is_err());
        let settings =
            SpaceSettings::new(Path::new("/mnt"), pools(&["a=/x", "b=/y"]), default_spread()).expect("valid");
        let text = toml::to_string(&settings).expect("written");
        assert_eq!(toml::from_str::<SpaceSettings>(&text).expect("read"), settings);
    }

    /// Regression: settings were read and written by the path of their state, which led to another space once a directory above it was renamed.
    #[test]
    fn a_state_that_is_held_stays_the_same_one() {
        let dir = tempfile::tempdir().expect("made");
        let [srv, moved] = ["srv", "moved"].map(|name| dir.path().join(name));
        let new = || {
            let pools = vec!["p=/x".parse().expect("valid")];
            SpaceSettings::new(Path::new("/mnt"), pools, default_spread()).expect("valid")
        };
        let (state, [own, other, changed]) = (State::at(srv.join("state")), [(); 3].map(|()| new()));
        state.store(&own).expect("written");
        let held = state.hold().expect("there");
        fs::rename(&srv, &moved).expect("renamed");
        state.store(&other).expect("written");
        assert_eq!(held.existing().expect("read"), own);
        held.store(&changed).expect("written");
        assert_eq!(state.existing().expect("read"), other);
        assert_eq!(State::at(moved.join("state")).existing().expect("read"), changed);
        assert_eq!(held.dir(), state.dir());
        // Nor is it made anew where it was.
        fs::remove_dir_all(&srv).expect("removed");
        held.store(&own).expect("written");
        assert!(!srv.exists());
    }

    /// Regression: where somebody had put a link, what it led to was emptied and written.
    #[test]
    fn what_is_written_goes_through_no_link() {
        let dir = tempfile::tempdir().expect("made");
        let [kept, path, new] = ["kept", "file", "file.new"].map(|name| dir.path().join(name));
        fs::write(&kept, "content").expect("written");
        fs::set_permissions(&kept, fs::Permissions::from_mode(0o644)).expect("set");
        std::os::unix::fs::symlink(&kept, &new).expect("made");
        assert!(private().truncate(true).open(&new).is_err() && private().append(true).open(&new).is_err());
        std::os::unix::fs::symlink(&kept, &path).expect("made");
        replace(&path, "new").expect("written");
        assert_eq!(fs::read(&path).expect("there"), b"new");
        assert!(fs::symlink_metadata(&path).expect("there").is_file() && fs::symlink_metadata(&new).is_err());
        let is_kept = fs::metadata(&kept).expect("there").mode() & 0o777 == 0o644;
        assert!(is_kept && fs::read(&kept).expect("there") == b"content");
        // What a crash left is in nobody's way.
        fs::write(&new, "half").expect("written");
        replace(&path, "newer").expect("written");
        assert_eq!(fs::read(&path).expect("there"), b"newer");
    }
}
