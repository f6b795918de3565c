//! Reply bodies whose types in `fuser` cannot carry what we answer: there a node's handle and its `st_ino` are one
//! number, and so are the lifetimes of a listed name and its attributes. Layouts as in `<linux/fuse.h>`.

use crate::reply::close_tells;
use fuser::FopenFlags;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use ullage_fs::{Attributes, AttributesFor, Data, Entry, Listed, Opened};
use ullage_types::Timestamp;

/// A reply body under construction.
#[derive(Default)]
pub(super) struct Body(Vec<u8>);

impl Body {
    /// `fuse_entry_out`.
    pub(super) fn entry(mut self, entry: &Entry) -> Self {
        self.put_entry(entry);
        self
    }

    /// `fuse_attr_out`.
    pub(super) fn attributes(mut self, answer: &AttributesFor) -> Self {
        self.u64(answer.lifetime.as_secs()).u32(answer.lifetime.subsec_nanos()).u32(0);
        self.put_attributes(&answer.attributes);
        self
    }

    /// `fuse_open_out` of a file that was opened with these flags of open(2).
    pub(super) fn opened(mut self, opened: &Opened, opened_with: u32) -> Self {
        let cached = if opened.keep_cache { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::empty() };
        let (flags, backing) = match opened.data {
            Data::Server => (cached, 0),
            Data::Direct => (FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES, 0),
            Data::Passthrough(backing) => (FopenFlags::FOPEN_PASSTHROUGH, backing),
            Data::Exact(backing) => (FopenFlags::FOPEN_PASSTHROUGH | FopenFlags::FOPEN_DIRECT_IO, backing),
        };
        let tells = close_tells(&opened.data, opened_with);
        let no_flush = if tells { FopenFlags::empty() } else { FopenFlags::FOPEN_NOFLUSH };
        self.u64(opened.handle).u32((flags | no_flush).bits()).u32(backing);
        self
    }

    /// Appends `fuse_direntplus`, unless the body would grow past `size`: then false.
    pub(super) fn listed(&mut self, listed: &Listed<'_>, size: usize) -> bool {
        const HEADER: usize = 128 + 24;
        let length = (HEADER + listed.name.len()).next_multiple_of(8);
        let end = self.0.len() + length;
        if end > size {
            return false;
        }
        match &listed.entry {
            Some(entry) => self.put_entry(entry),
            // Node 0 says: no attributes come with this name.
            None => self.0.resize(self.0.len() + 128, 0),
        }
        self.u64(listed.ino).u64(listed.next).u32(listed.name.len() as u32).u32(listed.mode >> 12);
        self.0.extend_from_slice(listed.name);
        self.0.resize(end, 0);
        true
    }

    /// The bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn put_entry(&mut self, entry: &Entry) {
        let attributes = &entry.attributes;
        self.u64(entry.node.0).u64(0).u64(entry.lifetime.as_secs()).u64(attributes.lifetime.as_secs());
        self.u32(entry.lifetime.subsec_nanos()).u32(attributes.lifetime.subsec_nanos());
        self.put_attributes(&attributes.attributes);
    }

    /// `fuse_attr`.
    fn put_attributes(&mut self, a: &Attributes) {
        self.u64(a.ino).u64(a.size).u64(a.blocks);
        self.u64(a.atime.seconds as u64).u64(a.mtime.seconds as u64).u64(a.ctime.seconds as u64);
        self.u32(a.atime.nanoseconds).u32(a.mtime.nanoseconds).u32(a.ctime.nanoseconds);
        self.u32(a.mode).u32(a.nlink).u32(a.uid).u32(a.gid).u32(a.rdev).u32(a.block_size).u32(0);
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }
}

/// The time that a request carried. `fuser` decodes seconds s < 0 and nanoseconds n as the moment s − n instead of
/// s + n; this undoes it.
pub(super) fn requested_time(time: SystemTime) -> Timestamp {
    match UNIX_EPOCH.duration_since(time) {
        Ok(before) if before > Duration::ZERO => {
            Timestamp { seconds: -(before.as_secs() as i64), nanoseconds: before.subsec_nanos() }
        }
        _ => Timestamp::from(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ullage_types::NodeId;

    #[test]
    fn times_before_1970_are_read_as_the_kernel_sent_them() {
        let as_fuser_decodes_it = UNIX_EPOCH - Duration::new(5, 250);
        assert_eq!(requested_time(as_fuser_decodes_it), Timestamp { seconds: -5, nanoseconds: 250 });
        assert_eq!(requested_time(UNIX_EPOCH), Timestamp::default());
    }

    #[test]
    fn a_listed_name_is_padded_and_never_passes_the_size() {
        let listed = Listed { name: b"abc", ino: 7, mode: 0o040_755, next: 1, entry: None };
        let mut body = Body::default();
        assert!(body.listed(&listed, 320));
        assert!(body.listed(&listed, 320));
        assert!(!body.listed(&listed, 320));
        assert_eq!(body.bytes().len(), 320);
        assert_eq!(body.bytes()[148..152], 4u32.to_ne_bytes());
    }

    #[test]
    fn a_nodes_handle_and_its_inode_number_are_sent_apart() {
        let time = Timestamp::default();
        #[rustfmt::skip]
        let attributes = Attributes {
            ino: 9, size: 0, blocks: 0, atime: time, mtime: time, ctime: time, btime: time,
            mode: 0o100_644, nlink: 1, uid: 0, gid: 0, rdev: 0, block_size: 4096,
        };
        let lifetime = Duration::from_secs(1);
        let entry = Entry { node: NodeId(5), attributes: AttributesFor { attributes, lifetime }, lifetime };
        let body = Body::default().entry(&entry);
        assert_eq!(body.bytes().len(), 128);
        assert_eq!((body.bytes()[0], body.bytes()[40]), (5, 9));
    }
}
