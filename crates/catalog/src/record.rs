//! The inode record and its bytes (docs/ON_DISK.md). The store below checks the bytes; this checks the shape.

use crate::directory::FIRST_COOKIE;
use crate::{Error, Result};
use ullage_types::{Charge, Class, FileId, Generation, Kind, PoolId, Timestamp};

const VERSION: u8 = 1;
const HAS_BACKING: u8 = 1;

/// Where a regular file's data is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backing {
    /// The pool.
    pub pool: PoolId,
    /// The binding's generation.
    pub generation: Generation,
    /// The pool's own word for the place.
    pub locator: Box<[u8]>,
}

/// All that the catalog knows of one file besides its names, entries and extended attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Type of the file.
    pub kind: Kind,
    /// Class of the file.
    pub class: Class,
    /// Permission bits, without type bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names (for a directory: 2 and one for each directory in it).
    pub nlink: u32,
    /// Device number, in the kernel's 32-bit encoding.
    pub rdev: u32,
    /// Length in bytes.
    pub size: u64,
    /// Allocated 512-byte blocks of data.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last modification of data or entries.
    pub mtime: Timestamp,
    /// Last change.
    pub ctime: Timestamp,
    /// Birth.
    pub btime: Timestamp,
    /// The directory that this file is charged to: that of its name, or of one of its names.
    pub parent: FileId,
    /// The name in that directory; empty for the root and for files without a name.
    pub name: Box<[u8]>,
    /// Number of extended attributes.
    pub xattrs: u32,
    /// Bytes of their names and values.
    pub xattr_bytes: u32,
    /// For directories: the place in the listing that the next entry gets.
    pub next_cookie: u64,
    /// For directories: how many entries there are.
    pub entries: u64,
    /// The times here were set by hand and the backing file does not have them yet.
    pub times_ahead: bool,
    /// Its backing file was there and could not be read at the last start: if it is gone since, it was not one that was never flushed.
    pub unreadable: bool,
    /// For regular files.
    pub backing: Option<Backing>,
    /// For symbolic links.
    pub target: Box<[u8]>,
}

impl Record {
    /// A file with nothing in it, which has no name yet; a directory's own two links count.
    pub(crate) fn empty(kind: Kind, parent: FileId, mode: u32, (uid, gid): (u32, u32), now: Timestamp) -> Self {
        Self {
            kind,
            class: Class::Persistent,
            mode,
            uid,
            gid,
            nlink: if kind == Kind::Directory { 2 } else { 1 },
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            parent,
            name: Box::default(),
            xattrs: 0,
            xattr_bytes: 0,
            next_cookie: FIRST_COOKIE,
            entries: 0,
            times_ahead: false,
            unreadable: false,
            backing: None,
            target: Box::default(),
        }
    }

    /// What this file costs (docs/SEMANTICS.md, "What is charged"): its data blocks, a block for a directory,
    /// and whole blocks for extended attributes or a link target that do not fit the record.
    pub fn charge(&self) -> Charge {
        const BLOCK: u64 = 4096;
        const INLINE: u64 = 256;
        let data = match self.kind {
            Kind::Directory => crate::DIRECTORY_CHARGE,
            _ => self.blocks * 512,
        };
        let beside = [self.target.len() as u64, u64::from(self.xattr_bytes)];
        let beside: u64 = beside.into_iter().filter(|&n| n > INLINE).map(|n| n.next_multiple_of(BLOCK)).sum();
        Charge::new(data + beside, 1)
    }

