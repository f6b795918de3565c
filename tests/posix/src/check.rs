//! What a check is, and the words it is written in.

use crate::sys::{self, Errno, Sys};
use std::fmt::{self, Debug};
use std::os::fd::OwnedFd;
use std::panic::Location;
use std::path::{Path, PathBuf};

/// An ordinary user for checks.
pub const ALICE: User = User { uid: 65_101, gid: 65_101, groups: &[] };
/// Another one.
pub const BOB: User = User { uid: 65_102, gid: 65_102, groups: &[] };
/// Alice, also in [`TEAM`].
pub const ALICE_IN_TEAM: User = User { uid: 65_101, gid: 65_101, groups: &[TEAM] };
/// A group.
pub const TEAM: u32 = 65_110;
/// Leaves an owner or group as it is.
pub const KEEP: u32 = u32::MAX;

/// Who a part of a check runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: &'static [u32],
}

/// Why a check did not pass.
#[derive(Debug)]
pub enum Failure {
    /// What was expected, what came, and where.
    Failed(String),
    /// The file system (or this machine) has no such thing, which is allowed.
    Skipped(String),
}

/// What a check gives.
pub type Outcome = Result<(), Failure>;

impl From<Errno> for Failure {
    #[track_caller]
    fn from(errno: Errno) -> Self {
        Self::Failed(format!("{}: expected success, got {errno}", Location::caller()))
    }
}

impl From<std::io::Error> for Failure {
    #[track_caller]
    fn from(error: std::io::Error) -> Self {
        Self::Failed(format!("{}: expected success, got {error}", Location::caller()))
    }
}

/// One check: a name to select it by, and the code that runs in an empty directory of its own.
#[derive(Clone, Copy)]
pub struct Check {
    /// The module it stands in.
    pub area: &'static str,
    /// What must hold.
    pub name: &'static str,
    /// The check.
    pub run: fn(&Place) -> Outcome,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.area, self.name)
    }
}

/// Lists the checks of a module.
macro_rules! checks {
    ($area:literal: $($name:ident),+ $(,)?) => {
        /// The checks of this area.
        pub const CHECKS: &[$crate::check::Check] =
            &[$($crate::check::Check { area: $area, name: stringify!($name), run: $name }),+];
    };
}
pub(crate) use checks;

/// The empty directory that a check has to itself: root's, mode 0755.
pub struct Place(pub PathBuf);

impl Place {
    /// A path below it.
    pub fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    /// A new file with this content and mode 0644.
    pub fn file(&self, name: &str, content: &[u8]) -> Sys<PathBuf> {
        let path = self.at(name);
        let fd = sys::open(&path, libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY, 0o644)?;
        write_all(&fd, content)?;
        Ok(path)
    }

    /// A new directory with this mode, whatever the umask.
    pub fn dir(&self, name: &str, mode: u32) -> Sys<PathBuf> {
        let path = self.at(name);
        sys::mkdir(&path, 0o755)?;
        sys::chmod(&path, mode)?;
        Ok(path)
    }

    /// A new file of this kind for checks that go through all kinds.
    pub fn make(&self, name: &str, kind: Kind) -> Sys<PathBuf> {
        let path = self.at(name);
        match kind {
            Kind::Regular => self.file(name, b"").map(drop)?,
            Kind::Directory => sys::mkdir(&path, 0o755)?,
            Kind::Fifo => sys::mknod(&path, libc::S_IFIFO | 0o644, 0)?,
            Kind::Socket => sys::mknod(&path, libc::S_IFSOCK | 0o644, 0)?,
            Kind::Char => sys::mknod(&path, libc::S_IFCHR | 0o644, libc::makedev(1, 3))?,
            Kind::Block => sys::mknod(&path, libc::S_IFBLK | 0o644, libc::makedev(7, 77))?,
            Kind::Symlink => sys::symlink("nowhere", &path)?,
        }
        Ok(path)
    }
}

/// A type of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Regular,
    Directory,
    Fifo,
    Socket,
    Char,
    Block,
    Symlink,
}

impl Kind {
    /// All but directories.
    pub const FILES: [Self; 6] = [Self::Regular, Self::Fifo, Self::Socket, Self::Char, Self::Block, Self::Symlink];

