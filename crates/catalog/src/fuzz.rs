//! Every decoder of stored bytes, for fuzzing.

use crate::directory::Dirent;
use crate::ledger::{TotalsNow, decode_charges, encode_charges};
use crate::limits::Limit;
use crate::record::Record;
use ullage_types::FileId;

/// Decodes `bytes` as each kind of record. None may panic, and what is read must be written again as the same bytes:
/// else two stored forms would mean the same, and one of them be damage that nobody sees.
pub fn fuzz_decode(bytes: &[u8]) {
    if let Ok(record) = Record::decode(FileId(1), bytes) {
        assert_eq!(record.encode(), bytes, "an inode record has one form");
        let _ = record.charge();
    }
    if let Some(dirent) = Dirent::decode(bytes) {
        assert_eq!(dirent.encode(), bytes, "an entry has one form");
    }
    if let Some(totals) = TotalsNow::decode(bytes) {
        assert_eq!(totals.encode(), bytes, "totals have one form");
    }
    if let Some(limit) = Limit::decode(bytes) {
        assert_eq!(limit.encode(), bytes, "a limit has one form");
    }
    if let Some(charges) = decode_charges(bytes) {
        let mut again = Vec::new();
        encode_charges(charges, &mut again);
        assert_eq!(again, bytes, "a user's totals have one form");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Backing;
    use proptest::prelude::*;
    use ullage_types::{Class, Generation, Kind, PoolId, Timestamp};

    fn whole(kind: Kind) -> Vec<u8> {
        let time = Timestamp { seconds: 1 << 40, nanoseconds: 999_999_999 };
        let backing = Backing { pool: PoolId(7), generation: Generation(8), locator: (*b"3/f/aa").into() };
        let record = Record {
            kind,
            class: Class::Transparent,
            mode: 0o7777,
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
            name: vec![b'n'; 255].into(),
            xattrs: 1,
            xattr_bytes: 11,
            next_cookie: 12,
            entries: 13,
            times_ahead: true,
            unreadable: true,
            backing: (kind == Kind::Regular).then_some(backing),
            target: if kind == Kind::Symlink { vec![b't'; 4095].into() } else { Box::default() },
        };
        record.encode()
    }

    proptest! {
        #[test]
        fn decoders_take_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            fuzz_decode(&bytes);
        }

        #[test]
        fn decoders_take_damaged_records(
            kind in proptest::sample::select(vec![Kind::Regular, Kind::Symlink, Kind::Directory]),
            flips in proptest::collection::vec((any::<prop::sample::Index>(), 0u8..8), 0..6),
            length in proptest::option::of(any::<prop::sample::Index>()),
        ) {
            let mut bytes = whole(kind);
            for (at, bit) in flips {
                let at = at.index(bytes.len());
                bytes[at] ^= 1 << bit;
            }
            if let Some(length) = length {
                bytes.truncate(length.index(bytes.len()));
            }
            fuzz_decode(&bytes);
        }

        #[test]
        fn decoders_take_entries_and_totals(bytes in prop_oneof![
            proptest::collection::vec(any::<u8>(), 17), proptest::collection::vec(any::<u8>(), 48),
            proptest::collection::vec(any::<u8>(), 56),
            proptest::collection::vec(prop_oneof![Just(1u8), Just(0), Just(255), any::<u8>()], 17),
        ]) {
            fuzz_decode(&bytes);
        }
    }
}
