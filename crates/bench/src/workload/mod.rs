//! What is run on every system; one file each.

mod build;
mod find;
mod fsync;
mod git;
mod io;
mod mail;
mod metarates;
mod postmark;
mod round_trip;
mod sqlite;

use crate::measurement::Measurement;
use anyhow::Result;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What a workload needs to know besides the directory it works in.
#[derive(Clone, Debug)]
pub struct Context {
    /// The command that starts a worker process.
    pub helper: Vec<OsString>,
    /// A directory on the ground's plain ext4, for what is read from outside the system under test.
    pub scratch: PathBuf,
    /// A directory kept between runs, for sources that were fetched.
    pub cache: PathBuf,
    /// Chooses what `prepare` makes.
    pub seed: u64,
    /// The short form.
    pub quick: bool,
    /// Size of the file of `io`.
    pub file_bytes: u64,
}

impl Context {
    /// `full`, or `short` in the short form.
    fn scale<T>(&self, full: T, short: T) -> T {
        if self.quick { short } else { full }
    }
}

/// Work whose time is measured.
pub trait Workload {
    /// What it is called on the command line and in reports.
    fn name(&self) -> String;

    /// One line for a person.
    fn about(&self) -> String;

    /// Why it cannot run here, if it cannot. May fetch what it needs.
    fn unavailable(&self, _context: &Context) -> Option<String> {
        None
    }

    /// Whether it reads back what it wrote, and so cannot run where nothing is kept.
    fn needs_data(&self) -> bool {
        false
    }

    /// Whether all caches, a daemon's too, must be empty before each run.
    fn cold(&self) -> bool {
        false
    }

    /// How many operations one run does, and what one is called: what message counts are divided by.
    fn operations(&self, context: &Context) -> (u64, &'static str);

    /// Makes what all runs need below `directory`, which is empty. Not timed.
    fn prepare(&self, context: &Context, directory: &Path) -> Result<()>;

    /// One run; the same `seed` for every system of a pair.
    fn run(&self, context: &Context, directory: &Path, seed: u64) -> Result<Vec<Measurement>>;

    /// Brings things back to what they were before the run. Not timed.
    fn reset(&self, _context: &Context, _directory: &Path) -> Result<()> {
        Ok(())
    }

    /// Removes what `prepare` made.
    fn cleanup(&self, _context: &Context, directory: &Path) -> Result<()> {
        empty(directory)
    }
}

/// All workloads, in the order of a full run.
pub fn catalogue() -> Vec<Box<dyn Workload>> {
    let mut all: Vec<Box<dyn Workload>> = Vec::new();
    for processes in [1, 2, 4, 8] {
        all.push(Box::new(postmark::PostMark::parallel(processes)));
    }
    all.push(Box::new(postmark::PostMark::unbuffered()));
    all.push(Box::new(postmark::PostMark::with_subdirectories()));
    for cold in [false, true] {
        for sizes in [false, true] {
            all.push(Box::new(find::Find { cold, sizes }));
        }
    }
    all.push(Box::new(build::Build));
    all.push(Box::new(io::Io));
    for files in [256, 1024, 4096, 32768] {
        for processes in [1, 2, 4] {
            all.push(Box::new(metarates::Metarates { files, processes }));
        }
    }
    for processes in [1, 8] {
        all.push(Box::new(fsync::Fsync { processes }));
    }
    all.push(Box::new(git::Git));
    all.push(Box::new(sqlite::Sqlite));
    all.push(Box::new(mail::Mail));
    all.push(Box::new(round_trip::RoundTrip));
    all
}

/// Removes everything below a directory, but not itself.
fn empty(directory: &Path) -> Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(entry.path())?;
        } else {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
