//! What can be done, generated.

use crate::check::{ALICE, ALICE_IN_TEAM, BOB, KEEP, TEAM, User};
use crate::random::Random;

/// Root.
const ROOT: User = User { uid: 0, gid: 0, groups: &[] };

/// One operation. Paths are relative to the world's root; descriptors are slots of a small table.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Operation {
    pub user: User,
    pub umask: u32,
    pub call: Call,
}

/// The call.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Call {
    Mkdir(String, u32),
    Rmdir(String),
    Unlink(String),
    Mknod(String, u32),
    Symlink(String, String),
    Link(String, String),
    Rename(String, String, u32),
    Chmod(String, u32),
    Chown(String, u32, u32),
    Truncate(String, i64),
    Utimens(String, i64, i64),
    Access(String, i32),
    Readlink(String),
    Open(usize, String, i32, u32),
    Close(usize),
    Write(usize, i64, u64),
    Append(usize, u64),
    Read(usize, i64, u64),
    Ftruncate(usize, i64),
    Fchmod(usize, u32),
    Fallocate(usize, i32, i64, i64),
    Fsync(usize),
    SetXattr(String, String, usize),
    GetXattr(String, String),
    RemoveXattr(String, String),
    SetAcl(String, bool, u16),
    List(String),
    Copy(usize, usize, i64, i64, u64),
    Fchown(usize, u32, u32),
    Times(String, [i64; 2]),
    Futimens(usize, [i64; 2]),
    Tmpfile(usize, String, i32, u32),
    LinkOpen(usize, String),
    Seek(usize, i64, i32),
    Store(usize, usize, usize),
    Sendfile(usize, usize, i64, u64),
    Fstat(usize),
    Listxattr(String),
    SetXattrIf(String, String, i32),
}

/// How many descriptors a world holds.
pub const SLOTS: usize = 6;

/// Few names and shallow paths, so that operations meet.
fn path(random: &mut Random) -> String {
    const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "žluť", "a-rather-long-name-for-an-entry-of-a-directory"];
    let depth = random.pick(&[1, 1, 1, 2, 2, 2, 3, 3, 4]);
    (0..depth).map(|_| random.pick(&NAMES)).collect::<Vec<_>>().join("/")
}

fn mode(random: &mut Random) -> u32 {
    random.pick(&[
        0o777, 0o777, 0o755, 0o755, 0o700, 0o666, 0o644, 0o600, 0o1777, 0o2777, 0o4755, 0o2755, 0o6777, 0o500, 0,
    ])
}

