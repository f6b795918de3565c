//! OPEN, and the opening of backing files for every operation that needs one.

use crate::attributes::bring_up_access;
use crate::headroom::patience::Patience;
use crate::hurry;
use crate::node::Node;
use crate::open_file::{Measure, OpenBacking, OpenFile, handle};
use crate::pools::answering::Call;
use crate::{Caller, Data, Errno, Opened, Outcome, Space, privileges};
use parking_lot::MutexGuard;
use std::os::fd::AsFd;
use std::sync::Arc;
use ullage_catalog::after;
use ullage_pool::{Access, Binding, Locator};
use ullage_types::{Kind, NodeId};

impl Space {
    pub(crate) fn do_open(&self, caller: Caller, node: NodeId, flags: u32) -> Outcome<Opened> {
        let node = self.node(node)?;
        let opened = self.open_node(caller, &node, flags);
        if opened.as_ref().is_err_and(|error| *error != Errno::LATER) {
            self.closes_unused(&node);
        }
        opened
    }

    /// A backing file that is open and that nobody has a handle on is closed in its time: an open may have failed half-way.
    pub(crate) fn closes_unused(&self, node: &Arc<Node>) {
        let Some(mut open) = node.open.try_lock() else { return self.settler.push_in_use(node) };
        if open.handles == 0
            && open.backing.is_some()
            && let Err(error) = self.closed(node, &mut open)
        {
            node.not_measured(error);
        }
    }

    fn open_node(&self, caller: Caller, node: &Arc<Node>, flags: u32) -> Outcome<Opened> {
        match node.inode.kind {
            Kind::Regular => {}
            Kind::Directory => return Err(Errno::EISDIR),
            _ => return Err(Errno::ENXIO),
        }
        self.sync_names(flags)?;
        let flags = flags as i32;
        let truncates = flags & libc::O_TRUNC != 0;
        let writable = flags & libc::O_ACCMODE != libc::O_RDONLY;
        if writable {
            self.await_removed()?;
        }
        if self.catalog.has_limits() {
            // What has to be waited for of a disk is waited for here: nobody may wait for that who waits for modes.
            let mut open = lock_for(node, flags)?;
            self.answers_to_open(node, &open, writable || truncates)?;
            self.back(node, &mut open, writable || truncates)?;
        }
        self.ask_before_opening(node, flags)?;
        let _modes = hurry::shared(&self.headroom.modes)?;
        let bounded = self.is_bounded(&node.inode)?;
        let lock = || -> Outcome<_> {
            let mut open = if truncates { Self::lock_to_cut(node) } else { lock_for(node, flags)? };
            self.answers_to_open(node, &open, writable || truncates)?;
            self.back(node, &mut open, writable || truncates)?;
            Ok(open)
        };
        let mut open = lock()?;
        if !bounded {
            self.expects_loads(node, &mut open, flags);
        }
        let mut patience = Patience::default();
        while bounded && self.comes_to_map(&mut open, flags) {
            hurry::may_wait()?;
            let waits = patience.waits_for(&open);
            drop(open);
            if waits {
                patience.wait();
                open = lock()?;
                continue;
            }
            if let Err(error) = self.ask_from_now_on(node).and_then(|()| self.make_solid(node)) {
                node.open.lock().need_not_be_solid();
                return Err(error);
            }
            open = lock()?;
            // Not so where another open of the kind failed meanwhile.
            if open.is_solid_or_unbound() {
                break;
            }
        }
        if truncates {
            self.truncate_locked(node, &mut open, 0, (!privileges::keeps_set_id(caller)).then_some(caller))?;
        }
        Ok(self.opened(caller, node, &mut open, flags, bounded))
    }

    /// A handle, opened with these flags, on a node whose backing file is open.
    pub(crate) fn opened(
        &self,
        caller: Caller,
        node: &Arc<Node>,
        open: &mut OpenFile,
        flags: i32,
        bounded: bool,
    ) -> Opened {
        let writable = flags & libc::O_ACCMODE != libc::O_RDONLY;
        if !bounded {
            self.lift_fence(open);
            // Who opens it now writes unseen, and maybe longer than who was lent room.
            self.end_lending(open, true);
        }
        let data = self.mode(caller, node, open, flags, bounded);
        let lent = writable && bounded && matches!(data, Data::Passthrough(_));
        let backing = open.backing.as_deref_mut().expect("an opened file has its backing file open");
        if bounded && open.handles == 0 && !backing.mappable {
            // Who wrote to it before a limit bounded it has closed it.
            backing.unseen = false;
        }
        backing.written |= writable;
        backing.unseen |= writable && matches!(data, Data::Passthrough(_));
        backing.mappable |=
            flags & libc::O_ACCMODE == libc::O_RDWR || backing.solid && self.may_fill_unseen(backing.pool, flags);
        open.handles += 1;
        if writable {
            open.writers += 1;
            open.opener = caller.pid;
        }
        let cached = matches!(data, Data::Server);
        let keep_cache = !(cached && open.stale_pages);
        open.stale_pages = !cached;
        Opened { handle: handle(self.next_serial(), writable, lent), data, keep_cache }
    }

