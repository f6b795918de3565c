//! Limits and free space, asked and set over the control socket.

use super::messages::{Answer, DfReport, LimitChange, LimitReport, LimitSubject};
use super::report::{refuse, visible};
use std::path::{Path, PathBuf};
use ullage_catalog::{Catalog, Error, Limit, LimitNow, Subject};
use ullage_fs::{LimitError, Space};
use ullage_types::{Bytes, Class, FileId, ROOT};

pub(crate) fn may_set(peer: u32) -> bool {
    peer == 0 || peer == rustix::process::geteuid().as_raw()
}

fn subject_of(subject: LimitSubject) -> Subject {
    match subject {
        LimitSubject::User(uid) => Subject::User(uid),
        LimitSubject::Directory(ino) => Subject::Directory(FileId(ino)),
    }
}

pub(crate) fn set(space: &Space, subject: LimitSubject, bytes: LimitChange, inodes: LimitChange, peer: u32) -> Answer {
    if !may_set(peer) {
        return refuse("only root and who mounted the space may set limits");
    }
    let subject = subject_of(subject);
    let changed = |change: LimitChange, before: Option<u64>| match change {
        LimitChange::Keep => before,
        LimitChange::Lift => None,
        LimitChange::Most(most) => Some(most),
    };
    let limit = |before: Limit| Limit { bytes: changed(bytes, before.bytes), inodes: changed(inodes, before.inodes) };
    match space.change_limit(subject, limit) {
        Ok(unbound) => Answer::LimitSet { unbound },
        Err(error) => refuse(refusal(&error)),
    }
}

/// Why no limit can be so large.
const TOO_LARGE: &str = "the limit is too large; write `none` for no limit";

/// Refuses a size of a space that could not be set, before anything is made.
pub(crate) fn refuse_size(bytes: Option<u64>) -> crate::Result<()> {
    match bytes.map(i64::try_from) {
        Some(Err(_)) => Err(crate::Error::Refused(TOO_LARGE.into())),
        _ => Ok(()),
    }
}

/// Why a limit cannot be set, and what to do.
pub(crate) fn refusal(error: &LimitError) -> String {
    match error {
        LimitError::Catalog(Error::CrossDomain) => {
            "a file has names both inside and outside the directory, and a limit cannot part them; \
             remove one of them first (`find DIRECTORY -type f -links +1` shows them)"
                .into()
        }
        LimitError::Catalog(Error::Invalid) => TOO_LARGE.into(),
        other => other.to_string(),
    }
}

/// Root and who mounted it see all limits, others their own.
pub(crate) fn list(space: &Space, mountpoint: &Path, user: Option<u32>, peer: u32) -> Answer {
    let all = match user {
        Some(uid) if uid == peer || may_set(peer) => vec![space.catalog().use_of(uid)],
        Some(_) => return refuse("only root and who mounted the space may ask of other users"),
        None => match space.catalog().limits() {
            Ok(all) => all,
            Err(error) => return refuse(error),
        },
    };
    let mut limits = Vec::new();
    for now in all {
        let (subject, path) = match now.subject {
            Subject::User(uid) if uid == peer || may_set(peer) => (LimitSubject::User(uid), None),
            Subject::Directory(file) if may_set(peer) => {
                (LimitSubject::Directory(file.0), Some(path_of(space.catalog(), mountpoint, file)))
            }
            _ => continue,
        };
        limits.push(report(now, subject, path));
    }
    Answer::Limits { limits }
}

/// What bounds all below one directory, which its owner may know as what `du` says of it.
pub(crate) fn on(space: &Space, mountpoint: &Path, ino: u64, peer: u32) -> Answer {
    let inode = match visible(space, ino, None, peer) {
        Ok((inode, _)) if inode.is_directory() => inode,
        Ok(_) => return refuse("not a directory"),
        Err(answer) => return answer,
    };
    space.measure_closed();
    let now = space.catalog().use_below(&inode);
    // Which directories it lies in is not for everybody who owns it to know.
    let path = may_set(peer).then(|| path_of(space.catalog(), mountpoint, inode.id));
    Answer::Limits { limits: vec![report(now, LimitSubject::Directory(ino), path)] }
}

fn report(now: LimitNow, subject: LimitSubject, path: Option<PathBuf>) -> LimitReport {
    LimitReport {
        subject,
        path,
        used: now.used.bytes,
        held: Bytes(now.held),
        inodes: now.used.inodes,
        limit: now.limit.bytes.map(Bytes),
        limit_inodes: now.limit.inodes,
    }
}

/// The path of a directory, or of a file by its first name, by the names that its ancestors say they have.
pub(crate) fn path_of(catalog: &Catalog, mountpoint: &Path, directory: FileId) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    let mut names: Vec<Box<[u8]>> = Vec::new();
    let mut at = directory;
    while at != ROOT {
        let Ok(inode) = catalog.get(at) else { break };
        let record = inode.record();
        names.push(record.name);
        at = record.parent;
    }
    let mut path = mountpoint.to_owned();
    path.extend(names.iter().rev().map(|name| std::ffi::OsStr::from_bytes(name)));
    path
}

pub(crate) fn df(space: &Space) -> Answer {
    let (mut total, mut free, mut reserve) = (0u64, 0u64, 0u64);
    for (member, kept) in space.pools().disks() {
        let usage = space.pools().usage(member.id);
        let Some(kept) = kept else {
            // As statfs(2) has it: what is free there is nobody's.
            total = total.saturating_add(usage.total.saturating_sub(usage.free).0);
            continue;
        };
        total = total.saturating_add(usage.total.0);
        free = free.saturating_add(usage.free.saturating_sub(kept).0);
        reserve = reserve.saturating_add(kept.0);
    }
    space.measure_closed();
    let root = space.catalog().root().totals();
    let now = root.now();
    let limit = space.catalog().limit(Subject::Directory(ROOT)).unwrap_or(Limit::NONE);
    Answer::Df(Box::new(DfReport {
        total: Bytes(total),
        free: Bytes(root.room().0.map_or(free, |room| room.min(free))),
        used: now.actual.0.iter().map(|charge| charge.bytes).sum(),
        held: Bytes(root.held()),
        reclaimable: now.actual[Class::Elastic].bytes + now.actual[Class::Transparent].bytes,
        // There are no allocations yet.
        guaranteed: Bytes(0),
        reserve: Bytes(reserve),
        size: limit.bytes.map(Bytes),
        inodes: now.actual.0.iter().map(|charge| charge.inodes).sum(),
        size_inodes: limit.inodes,
    }))
}