    /// The `S_IFMT` bits.
    pub fn bits(self) -> u32 {
        match self {
            Self::Regular => libc::S_IFREG,
            Self::Directory => libc::S_IFDIR,
            Self::Fifo => libc::S_IFIFO,
            Self::Socket => libc::S_IFSOCK,
            Self::Char => libc::S_IFCHR,
            Self::Block => libc::S_IFBLK,
            Self::Symlink => libc::S_IFLNK,
        }
    }
}

/// Writes everything.
pub fn write_all(fd: &OwnedFd, mut data: &[u8]) -> Sys<()> {
    while !data.is_empty() {
        let written = sys::write(fd, data)?;
        data = &data[written..];
    }
    Ok(())
}

/// Reads a whole file.
pub fn content(path: impl AsRef<Path>) -> Sys<Vec<u8>> {
    let fd = sys::open(path, libc::O_RDONLY, 0)?;
    let mut content = Vec::new();
    let mut buffer = [0; 65536];
    loop {
        match sys::read(&fd, &mut buffer)? {
            0 => return Ok(content),
            read => content.extend_from_slice(&buffer[..read]),
        }
    }
}

/// The permission bits of a path, links not followed.
pub fn mode(path: impl AsRef<Path>) -> Sys<u32> {
    Ok(sys::lstat(path)?.st_mode & 0o7777)
}

/// Runs a part of a check as another user, on a thread of its own.
#[track_caller]
pub fn as_user<T: Send>(user: User, part: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
    as_other(|| sys::become_user(user.uid, user.gid, user.groups), part)
}

/// Runs a part of a check on a thread of its own that becomes somebody else first.
#[track_caller]
pub fn as_other<T: Send>(
    turn: impl FnOnce() -> Sys<()> + Send,
    part: impl FnOnce() -> Result<T, Failure> + Send,
) -> Result<T, Failure> {
    if sys::user() != 0 {
        return Err(Failure::Skipped("needs root".to_owned()));
    }
    let run = || {
        turn()?;
        part()
    };
    let joined = std::thread::scope(|scope| scope.spawn(run).join());
    joined.unwrap_or_else(|_| Err(Failure::Failed(format!("{}: panicked", Location::caller()))))
}

/// The call must be refused with this errno.
#[track_caller]
pub fn refused<T>(result: Sys<T>, errno: i32) -> Outcome {
    refused_any(result, &[errno])
}

/// The call must be refused with one of these errnos.
#[track_caller]
pub fn refused_any<T>(result: Sys<T>, errnos: &[i32]) -> Outcome {
    let expected = errnos.iter().map(|&errno| Errno(errno).to_string()).collect::<Vec<_>>().join(" or ");
    match result {
        Err(Errno(errno)) if errnos.contains(&errno) => Ok(()),
        Err(errno) => fail(&format!("expected {expected}, got {errno}")),
        Ok(_) => fail(&format!("expected {expected}, got success")),
    }
}

/// Both must be the same.
#[track_caller]
pub fn equal<T: PartialEq + Debug>(got: T, expected: T) -> Outcome {
    if got == expected { Ok(()) } else { fail(&format!("expected {expected:?}, got {got:?}")) }
}

/// Mode bits must be the same; shown in octal.
#[track_caller]
pub fn equal_mode(got: u32, expected: u32) -> Outcome {
    if got == expected { Ok(()) } else { fail(&format!("expected mode {expected:04o}, got {got:04o}")) }
}

/// The condition must hold.
#[track_caller]
pub fn ensure(condition: bool, what: &str) -> Outcome {
    if condition { Ok(()) } else { fail(&format!("does not hold: {what}")) }
}

/// Fails.
#[track_caller]
pub fn fail(what: &str) -> Outcome {
    Err(Failure::Failed(format!("{}: {what}", Location::caller())))
}

/// Skips when the file system says that it has no such thing.
pub fn supported<T>(result: Sys<T>, what: &str) -> Result<T, Failure> {
    result.map_err(|errno| {
        if [libc::EOPNOTSUPP, libc::ENOSYS].contains(&errno.0) {
            Failure::Skipped(format!("{what} is not supported"))
        } else {
            Failure::Failed(format!("{what}: expected success, got {errno}"))
        }
    })
}