    /// How data moves: in the kernel for all handles of a node, or through the server for all. What is written to a file that
    /// a limit bounds comes to the server in either case. A handle that reads and writes such a file can be mapped, and
    /// what is stored there is seen only if pages are the server's: so it has them, unless others have the file open in the kernel, or
    /// mapped since before the limit. What is written to a pool that may run full comes to the server, too, which can go on elsewhere; of one
    /// that is to be emptied everything does.
    fn mode(&self, caller: Caller, node: &Arc<Node>, open: &mut OpenFile, flags: i32, bounded: bool) -> Data {
        let access = flags & libc::O_ACCMODE;
        let pool = open.backing.as_deref().expect("the mode of an open file is asked for").pool;
        if bounded && self.may_fill_unseen(pool, flags) && open.handles == 0 && !open.is_solid_or_unbound() {
            return self.mode_alone(caller, node, open);
        }
        let stays = access == libc::O_RDONLY && !self.pools.is_draining(pool);
        if !stays && open.handles == 0 && self.is_to_go_elsewhere(caller, pool) {
            let backing = open.backing.as_deref_mut().expect("still open");
            let may_be_mapped = backing.registered.is_some() || backing.mappable || backing.unseen;
            // Who has mapped it in the kernel goes on storing there, and pages of the server's would neither show that nor leave it alone.
            if !(may_be_mapped && self.is_held(backing)) {
                return Data::Server;
            }
        }
        let backing = open.backing.as_deref_mut().expect("still open");
        let registered = match backing.registered {
            // Another kind of open while handles of the server's kind live would fail in the kernel.
            None if open.handles == 0 => self.register(backing),
            registered => registered,
        };
        let Some(id) = registered else { return Data::Server };
        let seen = match access {
            libc::O_RDONLY => false,
            libc::O_WRONLY => {
                may_end_direct(flags)
                    || bounded && !self.lender.is_tried_by(caller) && !self.lends_to(caller, node, open, false)
            }
            _ => bounded,
        };
        if seen { Data::Exact(id) } else { Data::Passthrough(id) }
    }

    /// The same for a handle that reads and writes a limited file, and that nobody else has open or mapped.
    fn mode_alone(&self, caller: Caller, node: &Arc<Node>, open: &mut OpenFile) -> Data {
        self.ends_unseen(open);
        let pool = open.backing.as_deref().expect("the mode of an open file is asked for").pool;
        let runs_full = self.is_to_go_elsewhere(caller, pool);
        if !runs_full && self.can_fence(caller, open) {
            let backing = open.backing.as_deref_mut().expect("the mode of an open file is asked for");
            let registered = backing.registered.or_else(|| self.register(backing));
            if let Some(id) = registered
                && self.lends_to(caller, node, open, true)
            {
                return Data::Passthrough(id);
            }
        }
        let backing = open.backing.as_deref_mut().expect("still open");
        self.unregister(backing);
        Data::Server
    }

