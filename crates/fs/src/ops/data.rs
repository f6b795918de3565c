//! READ, WRITE, LSEEK: data that moves through the server.

use crate::answering::Call;
use crate::headroom::{Range, Work};
use crate::node::Node;
use crate::{Caller, Errno, Outcome, Space};
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
fn read_all(file: &std::fs::File, into: &mut Vec<u8>, offset: u64, size: usize) -> Outcome<()> {
    let start = into.len();
    into.resize(start + size, 0);
    let mut filled = 0;
    while filled < size {
        match file.read_at(&mut into[start + filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) if filled == 0 => {
                into.truncate(start);
                return Err(error.into());
            }
            Err(_) => break,
        }
    }
    into.truncate(start + filled);
    Ok(())
}

impl Space {
    /// The backing file behind a handle.
    pub(crate) fn stream(&self, node: NodeId) -> Outcome<Stream> {
        Self::stream_of(&*self.node(node)?)
    }

    pub(crate) fn stream_of(node: &Node) -> Outcome<Stream> {
        let open = node.open.lock();
        let backing = open.backing.as_ref().ok_or(Errno::EBADF)?;
        Ok(Stream {
            pool: backing.pool,
            file: backing.file.clone(),
            discards: backing.discards,
            uncached: backing.registered.is_some(),
        })
    }

    pub(crate) fn do_read(&self, node: NodeId, offset: u64, size: u32, into: &mut Vec<u8>) -> Outcome<()> {
        let of = self.node(node)?;
        self.answers_at_once(&of.inode, Call::Reads)?;
        let stream = Self::stream_of(&of)?;
        if stream.discards {
            let length = self.inode(node)?.lock().record.size;
            let count = length.saturating_sub(offset).min(size.into());
            into.resize(into.len() + count as usize, 0);
            return Ok(());
        }
        self.pools.call(stream.pool, Call::Reads, || read_all(&stream.file, into, offset, size as usize))
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
        if rest > 0 && self.goes_elsewhere(&node, pool, rest, false)? {
            let more = self.write_part(&node, offset + written, &data[written as usize..]);
            return Ok((written + more.unwrap_or(0)) as u32);
        }
        Ok(written as u32)
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

    pub(crate) fn do_lseek(&self, node: NodeId, offset: u64, whence: u32) -> Outcome<u64> {
        let stream = self.stream(node)?;
        let from = match whence as i32 {
            libc::SEEK_DATA => rustix::fs::SeekFrom::Data(offset),
            libc::SEEK_HOLE => rustix::fs::SeekFrom::Hole(offset),
            _ => return Err(Errno::EINVAL),
        };
        Ok(rustix::fs::seek(&stream.file, from)?)
    }
}
