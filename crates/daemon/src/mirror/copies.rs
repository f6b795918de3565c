//! One stream into a file in every pool, written at leisure.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes written before it rests.
const PIECE: u64 = 256 << 10;

/// Waits so long, or less where there is no more time for that.
pub(super) type Rest<'a> = dyn Fn(Duration) + 'a;

/// One stream into several files. A file that fails is given up; the stream goes on as long as there is one.
pub(super) struct Copies<'a> {
    pub(super) files: Vec<(PathBuf, File)>,
    pub(super) failed: Option<(PathBuf, io::Error)>,
    pub(super) bytes: u64,
    rest: Option<&'a Rest<'a>>,
    rested: (u64, Instant),
}

impl<'a> Copies<'a> {
    /// Into no file yet.
    pub(super) fn new(rest: Option<&'a Rest<'a>>) -> Self {
        Self { files: Vec::new(), failed: None, bytes: 0, rest, rested: (0, Instant::now()) }
    }

    pub(super) fn fail(&mut self, path: &Path, error: io::Error) {
        let _ = fs::remove_file(path);
        self.pass_over(path, error);
    }

    /// The same of one that was not begun.
    pub(super) fn pass_over(&mut self, path: &Path, error: io::Error) {
        self.failed.get_or_insert_with(|| (path.to_owned(), error));
    }
}

impl Write for Copies<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut failed = Vec::new();
        self.files.retain_mut(|(path, file)| match file.write_all(bytes) {
            Ok(()) => true,
            Err(error) => {
                failed.push((path.clone(), error));
                false
            }
        });
        for (path, error) in failed {
            self.fail(&path, error);
        }
        if self.files.is_empty() {
            let why = self.failed.as_ref().map_or_else(|| "no pool".to_owned(), |(_, error)| error.to_string());
            return Err(io::Error::other(why));
        }
        self.bytes += bytes.len() as u64;
        if let Some(rest) = self.rest
            && self.bytes - self.rested.0 >= PIECE
        {
            rest((self.rested.1.elapsed() * 3).min(Duration::from_secs(1)));
            self.rested = (self.bytes, Instant::now());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