    /// Registers a backing file with the kernel, where data can move there.
    fn register(&self, backing: &mut OpenBacking) -> Option<u32> {
        let moves = || self.pools.get(backing.pool).is_ok_and(|pool| pool.moves_in_kernel());
        if backing.discards || !self.uses_passthrough() || !moves() {
            return None;
        }
        match self.kernel()?.register(backing.file.as_fd()) {
            Ok(id) => backing.registered = Some(id),
            Err(error) => {
                if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOTTY | libc::EOPNOTSUPP | libc::EINVAL)) {
                    self.no_passthrough(&error);
                }
            }
        }
        backing.registered
    }

    /// LATER where the calling thread may not wait, and [`Space::back`] may have to.
    fn answers_to_open(&self, node: &Node, open: &OpenFile, writable: bool) -> Outcome<()> {
        let call = match &open.backing {
            Some(backing) if backing.times_behind => Call::Writes,
            Some(backing) if backing.writable || !writable => return Ok(()),
            _ => self.call_to_open(node, writable),
        };
        self.answers_at_once(&node.inode, call)
    }

    /// What the pool does to open a file: to be written to in a leaf that is not marked, it is noted first.
    fn call_to_open(&self, node: &Node, writable: bool) -> Call {
        let place = if writable { node.inode.record().backing } else { None };
        let pool = place.and_then(|place| Some((self.pools.get(place.pool).ok()?, Locator(place.locator))));
        if pool.is_none_or(|(pool, locator)| pool.is_marked(&locator)) { Call::Reads } else { Call::Flushes }
    }

    /// Opens the backing file of a node, unless it is open well enough. It has the times that the record was given then.
    pub(crate) fn back(&self, node: &Arc<Node>, open: &mut OpenFile, writable: bool) -> Outcome<()> {
        let was_open = open.backing.is_some();
        self.back_as_it_is(node, open, writable)?;
        if open.backing.as_deref().is_none_or(|backing| !backing.times_behind) {
            return Ok(());
        }
        self.answers_at_once(&node.inode, Call::Writes)?;
        if was_open {
            self.record_measure(node, open)?;
        }
        let written = open.writers > 0;
        let Some(backing) = &mut open.backing else { return Ok(()) };
        let record = node.inode.record();
        let given = self.pools.call(backing.pool, Call::Writes, || {
            if was_open { backing.follow_times(&record, !written, written) } else { backing.begin_with_times(&record) }
        });
        match given {
            // A disk that takes no changes any more can still be read.
            Err(Errno::EROFS) if !writable => Ok(()),
            given => given,
        }
    }

    /// The same, whatever times it has.
    pub(crate) fn back_as_it_is(&self, node: &Arc<Node>, open: &mut OpenFile, writable: bool) -> Outcome<()> {
        if open.backing.as_deref().is_some_and(|backing| backing.writable || !writable) {
            return Ok(());
        }
        let record = node.inode.record();
        let place = record.backing.as_ref().ok_or(Errno::EINVAL)?;
        let pool = self.pools.get(place.pool)?;
        let binding =
            Binding { file: node.inode.id, generation: place.generation, locator: Locator(place.locator.clone()) };
        let access = if writable { Access::Write } else { Access::Read };
        let call = self.call_to_open(node, writable);
        let wait = self.pools.wait(place.pool);
        let open_file = || self.pools.call(place.pool, call, || pool.open_waiting(&binding, access, wait));
        let file = match self.with_files(open_file, crate::ending::settle::is_full) {
            Err(error) if error.would_wait() => return Err(Errno::LATER),
            outcome => Arc::new(outcome?),
        };
        if let Some(backing) = &mut open.backing {
            // It is the same file: baseline and registration stay.
            backing.file = file;
            backing.writable = true;
            backing.claimed = true;
            return Ok(());
        }
        let discards = pool.discards();
        let baseline = if discards { Measure::default() } else { Measure::of(&file)? };
        let times_behind = record.times_ahead && !discards && !baseline.has_times_of(&record);
        let backing = OpenBacking::new(place.pool, binding, file, baseline, writable);
        open.backing = Some(Box::new(OpenBacking { discards, times_behind, ..backing }));
        Ok(())
    }

    /// Sets the length. Call with the backing file open for writing. File capabilities the kernel takes away itself where that voids
    /// them: an overlay that copies a file up has set them by then.
    pub(crate) fn truncate_locked(
        &self,
        node: &Arc<Node>,
        open: &mut OpenFile,
        size: u64,
        kill: Option<Caller>,
    ) -> Outcome<()> {
        let backing = open.backing.as_deref_mut().expect("a truncated file has its backing file open");
        if backing.lends {
            // What grew and is cut off now is owed no more, but what stays is.
            self.record_measure(node, open)?;
        }
        let backing = open.backing.as_deref_mut().expect("still open");
        if !backing.discards {
            self.pools.call(backing.pool, Call::Writes, || rustix::fs::ftruncate(&backing.file, size))?;
        }
        let discards = backing.discards;
        if let Some(grant) = open.grant.changed() {
            grant.cut(size);
        }
        let now = crate::now();
        let measure = if discards { None } else { Some(Measure::of(&backing.file)?) };
        let measure = measure.map(|measure| self.narrow_to(open, measure)).transpose()?;
        let before = open.backing.as_deref().map(|backing| backing.baseline);
        // A solid file stays charged for what was taken from it unseen.
        let measure = measure.map(|now| self.charged(open, now));
        let outcome = self.catalog.update(&node.inode, |record| {
            record.size = size;
            if let (Some(measure), Some(before)) = (&measure, &before) {
                record.blocks = measure.blocks;
                // Somebody may have read since.
                bring_up_access(record, before, measure);
            }
            record.ctime = after(record.ctime, now);
            record.mtime = record.ctime;
            if let Some(stranger) = kill {
                privileges::clear(record, stranger);
            }
            Ok(())
        });
        if let (Some(measure), Some(backing)) = (measure, &mut open.backing) {
            self.pools.gave_back(backing.pool, backing.baseline.blocks.saturating_sub(measure.blocks) * 512);
            backing.baseline = measure;
            backing.recorded = ullage_kv::Seq(0);
        }
        if kill.is_some() {
            self.trees.attributes(node.inode.id);
        }
        Ok(outcome?)
    }
}

