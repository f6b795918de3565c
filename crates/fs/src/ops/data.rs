//! READ, WRITE: data that moves through the server.

use crate::headroom::{Range, Work};
use crate::node::Node;
use crate::pools::answering::Call;
use crate::{Caller, Errno, Outcome, Space, hurry};
use rustix::io::ReadWriteFlags;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use ullage_types::{NodeId, PoolId};

/// The backing file of an open node.
pub(crate) struct Stream {
    pub pool: PoolId,
    pub file: Arc<std::fs::File>,
    /// It takes no data.
    pub discards: bool,
    /// What is written here went past the page cache, where the kernel takes no file capabilities away itself.
    uncached: bool,
}

/// Writes as much as the file takes; an error only when that is nothing.
fn write_all(file: &std::fs::File, data: &[u8], offset: u64) -> Outcome<u64> {
    let mut written = 0;
    while written < data.len() {
        match file.write_at(&data[written..], offset + written as u64) {
            Ok(0) => break,
            Ok(count) => written += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) if written == 0 => return Err(error.into()),
            Err(_) => break,
        }
    }
    Ok(written as u64)
}

/// Reads as much as there is; an error only when that is nothing.
fn read_all(
    read: impl Fn(&mut [u8], u64) -> io::Result<usize>,
    into: &mut Vec<u8>,
    offset: u64,
    size: usize,
) -> Outcome<()> {
    let start = into.len();
    into.resize(start + size, 0);
    let mut filled = 0;
    while filled < size {
        match read(&mut into[start + filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // What is missing is to be waited for, and what came before with it.
            Err(error) if filled == 0 || error.kind() == io::ErrorKind::WouldBlock => {
                into.truncate(start);
                return Err(error.into());
            }
            Err(_) => break,
        }
    }
    into.truncate(start + filled);
    Ok(())
}

/// Reads what is in memory. EAGAIN where anything is not, and EOPNOTSUPP where the file system below waits all the same.
fn read_at_hand(file: &std::fs::File, into: &mut Vec<u8>, offset: u64, size: usize) -> Outcome<()> {
    let read =
        |into: &mut [u8], at| Ok(rustix::io::preadv2(file, &mut [IoSliceMut::new(into)], at, ReadWriteFlags::NOWAIT)?);
    read_all(read, into, offset, size)
}

impl Space {
    /// The backing file behind a handle.
    pub(crate) fn stream(&self, node: NodeId) -> Outcome<Stream> {
        Self::stream_of(&*self.node(node)?)
    }

    pub(crate) fn stream_of(node: &Node) -> Outcome<Stream> {
        let open = node.open.lock();
        let backing = open.backing.as_deref().ok_or(Errno::EBADF)?;
        Ok(Stream {
            pool: backing.pool,
            file: backing.file.clone(),
            discards: backing.discards,
            uncached: backing.registered.is_some(),
        })
    }

    pub(crate) fn do_read(&self, node: NodeId, offset: u64, size: u32, into: &mut Vec<u8>) -> Outcome<()> {
        let of = self.node(node)?;
        let stream = Self::stream_of(&of)?;
        if stream.discards {
            let length = of.inode.lock().record.size;
            let count = length.saturating_sub(offset).min(size.into());
            into.resize(into.len() + count as usize, 0);
            return Ok(());
        }
        if let Err(later) = hurry::may_wait() {
            match read_at_hand(&stream.file, into, offset, size as usize) {
                Err(Errno::EAGAIN) => return Err(later),
                Err(Errno::EOPNOTSUPP) => {}
                outcome => return outcome,
            }
        }
        self.answers_at_once(&of.inode, Call::Reads)?;
        let read = |into: &mut [u8], at| stream.file.read_at(into, at);
        self.pools.call(stream.pool, Call::Reads, || read_all(read, into, offset, size as usize))
    }

    pub(crate) fn do_write(&self, node: NodeId, offset: u64, data: &[u8], stranger: Option<Caller>) -> Outcome<u32> {
        let node = self.node(node)?;
        self.answers_at_once(&node.inode, Call::Writes)?;
        let stream = Self::stream_of(&node)?;
        match stranger {
            Some(stranger) => self.kill_by_write(&node, stranger)?,
            None if stream.uncached => self.drop_capability(&node.inode)?,
            None => {}
        }
        if stream.discards {
            let end = offset.checked_add(data.len() as u64).ok_or(Errno::EFBIG)?;
            self.catalog.update(&node.inode, |record| {
                record.size = record.size.max(end);
                record.mtime = crate::now();
                record.ctime = record.mtime;
                Ok(())
            })?;
            return Ok(data.len() as u32);
        }
        let pool = stream.pool;
        drop(stream);
        let written = self.write_part(&node, offset, data)?;
        // What pages of the kernel's hold is lost where a part of them is refused.
        let rest = data.len() as u64 - written;
        let goes_on = rest > 0
            && match self.goes_elsewhere(&node, pool, rest, false) {
                Err(Errno::LATER) => return Err(Errno::LATER),
                // What was written has not failed.
                outcome => outcome.unwrap_or(false),
            };
        let more = if goes_on { self.write_part(&node, offset + written, &data[written as usize..]) } else { Ok(0) };
        Ok((written + more.unwrap_or(0)) as u32)
    }

    /// Writes as much as there is room for; an error only when that is nothing.
    fn write_part(&self, node: &Arc<Node>, offset: u64, data: &[u8]) -> Outcome<u64> {
        let length = data.len() as u64;
        self.with_room(node, length, false, |stream| {
            let file = &*stream.file;
            let range = Range { node, file, offset, length, work: Work::Writes, whole: false, reaches: offset };
            self.write_within(&range, |at, length| {
                let start = (at - offset) as usize;
                let piece = &data[start..start + length as usize];
                let write = || self.pools.without_reserve(stream.pool, file, || write_all(file, piece, at));
                self.pools.call(stream.pool, Call::Writes, write)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pools::away::tests::space_of;
    use rustix::fs::{Advice, MemfdFlags, SealFlags, fadvise, fcntl_add_seals, memfd_create};
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn what_is_in_memory_is_read_at_once_and_nothing_less_than_all_of_it() {
        // Beside this program: a temporary directory may be memory.
        let here = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        let file = tempfile::tempfile_in(here).unwrap();
        let data: Vec<u8> = (0..100_000u32).map(|byte| byte as u8).collect();
        file.write_all_at(&data, 0).unwrap();
        file.sync_all().unwrap();
        let mut got = b"before".to_vec();
        let read = |got: &mut Vec<u8>, offset, size| read_at_hand(&file, got, offset, size);
        match read(&mut got, 90_000, 50_000) {
            Err(Errno::EOPNOTSUPP) => return eprintln!("skipped: the file system here always waits"),
            outcome => outcome.unwrap(),
        }
        assert_eq!((&got[..6], &got[6..]), (&b"before"[..], &data[90_000..]), "up to the end");
        got.truncate(6);
        read(&mut got, 100_000, 10).unwrap();
        assert_eq!(got, b"before", "behind the end");

        // Pages that a CPU has just put on a list of its own stay for the moment.
        let forget = || {
            for _ in 0..200 {
                fadvise(&file, 50_000, None, Advice::DontNeed).unwrap();
                if read(&mut Vec::new(), 60_000, 10_000) == Err(Errno::EAGAIN) {
                    return;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        };
        forget();
        assert_eq!(read(&mut got, 60_000, 10_000), Err(Errno::EAGAIN));
        read(&mut got, 0, 40_000).unwrap();
        assert_eq!(got[6..], data[..40_000]);
        forget();
        got.truncate(6);
        assert_eq!(read(&mut got, 20_000, 60_000), Err(Errno::EAGAIN), "a part of it");
        assert_eq!(got, b"before");
    }

    /// What was written was told to have failed, since nobody could say whether the rest has a place elsewhere.
    #[test]
    fn a_part_that_was_written_has_not_failed() {
        let dir = tempfile::tempdir().unwrap();
        let (space, pools, node) = space_of(dir.path(), 1);
        // No page is added to what there is.
        let file = std::fs::File::from(memfd_create("file", MemfdFlags::ALLOW_SEALING).unwrap());
        file.set_len(4096).unwrap();
        fcntl_add_seals(&file, SealFlags::GROW).unwrap();
        node.open.lock().backing.as_deref_mut().unwrap().file = Arc::new(file);
        pools[0].is_silent.store(true, Relaxed);
        assert_eq!(space.do_write(node.id, 0, &[1; 8192], None), Ok(4096));
    }
}