impl Operation {
    /// The next one.
    pub fn generate(random: &mut Random) -> Self {
        let user = random.pick(&[ROOT, ROOT, ALICE, ALICE, BOB, ALICE_IN_TEAM]);
        let umask = random.pick(&[0o022, 0o022, 0o002, 0o077, 0]);
        let slot = random.below(SLOTS as u64) as usize;
        let at = random.pick(&[0, 1, 100, 4095, 4096, 10_000, 65_536]) + random.below(50) as i64;
        let length = random.pick(&[0, 1, 10, 4096, 5000, 20_000]);
        let attribute =
            random.pick(&["user.a", "user.b", "user.long-attribute-name", "trusted.t", "security.s"]).to_owned();
        let who =
            (random.pick(&[KEEP, KEEP, 0, ALICE.uid, BOB.uid]), random.pick(&[KEEP, 0, ALICE.gid, BOB.gid, TEAM]));
        let times = [0; 2].map(|_: i64| random.pick(&[libc::UTIME_NOW, libc::UTIME_NOW, libc::UTIME_OMIT, 12345]));
        let other = random.below(SLOTS as u64) as usize;
        let call = match random.below(70) {
            0..=5 => Call::Mkdir(path(random), mode(random)),
            6..=7 => Call::Rmdir(path(random)),
            8..=11 => Call::Unlink(path(random)),
            12 => Call::Mknod(
                path(random),
                random.pick(&[libc::S_IFIFO, libc::S_IFREG, libc::S_IFSOCK, libc::S_IFCHR]) | 0o664,
            ),
            13..=14 => Call::Symlink(random.pick(&["a", "../b", "b/c", "nowhere", "d", "."]).to_owned(), path(random)),
            15..=17 => Call::Link(path(random), path(random)),
            18..=23 => Call::Rename(
                path(random),
                path(random),
                random.pick(&[0, 0, 0, libc::RENAME_NOREPLACE, libc::RENAME_EXCHANGE, libc::RENAME_WHITEOUT]),
            ),
            24..=26 => Call::Chmod(path(random), mode(random)),
            27..=28 => Call::Chown(path(random), who.0, who.1),
            29 => Call::Truncate(path(random), at),
            30 => Call::Utimens(path(random), random.pick(&[-100, 0, 1_000_000_000, 5_000_000_000]), at),
            31 => Call::Access(path(random), random.below(8) as i32),
            32 => Call::Readlink(path(random)),
            33..=38 => {
                let flags = random.pick(&[libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR, libc::O_RDWR, libc::O_RDWR])
                    | random.pick(&[0, libc::O_CREAT, libc::O_CREAT, libc::O_CREAT | libc::O_EXCL])
                    | random.pick(&[0, 0, 0, libc::O_TRUNC, libc::O_APPEND, libc::O_NOFOLLOW, libc::O_DIRECTORY]);
                Call::Open(slot, path(random), flags | libc::O_NONBLOCK, mode(random))
            }
            39 => Call::Close(slot),
            40..=42 => Call::Write(slot, at, length),
            43 => Call::Append(slot, length),
            44..=45 => Call::Read(slot, at, length),
            46 => Call::Ftruncate(slot, at),
            47 => Call::Fchmod(slot, mode(random)),
            48 => {
                let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                let kind = random.pick(&[0, libc::FALLOC_FL_KEEP_SIZE, punch, libc::FALLOC_FL_ZERO_RANGE]);
                Call::Fallocate(slot, kind, at, length as i64)
            }
            49 => Call::Fsync(slot),
            50 => Call::SetXattr(path(random), attribute, length.min(1000) as usize),
            51 => Call::GetXattr(path(random), attribute),
            52 => Call::RemoveXattr(path(random), attribute),
            53 => Call::SetAcl(path(random), random.below(2) == 0, random.below(8) as u16),
            54 => Call::List(path(random)),
            55 => Call::Copy(slot, other, at, 2 * at, length),
            56 => Call::Fchown(slot, who.0, who.1),
            57 => Call::Times(path(random), times),
            58 => Call::Futimens(slot, times),
            59..=60 => Call::Tmpfile(slot, path(random), random.pick(&[0, 0, libc::O_EXCL]), mode(random)),
            61..=62 => Call::LinkOpen(slot, path(random)),
            63 => {
                Call::Seek(slot, at, random.pick(&[libc::SEEK_DATA, libc::SEEK_HOLE, libc::SEEK_END, libc::SEEK_CUR]))
            }
            64 => Call::Store(slot, at as usize, length as usize),
            65 => Call::Sendfile(slot, other, at, length),
            66..=67 => Call::Fstat(slot),
            68 => Call::Listxattr(path(random)),
            _ => Call::SetXattrIf(path(random), attribute, random.pick(&[libc::XATTR_CREATE, libc::XATTR_REPLACE])),
        };
        Self { user, umask, call }
    }

    /// The paths it names, and their directories.
    #[allow(clippy::match_same_arms)]
    pub fn paths(&self) -> Vec<String> {
        let named = match &self.call {
            Call::Link(a, b) | Call::Rename(a, b, _) => vec![a, b],
            Call::Mkdir(a, _) | Call::Rmdir(a) | Call::Unlink(a) | Call::Mknod(a, _) | Call::Symlink(_, a) => vec![a],
            Call::Chmod(a, _) | Call::Chown(a, ..) | Call::Truncate(a, _) | Call::Utimens(a, ..) => vec![a],
            Call::Access(a, _) | Call::Readlink(a) | Call::Open(_, a, ..) | Call::List(a) => vec![a],
            Call::Times(a, _) | Call::Tmpfile(_, a, ..) | Call::LinkOpen(_, a) => vec![a],
            Call::Listxattr(a) | Call::SetXattrIf(a, ..) => vec![a],
            Call::SetXattr(a, ..) | Call::GetXattr(a, _) | Call::RemoveXattr(a, _) | Call::SetAcl(a, ..) => vec![a],
            _ => vec![],
        };
        let parents = named.iter().map(|path| path.rsplit_once('/').map_or(".", |(parent, _)| parent).to_owned());
        parents.chain(named.iter().map(|&path| path.clone())).collect()
    }
}