/// The lock of a file that is about to be opened with these flags. Who comes to write may do so unseen.
fn lock_for(node: &Node, flags: i32) -> Outcome<MutexGuard<'_, OpenFile>> {
    if flags & libc::O_ACCMODE == libc::O_RDONLY { Ok(node.open.lock()) } else { Space::lock_to_write(node) }
}

/// Whether a handle is of those that leave O_DIRECT by fcntl(2) for their last, odd piece, as dd(1) does. In passthrough mode the
/// kernel goes on with the flags of open(2), and that piece would fail. Databases, which read too, stay in the kernel.
fn may_end_direct(flags: i32) -> bool {
    flags & libc::O_ACCMODE == libc::O_WRONLY && flags & libc::O_DIRECT != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headroom::lend::tests::{lending, lending_file};
    use crate::open_file::set_times;
    use ullage_types::{FileId, Timestamp};

    /// Regression: what was stored by somebody who had just opened a file that was being filled with zeros was overwritten by those.
    #[test]
    fn who_may_write_unseen_does_not_come_while_a_file_is_filled() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending(dir.path());
        space.set_limit(ullage_catalog::Subject::Directory(FileId(1)), ullage_catalog::Limit::NONE).unwrap();
        let caller = Caller { uid: 0, gid: 0, pid: 1 };
        let open = |flags: i32| hurry::hurried(|| space.do_open(caller, node.id, flags as u32).map(drop));
        node.open.lock().grant.fill();
        assert_eq!((open(libc::O_RDWR), open(libc::O_WRONLY)), (Err(Errno::LATER), Err(Errno::LATER)));
        open(libc::O_RDONLY).unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| space.do_open(caller, node.id, libc::O_RDWR as u32).map(drop));
            std::thread::sleep(std::time::Duration::from_millis(100));
            assert!(!waits.is_finished());
            node.open.lock().grant.filled();
            waits.join().unwrap().unwrap();
        });
        open(libc::O_RDWR).unwrap();
    }

    /// Regression: what truncation freed on btrfs was refused for half a minute, until that wrote itself out.
    #[test]
    fn what_was_cut_off_was_given_back_to_the_pool() {
        use crate::pools::away::tests::space_of;
        let dir = tempfile::tempdir().unwrap();
        let (space, _, node) = space_of(dir.path(), 1);
        let mut open = node.open.lock();
        let file = open.backing.as_deref().unwrap().file.clone();
        let write = |bytes: usize| std::os::unix::fs::FileExt::write_all_at(&*file, &vec![1; bytes], 0).unwrap();
        write(1 << 20);
        space.record_measure(&node, &mut open).unwrap();
        assert_eq!(space.pools.unfreed(ullage_types::PoolId(0)), 0);
        space.truncate_locked(&node, &mut open, 4096, None).unwrap();
        assert_eq!(space.pools.unfreed(ullage_types::PoolId(0)), (1 << 20) - 4096);
        // Punched, or cut otherwise.
        file.set_len(0).unwrap();
        space.record_measure(&node, &mut open).unwrap();
        assert_eq!(space.pools.unfreed(ullage_types::PoolId(0)), 1 << 20);
    }

    /// Nobody closed it until the kernel forgot the file, and its leaf stayed marked.
    #[test]
    fn what_was_opened_for_an_open_that_fails_is_closed_later() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending(dir.path());
        {
            let mut open = node.open.lock();
            (open.handles, open.writers, open.backing) = (0, 0, None);
        }
        let parent = std::mem::replace(&mut node.inode.lock().record.parent, FileId(u64::MAX));
        let caller = Caller { uid: 0, gid: 0, pid: 1 };
        assert!(space.do_open(caller, node.id, libc::O_WRONLY as u32).is_err(), "its directory is not found");
        node.inode.lock().record.parent = parent;
        let open = node.open.lock();
        assert!(open.queued || open.backing.is_none());
    }

    /// Regression: a truncation took what the file said for what is recorded, and the time of a read before that was lost.
    #[test]
    fn a_read_before_a_truncation_keeps_its_time() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending_file(dir.path(), 8192);
        space.record_measure(&node, &mut node.open.lock()).unwrap();
        let file = node.open.lock().backing.as_deref().unwrap().file.clone();
        let read = Timestamp { seconds: node.inode.record().atime.seconds + 1, nanoseconds: 0 };
        set_times(&file, Some(read), None).unwrap();
        space.truncate_locked(&node, &mut node.open.lock(), 4096, None).unwrap();
        assert_eq!(node.inode.record().atime, read);
        space.brake.stop();
    }
}
