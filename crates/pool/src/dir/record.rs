//! The extended attribute `user.ullage` of a backing file: whose it is, so that a catalog can be rebuilt, and which
//! binding it serves, so that no other one is ever served by it.
//!
//! 40, 48 or 56 bytes, little endian, small enough for the space in an ext4 inode:
//!
//! | bytes | what |
//! |---|---|
//! | 0 | version: 1; beside plain trees 3, or 2 where there are no times of birth, and of an earlier version |
//! | 1 | class, 255 when not annotated |
//! | 2–3 | zero |
//! | 4–11 | first eight bytes of the space's UUID |
//! | 12–19 | file id; 0 once the file was given back and is kept empty for the next one |
//! | 20–27 | generation |
//! | 28–31 | owner |
//! | 32–35 | group |
//! | 36–43 | from version 2 on: number of the inode that it was written to; another one's is a copy |
//! | 44–51 | version 3: time of birth of that inode, in nanoseconds since 1970 |
//! | last 4 | CRC-32 of the bytes before |

use crate::sys::by_descriptor;
use crate::which::Which;
use rustix::fd::AsFd;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use ullage_types::{Class, FileId, Generation};

/// The name of the attribute.
pub const NAME: &str = "user.ullage";
/// The length of the longest value.
pub const LONGEST: usize = COMMON + Which::LONGEST + 4;
/// Whose a file is that is kept for the next one.
pub const NOBODY: FileId = FileId(0);
const COMMON: usize = 36;
const NO_CLASS: u8 = 255;

/// What is lost with the catalog, beyond names: recorded lazily.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// The file's class.
    pub class: Class,
    /// The file's owner.
    pub uid: u32,
    /// The file's group.
    pub gid: u32,
}

/// The value of the attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// First eight bytes of the space's UUID.
    pub space: [u8; 8],
    /// The file.
    pub file: FileId,
    /// The binding's generation.
    pub generation: Generation,
    /// Class and owner, where they were recorded.
    pub annotation: Option<Annotation>,
    /// The inode that it was written to, where that matters.
    pub inode: Option<Which>,
}

impl Record {
    /// The bytes of the attribute.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; COMMON];
        let (class, uid, gid) = self.annotation.map_or((NO_CLASS, 0, 0), |a| (a.class as u8, a.uid, a.gid));
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        let version = match self.inode {
            None => 1,
            Some(Which { birth: None, .. }) => 2,
            Some(Which { birth: Some(_), .. }) => 3,
        };
        put(0, &[version, class]);
        put(4, &self.space);
        put(12, &self.file.0.to_le_bytes());
        put(20, &self.generation.0.to_le_bytes());
        put(28, &uid.to_le_bytes());
        put(32, &gid.to_le_bytes());
        bytes.extend(self.inode.map(Which::encode).iter().flatten());
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes
    }

    /// `None` for anything but a whole record of a version we know.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, sum) = bytes.split_last_chunk::<4>()?;
        let word = |at: usize| body.get(at..at + 4).and_then(|part| Some(u32::from_le_bytes(part.try_into().ok()?)));
        let long = |at: usize| body.get(at..at + 8).and_then(|part| Some(u64::from_le_bytes(part.try_into().ok()?)));
        let [version, class, 0, 0] = word(0)?.to_le_bytes() else { return None };
        let inode = match (version, body.get(COMMON..)?) {
            (1, []) => None,
            (2 | 3, which) => Some(Which::decode(which).filter(|which| which.birth.is_some() == (version == 3))?),
            _ => return None,
        };
        (*sum == crc32fast::hash(body).to_le_bytes()).then_some(())?;
        let annotation = match class {
            NO_CLASS => None,
            class => Some(Annotation { class: Class::from_u8(class)?, uid: word(28)?, gid: word(32)? }),
        };
        Some(Self {
            space: long(4)?.to_le_bytes(),
            file: FileId(long(12)?),
            generation: Generation(long(20)?),
            annotation,
            inode,
        })
    }
}

/// What the attribute of a file says, if it is a whole one.
pub fn of(file: impl AsFd) -> rustix::io::Result<Option<Record>> {
    read(|bytes| rustix::fs::fgetxattr(file, NAME, bytes))
}

/// The same of a file that is open as a path only.
pub fn at_path(file: impl AsFd) -> rustix::io::Result<Option<Record>> {
    read(|bytes| rustix::fs::getxattr(by_descriptor(file), NAME, bytes))
}

fn read(get: impl FnOnce(&mut [u8]) -> rustix::io::Result<usize>) -> rustix::io::Result<Option<Record>> {
    let mut bytes = [0u8; LONGEST + 1];
    match get(&mut bytes) {
        Ok(length) => Ok(bytes.get(..length).and_then(Record::decode)),
        Err(Errno::NODATA | Errno::RANGE) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Has the attribute of a backing file say of which inode it is, where that is not so yet.
pub fn bind(file: impl AsFd) -> rustix::io::Result<()> {
    let inode = Some(Which::of(&file)?);
    match of(&file)?.filter(|record| record.inode != inode) {
        Some(record) => {
            let bytes = Record { inode, ..record }.encode();
            rustix::fs::fsetxattr(file, NAME, &bytes, XattrFlags::empty())
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn records() -> impl Strategy<Value = Record> {
        let annotation = prop::option::of((0u8..3, any::<u32>(), any::<u32>()));
        let birth = prop::option::of(any::<u64>());
        let inode = prop::option::of((any::<u64>(), birth).prop_map(|(number, birth)| Which { number, birth }));
        let parts = (any::<[u8; 8]>(), any::<u64>(), any::<u64>(), annotation, inode);
        parts.prop_map(|(space, file, generation, annotation, inode)| Record {
            space,
            file: FileId(file),
            generation: Generation(generation),
            annotation: annotation.map(|(class, uid, gid)| Annotation {
                class: Class::from_u8(class).unwrap(),
                uid,
                gid,
            }),
            inode,
        })
    }

    proptest! {
        #[test]
        fn records_survive_the_round_trip(record in records()) {
            prop_assert_eq!(Record::decode(&record.encode()), Some(record));
        }

        #[test]
        fn damage_is_seen(record in records(), at in 0..40usize, flip in 1u8..) {
            let mut bytes = record.encode();
            bytes[at] ^= flip;
            prop_assert_eq!(Record::decode(&bytes), None);
            prop_assert_eq!(Record::decode(&record.encode()[..at]), None);
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Record::decode(&bytes);
        }
    }

    #[test]
    fn the_layout_on_disk_is_as_documented() {
        let annotation = Some(Annotation { class: Class::Elastic, uid: 0x0102, gid: 0x0304 });
        let record =
            Record { space: *b"abcdefgh", file: FileId(5), generation: Generation(6), annotation, inode: None };
        let expected = b"\x01\x01\0\0abcdefgh\x05\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0\x02\x01\0\0\x04\x03\0\0";
        assert_eq!((&record.encode()[..36], record.encode().len()), (&expected[..], 40));
        let inode = Which { number: 7, birth: None };
        let bound = Record { inode: Some(inode), ..record }.encode();
        let number = &b"\x07\0\0\0\0\0\0\0"[..];
        assert_eq!((bound[0], &bound[1..36], &bound[36..44], bound.len()), (2, &expected[1..], number, 48));
        let born = Record { inode: Some(Which { birth: Some(8), ..inode }), ..record }.encode();
        let birth = &b"\x08\0\0\0\0\0\0\0"[..];
        assert_eq!((born[0], &born[1..44], &born[44..52], born.len()), (3, &bound[1..44], birth, 56));
    }
}
