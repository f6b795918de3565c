//! Batches of the engine's newest journal that a power cut tore where the engine does not see it.
//!
//! `fjall` ends at the first entry that it cannot read, and takes what follows for unwritten. But a sector that was lost wholly inside a value leaves
//! every entry readable, and only the checksum of its batch is wrong: that is damage to it, and it opens nothing.

use super::{checked, fjall, journals};
use crate::Seq;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::Xxh3;

/// First bytes of the entries of a batch.
const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
/// Last bytes of a batch.
const MAGIC: [u8; 4] = *b"FJL\x03";

/// A journal with a batch that can be read but is not what was written.
#[derive(Debug)]
pub(crate) struct Torn {
    journal: PathBuf,
    /// Where the batches before it end.
    whole: u64,
    /// The last commit in those, where there are any.
    pub before: Option<Seq>,
    /// The last commit of all that can be read.
    pub last: Seq,
}

impl Torn {
    /// What is torn in the engine in `dir`: nothing where one cannot tell which commits would go with it.
    pub fn find(dir: &Path) -> io::Result<Option<Self>> {
        let Some(journal) = journals::newest(dir)? else { return Ok(None) };
        let mut batches = Batches { reader: BufReader::new(File::open(&journal)?), at: 0 };
        let (mut whole, mut before) = (0, None);
        while let Some(batch) = batches.next()? {
            if !batch.is_whole {
                let last = batches.last(batch.applied)?;
                return Ok(last.map(|last| Self { journal, whole, before, last }));
            }
            whole = batches.at;
            before = batch.applied.or(before);
        }
        Ok(None)
    }

    /// Cuts it off, with all that follows.
    pub fn cut(&self) -> io::Result<()> {
        let file = File::options().write(true).open(&self.journal)?;
        file.set_len(self.whole)?;
        file.sync_all()
    }
}

struct Batch {
    is_whole: bool,
    /// The commit that it brings the engine to.
    applied: Option<Seq>,
}

struct Batches {
    reader: BufReader<File>,
    at: u64,
}

impl Batches {
    /// The last commit of this batch and those that follow, where each says its own.
    fn last(&mut self, mut last: Option<Seq>) -> io::Result<Option<Seq>> {
        while last.is_some()
            && let Some(batch) = self.next()?
        {
            last = batch.applied;
        }
        Ok(last)
    }

    /// None where no further one can be read, where the engine ends too.
    fn next(&mut self) -> io::Result<Option<Batch>> {
        match self.read() {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
            read => read,
        }
    }

    fn read(&mut self) -> io::Result<Option<Batch>> {
        if self.take()? != [START] {
            return Ok(None);
        }
        let mut left = u32::from_le_bytes(self.take()?);
        let _number: [u8; 8] = self.take()?;
        let mut hash = Xxh3::new();
        let mut applied = None;
        loop {
            let [tag] = self.take()?;
            match tag {
                ITEM => applied = self.item(&mut hash)?.or(applied),
                CLEAR => {
                    hash.update(&[CLEAR]);
                    hash.update(&self.take::<8>()?);
                }
                END => break,
                _ => return Ok(None),
            }
            let Some(fewer) = left.checked_sub(1) else { return Ok(None) };
            left = fewer;
        }
        let sum = u64::from_le_bytes(self.take()?);
        let is_end = self.take()? == MAGIC && left == 0;
        Ok(is_end.then(|| Batch { is_whole: sum == hash.digest(), applied }))
    }

    /// Reads a record; gives the commit where it is the one that says it.
    fn item(&mut self, hash: &mut Xxh3) -> io::Result<Option<Seq>> {
        // Kind of change, compression, keyspace.
        let about: [u8; 10] = self.take()?;
        let key_bytes: [u8; 2] = self.take()?;
        let whole_bytes: [u8; 4] = self.take()?;
        let value_bytes: [u8; 4] = self.take()?;
        let key = self.take_vec(u64::from(u16::from_le_bytes(key_bytes)))?;
        let value = self.take_vec(u64::from(u32::from_le_bytes(value_bytes)))?;
        for part in [&[ITEM][..], &about, &key_bytes, &whole_bytes, &value_bytes, &key, &value] {
            hash.update(part);
        }
        let said = if key == fjall::APPLIED_KEY { checked::open(&key, &value).ok() } else { None };
        Ok(said.and_then(|bytes| bytes.try_into().ok()).map(|bytes| Seq(u64::from_le_bytes(bytes))))
    }

    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes)?;
        self.at += N as u64;
        Ok(bytes)
    }

    fn take_vec(&mut self, n: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if self.reader.by_ref().take(n).read_to_end(&mut bytes)? as u64 != n {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.at += n;
        Ok(bytes)
    }
}
