//! Random reads, writes, mappings and changes of length on one file, checked byte by byte against a model in memory.

use crate::map::Map;
use crate::random::Random;
use crate::sys::{self, Errno, Sys};
use std::fmt::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The file never grows past this.
const SIZE_MAX: u64 = 400_000;
/// How many operations a failure's report shows.
const HISTORY: usize = 20;

/// The file under test and what it must hold.
struct Fuzz {
    path: PathBuf,
    fd: OwnedFd,
    model: Vec<u8>,
    random: Random,
    history: Vec<String>,
    fallocate_works: bool,
    copy_works: bool,
}

/// Runs `operations` random operations on a new file in `directory`.
///
/// # Errors
/// The first difference, with the operations that led there.
pub fn run(directory: &Path, seed: u64, operations: u64) -> Result<(), String> {
    let path = directory.join(format!("data-fuzz.{}", std::process::id()));
    let opened = sys::open(&path, libc::O_CREAT | libc::O_EXCL | libc::O_RDWR, 0o600);
    let fd = opened.map_err(|errno| format!("creating {}: {errno}", path.display()))?;
    let mut fuzz = Fuzz {
        path,
        fd,
        model: Vec::new(),
        random: Random::new(seed),
        history: Vec::new(),
        fallocate_works: true,
        copy_works: true,
    };
    let mut outcome = Ok(());
    for number in 0..operations {
        if let Err(what) = fuzz.step() {
            let mut report = format!("seed {seed}, operation {number}: {what}\nlast operations:");
            for line in &fuzz.history {
                let _ = write!(report, "\n  {line}");
            }
            outcome = Err(report);
            break;
        }
    }
    let _ = sys::unlink(&fuzz.path);
    outcome
}

impl Fuzz {
    fn step(&mut self) -> Result<(), String> {
        let choice = self.random.below(16);
        let at = self.random.below(SIZE_MAX);
        let length = (self.random.below(60_000) + 1).min(SIZE_MAX - at).max(1);
        let name = match choice {
            0..=2 => "write",
            3..=4 => "read",
            5 => "mapped write",
            6 => "mapped read",
            7 => "truncate",
            8 => "fallocate",
            9 => "punch",
            10 => "zero",
            11 => "copy",
            12 => "append",
            13 => "reopen",
            14 => "fsync",
            _ => "seek",
        };
        self.history.push(format!("{name} at {at} length {length} (size {})", self.model.len()));
        if self.history.len() > HISTORY {
            self.history.remove(0);
        }
        self.apply(name, at, length).map_err(|errno| format!("{name}: {errno}"))??;
        let size = sys::fstat(&self.fd).map_err(|errno| format!("fstat: {errno}"))?.st_size as usize;
        if size != self.model.len() {
            return Err(format!("the size is {size}, not {}", self.model.len()));
        }
        Ok(())
    }

    fn data(&mut self, length: u64) -> Vec<u8> {
        let tag = self.random.bits();
        (0..length).map(|index| (tag.rotate_left((index % 64) as u32) ^ index) as u8).collect()
    }

    fn put(&mut self, at: usize, data: &[u8]) {
        if self.model.len() < at + data.len() {
            self.model.resize(at + data.len(), 0);
        }
        self.model[at..at + data.len()].copy_from_slice(data);
    }

    fn compare(&self, got: &[u8], at: usize, how: &str) -> Result<(), String> {
        let end = (at + got.len()).min(self.model.len());
        let expected = self.model.get(at..end).unwrap_or(&[]);
        if got.len() != expected.len() {
            return Err(format!("{how} at {at} gave {} bytes, not {}", got.len(), expected.len()));
        }
        match got.iter().zip(expected).position(|(got, expected)| got != expected) {
            None => Ok(()),
            Some(first) => {
                let wrong = got.iter().zip(expected).filter(|(got, expected)| got != expected).count();
                let (is, should) = (got[first], expected[first]);
                let first = first + at;
                Err(format!("{how}: byte {first} is {is:#04x}, not {should:#04x}; {wrong} of {} differ", got.len()))
            }
        }
    }

