//! The file that says what the directory is: version and identity of the store.

use crate::Error;
use crate::held::shown;
use crate::log::{random, sync_dir_of};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The version written here.
const VERSION: u32 = 1;
/// What the file begins with.
const TITLE: &str = "ullage catalog";

/// The content of the format file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    /// Binds the log to its store.
    pub identity: u64,
}

impl Format {
    pub fn new() -> Self {
        Self { identity: random() }
    }

    pub fn path(dir: &Path) -> PathBuf {
        dir.join("format")
    }

    /// Reads it; none when there is no such file.
    pub fn read(dir: &Path) -> Result<Option<Self>, Error> {
        let path = Self::path(dir);
        match fs::read_to_string(&path) {
            Ok(text) => Self::parse(&text, &path).map(Some),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) if e.kind() == io::ErrorKind::InvalidData => Err(damaged(&path)),
            Err(source) => Err(Error::Io { doing: "read", path: shown(&path), source }),
        }
    }

    fn parse(text: &str, path: &Path) -> Result<Self, Error> {
        let mut lines = text.lines();
        let mut field = |name: &str| {
            let value = lines.next().and_then(|line| line.strip_prefix(name)).map(str::trim);
            value.ok_or_else(|| damaged(path))
        };
        field(TITLE)?;
        let version: u32 = field("version")?.parse().map_err(|_| damaged(path))?;
        if version > VERSION {
            return Err(Error::Newer { found: version, known: VERSION });
        }
        let identity = u64::from_str_radix(field("identity")?, 16).map_err(|_| damaged(path))?;
        Ok(Self { identity })
    }

    /// Writes it durably, in one step.
    pub fn write(self, dir: &Path) -> Result<(), Error> {
        let path = Self::path(dir);
        let write = || -> io::Result<()> {
            let new = path.with_extension("new");
            let mut file = File::create(&new)?;
            file.write_all(format!("{TITLE}\nversion {VERSION}\nidentity {:016x}\n", self.identity).as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            sync_dir_of(&path)
        };
        write().map_err(|source| Error::Io { doing: "write", path: shown(&path), source })
    }
}

fn damaged(path: &Path) -> Error {
    Error::Corrupt(format!("{} is not what ullage wrote", shown(path).display()))
}
