//! READDIR and READDIRPLUS.

use crate::cursor::Cursor;
use crate::{Listed, Outcome, Sink, Space, WaitsFor, hurry};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use ullage_catalog::Inode;
use ullage_types::{Kind, NodeId};

/// Listings that bring attributes of files not in memory after one of them was looked up.
const WANTED: u32 = 16;

/// Whether whoever lists directories looks at the files' attributes too. Reading the records of files that nobody asks
/// for is most of the work of a cold `find`; not reading them costs `ls -l` a request for each file. So the kernel gets
/// them only for a while after it asked for one.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    wanted: AtomicU32,
}

impl Listing {
    /// A file that was not in memory was looked up.
    pub(crate) fn looked_up(&self) {
        if self.wanted.load(Relaxed) < WANTED / 2 {
            self.wanted.store(WANTED, Relaxed);
        }
    }

    fn wants_attributes(&self) -> bool {
        let wanted = self.wanted.load(Relaxed);
        if wanted > 0 {
            self.wanted.store(wanted - 1, Relaxed);
        }
        wanted > 0
    }
}

/// Entries taken from the catalog at a time: about what a request of 128 KiB holds.
const AT_ONCE: usize = 1024;
/// For a request with attributes, whose entries take more room.
const AT_ONCE_PLUS: usize = 256;

/// Takes an entry, as long as there is room, and where the listing goes on after it.
type Entries<'a> = dyn FnMut(&Listed<'_>, Cursor) -> bool + 'a;

impl Space {
    pub(crate) fn do_readdir(&self, node: NodeId, offset: u64, plus: bool, sink: &mut Sink<'_>) -> Outcome<()> {
        let directory = self.inode(node)?;
        let begun = Cursor::at(offset, || self.catalog.begin_listing(&directory));
        let mut packed = self.listings.follow(directory.id, begun);
        let (mut at, mut is_over) = (begun, true);
        self.list(&directory, begun, plus, &mut |listed, next| {
            is_over = false;
            let taken = sink(listed);
            if taken {
                if let Some(packed) = &mut packed {
                    packed.add(at, listed.name, next);
                }
                at = next;
            }
            taken
        })?;
        if is_over {
            let is_as_listed = begun.is_exact() && self.catalog.is_as_listed(&directory, begun.end);
            return self
                .end_listing(&directory, is_as_listed && packed.is_some_and(|packed| packed.may_be_kept(begun)));
        }
        self.listings.go_on(directory.id, packed);
        Ok(())
    }

    /// Lists what comes after a position, as far as the sink takes it.
    fn list(&self, directory: &Arc<Inode>, mut at: Cursor, plus: bool, sink: &mut Entries<'_>) -> Outcome<()> {
        let dots: [(&[u8], u64); 2] = [(b".", directory.id.0), (b"..", self.catalog.parent(directory).id.0)];
        for (place, (name, ino)) in (1u64..).zip(dots) {
            if at.after < place {
                let next = Cursor { after: place, ..at };
                let mode = u32::from(libc::DT_DIR) << 12;
                if !sink(&Listed { name, ino, mode, next: next.position(), entry: None }, next) {
                    return Ok(());
                }
                at = next;
            }
        }
        let attributes = plus && self.listing.wants_attributes();
        let most = if plus { AT_ONCE_PLUS } else { AT_ONCE };
        let begun = at;
        loop {
            let entries = match self.catalog.list(directory, at.after, at.end, most) {
                Ok(entries) => entries,
                // What was listed holds look-ups, which an error would not give to anybody; the next request meets it again.
                Err(_) if at != begun => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let done = entries.len() < most;
            for found in entries {
                let next = Cursor { after: found.cookie, ..at };
                let inode = match self.catalog.get_cached(found.file) {
                    _ if !plus => None,
                    None if attributes || found.kind == Kind::Directory => match self.catalog.get(found.file) {
                        Ok(inode) => Some(inode),
                        // Removed since it was listed.
                        Err(ullage_catalog::Error::NotFound) => continue,
                        Err(_) => None,
                    },
                    cached => cached,
                };
                // A file of which nothing can be said has a name all the same: who asks for more is told why not.
                let entry = inode.and_then(|inode| hurry::without_waiting(|| self.entry_in_use(inode)).ok());
                let listed = Listed {
                    name: &found.name,
                    ino: found.file.0,
                    mode: found.kind.mode_bits(),
                    next: next.position(),
                    entry,
                };
                if !sink(&listed, next) {
                    if let Some(entry) = entry {
                        self.forget_node(entry.node, 1);
                    }
                    return Ok(());
                }
                at = next;
            }
            if done {
                return Ok(());
            }
        }
    }

    /// The kernel hears that a listing is at its end, and keeps it from now on, unless it has to drop what it has of it.
    fn end_listing(&self, directory: &Inode, keeps: bool) -> Outcome<()> {
        if keeps {
            return Ok(());
        }
        hurry::may_wait_for(WaitsFor::Listers)?;
        self.unlisted.tell(directory.id, || self.drop_listing(directory));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Errno;
    use crate::api::Caller;
    use crate::headroom::lend::tests::lending;
    use crate::test_kernel::TestKernel;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// Regression: who had the kernel drop its copy of a listing waited for whoever read a page of that into memory that did not come. Ten such
    /// ends of listings held all threads that answer the kernel.
    #[test]
    fn one_worker_waits_for_who_reads_a_listing_and_no_thread_that_others_wait_for() {
        let dir = tempfile::tempdir().unwrap();
        let (space, _) = lending(dir.path());
        let root = NodeId(1);
        let caller = Caller { uid: 0, gid: 0, pid: 1 };
        space.do_mkdir(caller, root, b"directory", 0o700, 0).unwrap();
        let (begins, begun) = channel();
        let (lets_go, held) = channel::<()>();
        let (begins, held) = (parking_lot::Mutex::new(begins), parking_lot::Mutex::new(held));
        let drops = move |range| {
            begins.lock().send(range).unwrap();
            let _ = held.lock().recv();
        };
        space.set_kernel(Arc::new(TestKernel { drops: Some(Box::new(drops)), ..TestKernel::default() }));
        // From where no listing that began here goes on.
        let end = || space.do_readdir(root, 100, false, &mut |_| true);
        assert_eq!(hurry::hurried(end), Err(Errno::LATER));
        assert_eq!(hurry::waits_for(), WaitsFor::Listers);
        std::thread::scope(|scope| {
            let first = scope.spawn(end);
            let soon = Duration::from_secs(10);
            assert_eq!(begun.recv_timeout(soon), Ok((0, 1)), "its first page");
            end().unwrap();
            end().unwrap();
            assert!(!first.is_finished());
            lets_go.send(()).unwrap();
            assert_eq!(begun.recv_timeout(soon), Ok((0, 1)), "once more for both");
            drop(lets_go);
            first.join().unwrap().unwrap();
        });
        assert!(begun.try_recv().is_err());
    }
}
