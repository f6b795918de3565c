//! PostMark: the published algorithm (J. Katcher, *PostMark: a new file system benchmark*, TR3022, 1997), written
//! anew.
//!
//! A pool of files is created; then every transaction reads a whole file or appends to one, and creates a file or
//! deletes one; then what is left is deleted. Which file, which operation and what size is random from a seed.

use super::Gate;
use crate::random::Random;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::PathBuf;

/// Creation, transactions, deletion.
pub const PHASES: usize = 3;

/// What stdio uses, on ext4 as on the others.
const STDIO_BUFFER: usize = 4096;

/// What to do, in PostMark's own terms.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PostMark {
    /// Where.
    pub directory: PathBuf,
    /// Files created at first (`set number`).
    pub files: usize,
    /// How many transactions (`set transactions`).
    pub transactions: u64,
    /// Smallest file (`set size`).
    pub smallest: u64,
    /// No file grows beyond this.
    pub largest: u64,
    /// Of ten transactions, how many read rather than append (`set bias read`).
    pub bias_read: u64,
    /// Of ten transactions, how many create rather than delete (`set bias create`).
    pub bias_create: u64,
    /// Files are spread over this many directories; 0 or 1 is none (`set subdirectories`).
    pub subdirectories: u64,
    /// Through a buffer of one page, as stdio does, or one system call per block (`set buffering`).
    pub buffered: bool,
    /// Bytes the program reads and writes at a time (`set read`, `set write`).
    pub block: usize,
    /// Which run of random numbers (`set seed`).
    pub seed: u64,
}

/// What was done, in the terms of PostMark's report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Files created, at first and in transactions.
    pub created: u64,
    /// Files created in transactions.
    pub created_mixed: u64,
    /// Whole files read.
    pub read: u64,
    /// Files appended to.
    pub appended: u64,
    /// Files deleted, in transactions and at the end.
    pub deleted: u64,
    /// Files deleted in transactions.
    pub deleted_mixed: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
}

struct Entry {
    path: PathBuf,
    size: u64,
}

struct State<'a> {
    job: &'a PostMark,
    random: Random,
    source: Vec<u8>,
    buffer: Vec<u8>,
    /// Twice as many slots as files, as published: a size of 0 is a free slot.
    table: Vec<Entry>,
    counts: Counts,
}

impl PostMark {
    /// PostMark with the sizes the project compares by: 2500 files of 8 to 64 KB, 5000 transactions.
    pub fn new(directory: PathBuf, seed: u64) -> Self {
        Self {
            directory,
            files: 2500,
            transactions: 5000,
            smallest: 8 << 10,
            largest: 64 << 10,
            bias_read: 5,
            bias_create: 5,
            subdirectories: 0,
            buffered: true,
            block: 512,
            seed,
        }
    }

    /// All phases; the directory is empty before and after.
    pub fn run(&self, gate: &mut Gate) -> Result<Counts> {
        let mut random = Random::new(self.seed);
        let source = random.text(self.largest as usize);
        let table = (0..self.files * 2).map(|_| Entry { path: PathBuf::new(), size: 0 }).collect();
        let mut state =
            State { job: self, random, source, buffer: vec![0; self.block], table, counts: Counts::default() };
        gate.phase(|| state.create_pool())?;
        gate.phase(|| state.transact())?;
        gate.phase(|| state.delete_pool())?;
        Ok(state.counts)
    }
}