    fn apply(&mut self, name: &str, at: u64, length: u64) -> Sys<Result<(), String>> {
        let (from, count) = (at as usize, length as usize);
        match name {
            "write" | "append" => {
                let data = self.data(length);
                let from = if name == "append" { self.model.len().min(SIZE_MAX as usize - count) } else { from };
                let written = sys::pwrite(&self.fd, &data, from as i64)?;
                self.put(from, &data[..written]);
            }
            "read" => {
                let mut buffer = vec![0; count];
                let read = sys::pread(&self.fd, &mut buffer, at as i64)?;
                let full = self.model.len().saturating_sub(from).min(count);
                if read != full {
                    return Ok(Err(format!("read gave {read} bytes, not {full}")));
                }
                return Ok(self.compare(&buffer[..read], from, "read"));
            }
            "mapped write" | "mapped read" => return self.mapped(name == "mapped write", from, length),
            "truncate" => {
                sys::ftruncate(&self.fd, at as i64)?;
                self.model.resize(from, 0);
            }
            "fallocate" if self.fallocated(0, at, length)? => {
                if self.model.len() < from + count {
                    self.model.resize(from + count, 0);
                }
            }
            "punch" if self.fallocated(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, at, length)? => {
                let end = (from + count).min(self.model.len());
                if let Some(range) = self.model.get_mut(from..end) {
                    range.fill(0);
                }
            }
            "zero" if self.fallocated(libc::FALLOC_FL_ZERO_RANGE, at, length)? => {
                self.put(from, &vec![0; count]);
            }
            "copy" => return self.copy(from, length),
            "reopen" => {
                self.fd = sys::open(&self.path, libc::O_RDWR, 0)?;
                let all = crate::check::content(&self.path)?;
                if all.len() != self.model.len() {
                    return Ok(Err(format!("the whole file has {} bytes, not {}", all.len(), self.model.len())));
                }
                return Ok(self.compare(&all, 0, "reading the whole file"));
            }
            "fsync" => drop(sys::fsync(&self.fd)?),
            _ => return Ok(self.seek(at)),
        }
        Ok(Ok(()))
    }

    /// Whether the mode is supported; once refused it is not tried again.
    fn fallocated(&mut self, mode: i32, at: u64, length: u64) -> Sys<bool> {
        if !self.fallocate_works {
            return Ok(false);
        }
        match sys::fallocate(&self.fd, mode, at as i64, length as i64) {
            Ok(_) => Ok(true),
            Err(Errno(libc::EOPNOTSUPP)) => {
                self.fallocate_works = false;
                Ok(false)
            }
            Err(errno) => Err(errno),
        }
    }

    fn mapped(&mut self, write: bool, at: usize, length: u64) -> Sys<Result<(), String>> {
        if self.model.len() <= at {
            return Ok(Ok(()));
        }
        let length = (length as usize).min(self.model.len() - at);
        let mut map = Map::new(&self.fd, self.model.len(), write, true)?;
        if write {
            let data = self.data(length as u64);
            map.set(at, &data);
            self.put(at, &data);
            if self.random.below(2) == 0 {
                map.sync()?;
            }
            return Ok(Ok(()));
        }
        Ok(self.compare(&map.get(at, length), at, "reading the mapping"))
    }

    fn copy(&mut self, from: usize, length: u64) -> Sys<Result<(), String>> {
        let to = self.random.below(SIZE_MAX - length) as usize;
        let available = self.model.len().saturating_sub(from).min(length as usize);
        let overlaps = from.abs_diff(to) < length as usize;
        if !self.copy_works || available == 0 || overlaps {
            return Ok(Ok(()));
        }
        let mut done = 0;
        while done < available {
            let rest = available - done;
            match sys::copy_file_range(&self.fd, (from + done) as i64, &self.fd, (to + done) as i64, rest) {
                Ok(0) => return Ok(Err(format!("copying stopped after {done} of {available} bytes"))),
                Ok(copied) => done += copied,
                Err(Errno(libc::EOPNOTSUPP | libc::EXDEV)) if done == 0 => {
                    self.copy_works = false;
                    return Ok(Ok(()));
                }
                Err(errno) => return Err(errno),
            }
        }
        let data = self.model[from..from + available].to_vec();
        self.put(to, &data);
        Ok(Ok(()))
    }

    /// What is said to be a hole must read as zeros in the model.
    fn seek(&self, at: u64) -> Result<(), String> {
        let size = self.model.len();
        let data = match sys::lseek(&self.fd, at as i64, libc::SEEK_DATA) {
            Ok(data) => data as usize,
            Err(Errno(libc::ENXIO)) => size,
            Err(errno) => return Err(format!("SEEK_DATA: {errno}")),
        };
        let hole = self.model.get(at as usize..data.min(size)).unwrap_or(&[]);
        if hole.iter().any(|&byte| byte != 0) {
            return Err(format!("SEEK_DATA says that {at} to {data} is a hole, but data were written there"));
        }
        Ok(())
    }
}