    /// The record's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(224 + self.target.len());
        let flags = (u8::from(self.backing.is_some()) * HAS_BACKING)
            | (u8::from(self.times_ahead) << 1)
            | (u8::from(self.unreadable) << 2);
        out.extend_from_slice(&[VERSION, self.kind as u8, self.class as u8, flags]);
        for number in [self.mode, self.uid, self.gid, self.nlink, self.rdev, self.xattrs, self.xattr_bytes] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.size, self.blocks, self.parent.0, self.next_cookie, self.entries] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for time in [self.atime, self.mtime, self.ctime, self.btime] {
            out.extend_from_slice(&time.seconds.to_le_bytes());
            out.extend_from_slice(&time.nanoseconds.to_le_bytes());
        }
        if let Some(backing) = &self.backing {
            out.extend_from_slice(&backing.pool.0.to_le_bytes());
            out.extend_from_slice(&backing.generation.0.to_le_bytes());
            out.push(u8::try_from(backing.locator.len()).expect("locators have at most 255 bytes"));
            out.extend_from_slice(&backing.locator);
        }
        out.push(u8::try_from(self.name.len()).expect("names have at most 255 bytes"));
        out.extend_from_slice(&self.name);
        out.extend_from_slice(&self.target);
        out
    }

    /// Reads a record; anything but the whole of one is damage.
    pub fn decode(file: FileId, bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader(bytes);
        reader.record().ok_or_else(|| Error::Damaged(format!("inode {file} has a record that cannot be read")))
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(length)?;
        self.0 = tail;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn time(&mut self) -> Option<Timestamp> {
        let seconds = i64::from_le_bytes(self.array()?);
        let nanoseconds = self.u32()?;
        (nanoseconds < 1_000_000_000).then_some(Timestamp { seconds, nanoseconds })
    }

    fn record(&mut self) -> Option<Record> {
        let [version, kind, class, flags] = self.array()?;
        if version != VERSION || flags > 7 {
            return None;
        }
        let (kind, class) = (Kind::from_u8(kind)?, Class::from_u8(class)?);
        let (mode, uid, gid, nlink, rdev) = (self.u32()?, self.u32()?, self.u32()?, self.u32()?, self.u32()?);
        let (xattrs, xattr_bytes) = (self.u32()?, self.u32()?);
        let (size, blocks, parent, next_cookie, entries) =
            (self.u64()?, self.u64()?, FileId(self.u64()?), self.u64()?, self.u64()?);
        let (atime, mtime, ctime, btime) = (self.time()?, self.time()?, self.time()?, self.time()?);
        let backing = if flags & HAS_BACKING != 0 {
            let pool = PoolId(u16::from_le_bytes(self.array()?));
            let generation = Generation(self.u64()?);
            let [length] = self.array()?;
            Some(Backing { pool, generation, locator: self.take(length as usize)?.into() })
        } else {
            None
        };
        let [length] = self.array()?;
        let name = self.take(length as usize)?.into();
        // More than any file has: what it costs could not be counted.
        if blocks > u64::MAX >> 12 {
            return None;
        }
        if (kind == Kind::Regular) != backing.is_some() || (kind != Kind::Symlink && !self.0.is_empty()) {
            return None;
        }
        Some(Record {
            kind,
            class,
            mode,
            uid,
            gid,
            nlink,
            rdev,
            size,
            blocks,
            atime,
            mtime,
            ctime,
            btime,
            parent,
            name,
            xattrs,
            xattr_bytes,
            next_cookie,
            entries,
            times_ahead: flags & 2 != 0,
            unreadable: flags & 4 != 0,
            backing,
            target: self.0.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(kind: Kind, target: &[u8]) -> Record {
        let time = Timestamp { seconds: -3, nanoseconds: 7 };
        Record {
            kind,
            class: Class::Elastic,
            mode: 0o4755,
            uid: 1,
            gid: 2,
            nlink: 3,
            rdev: 4,
            size: 5,
            blocks: 6,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            parent: FileId(9),
            name: (*b"name").into(),
            xattrs: 1,
            xattr_bytes: 11,
            next_cookie: 12,
            entries: 13,
            times_ahead: true,
            unreadable: true,
            backing: (kind == Kind::Regular).then(|| Backing {
                pool: PoolId(1),
                generation: Generation(77),
                locator: (*b"3/f/aa").into(),
            }),
            target: target.into(),
        }
    }

    #[test]
    fn records_survive_the_round_trip() {
        for record in [sample(Kind::Regular, b""), sample(Kind::Symlink, b"../x"), sample(Kind::Directory, b"")] {
            assert_eq!(Record::decode(FileId(1), &record.encode()).expect("readable"), record);
        }
    }

    #[test]
    fn a_truncated_record_is_damage() {
        let bytes = sample(Kind::Regular, b"").encode();
        for length in 0..bytes.len() {
            assert!(Record::decode(FileId(1), &bytes[..length]).is_err());
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Record::decode(FileId(1), &bytes);
        }
    }
}