impl State<'_> {
    fn create_pool(&mut self) -> Result<()> {
        if self.job.subdirectories > 1 {
            for number in 0..self.job.subdirectories {
                fs::create_dir(self.job.directory.join(format!("s{number}")))?;
            }
        }
        for _ in 0..self.job.files {
            self.create()?;
        }
        Ok(())
    }

    fn transact(&mut self) -> Result<()> {
        for _ in 0..self.job.transactions {
            if self.counts.created == self.counts.deleted {
                break;
            }
            let chosen = self.used_slot();
            if self.random.below(10) < self.job.bias_read {
                self.read(chosen)?;
            } else {
                self.append(chosen)?;
            }
            if self.random.below(10) < self.job.bias_create {
                let created = self.counts.created;
                self.create()?;
                self.counts.created_mixed += self.counts.created - created;
            } else {
                let chosen = self.used_slot();
                self.delete(chosen)?;
                self.counts.deleted_mixed += 1;
            }
        }
        Ok(())
    }

    fn delete_pool(&mut self) -> Result<()> {
        for slot in 0..self.table.len() {
            if self.table[slot].size > 0 {
                self.delete(slot)?;
            }
        }
        if self.job.subdirectories > 1 {
            for number in 0..self.job.subdirectories {
                fs::remove_dir(self.job.directory.join(format!("s{number}")))?;
            }
        }
        Ok(())
    }

    /// A slot that holds a file, each with the same probability.
    fn used_slot(&mut self) -> usize {
        loop {
            let slot = self.random.below(self.table.len() as u64) as usize;
            if self.table[slot].size > 0 {
                return slot;
            }
        }
    }

    fn create(&mut self) -> Result<()> {
        // As published: with the table full, a creation is quietly left out.
        let Some(slot) = self.table.iter().position(|entry| entry.size == 0) else { return Ok(()) };
        let mut path = self.job.directory.clone();
        if self.job.subdirectories > 1 {
            path.push(format!("s{}", self.random.below(self.job.subdirectories)));
        }
        self.counts.created += 1;
        path.push(self.counts.created.to_string());
        let size = self.job.smallest + self.random.below(self.job.largest - self.job.smallest);
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path);
        self.write(file.with_context(|| format!("create {}", path.display()))?, size)?;
        self.table[slot] = Entry { path, size };
        Ok(())
    }

    fn append(&mut self, slot: usize) -> Result<()> {
        let Entry { path, size } = &self.table[slot];
        let room = self.job.largest - size;
        if room > 0 {
            let file = OpenOptions::new().append(true).create(true).open(path);
            let file = file.with_context(|| format!("append to {}", path.display()))?;
            let more = self.random.below(room) + 1;
            self.write(file, more)?;
            self.table[slot].size += more;
            self.counts.appended += 1;
        }
        Ok(())
    }

    fn write(&mut self, mut file: File, size: u64) -> Result<()> {
        let data = &self.source[..size as usize];
        if self.job.buffered {
            // stdio asks for the preferred block size before its first write or read.
            rustix::fs::fstat(&file)?;
            let mut buffered = BufWriter::with_capacity(STDIO_BUFFER, file);
            data.chunks(self.job.block).try_for_each(|block| buffered.write_all(block))?;
            buffered.flush()?;
        } else {
            data.chunks(self.job.block).try_for_each(|block| file.write_all(block))?;
        }
        self.counts.bytes_written += size;
        Ok(())
    }

    fn read(&mut self, slot: usize) -> Result<()> {
        let Entry { path, size } = &self.table[slot];
        let mut file = File::open(path).with_context(|| format!("read {}", path.display()))?;
        if self.job.buffered {
            rustix::fs::fstat(&file)?;
            drain(&mut BufReader::with_capacity(STDIO_BUFFER, file), &mut self.buffer, *size)?;
        } else {
            drain(&mut file, &mut self.buffer, *size)?;
        }
        self.counts.read += 1;
        self.counts.bytes_read += size;
        Ok(())
    }

    fn delete(&mut self, slot: usize) -> Result<()> {
        let entry = &mut self.table[slot];
        fs::remove_file(&entry.path).with_context(|| format!("delete {}", entry.path.display()))?;
        entry.size = 0;
        self.counts.deleted += 1;
        Ok(())
    }
}

/// Reads exactly `size` bytes in blocks of the buffer's size; a file that is shorter is an error.
fn drain(from: &mut impl Read, buffer: &mut [u8], size: u64) -> Result<()> {
    let mut left = size as usize;
    while left > 0 {
        let block = left.min(buffer.len());
        from.read_exact(&mut buffer[..block]).context("a file is shorter than it was written")?;
        left -= block;
    }
    Ok(())
}

#[cfg(test)]
#[path = "postmark_tests.rs"]
mod tests;
