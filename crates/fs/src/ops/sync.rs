//! FSYNC, FSYNCDIR, SYNCFS.

use crate::node::Node;
use crate::open_file::{Measure, OpenFile};
use crate::ops::Stream;
use crate::{Errno, Outcome, Space, hurry, syncs, threads};
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use ullage_kv::Seq;
use ullage_types::NodeId;

/// How long those are waited for at the end who still have a file.
const PATIENCE: Duration = Duration::from_secs(2);
/// A flush that takes longer than this goes on beside that of the data.
const WORTH_A_THREAD: Duration = Duration::from_micros(250);

impl Space {
    /// What the backing file says of itself is recorded first, so that the size is as durable as the data. Then one flush
    /// makes both durable where log and data are on one device; else the log is flushed while the data is.
    pub(crate) fn do_fsync(&self, node: NodeId, data_only: bool) -> Outcome<()> {
        let node = self.node(node)?;
        let stream = self.stream(node.id)?;
        let (short, measured, late) = {
            let mut open = node.open.lock();
            if let Some(why) = self.lost.take(&node.inode) {
                open.told(Err(why))?;
            }
            let short = data_only && self.only_times_changed(&open)?;
            if !short {
                self.record_measure(&node, &mut open)?;
            }
            let measured = if short { None } else { self.shown_measure(&open) };
            (short, measured, Self::late_work(&open))
        };
        if short {
            sync_data(&node, &stream.file, data_only, None)?;
        } else {
            self.sync_file(&node, &stream, data_only, measured)?;
        }
        if let Some(late) = late {
            let mut open = node.open.lock();
            self.late_work_is_done(&mut open, late);
            self.record_measure(&node, &mut open)?;
        }
        Ok(())
    }

    /// What a file looks like, where no later change of it can look the same: asked before the flush, which may not have what comes meanwhile.
    fn shown_measure(&self, open: &OpenFile) -> Option<Measure> {
        let backing = open.backing.as_deref()?;
        Some(backing.baseline).filter(|it| it.shows_changes(crate::now(), self.pools.granularity(backing.pool)))
    }

    fn sync_file(&self, node: &Arc<Node>, stream: &Stream, data_only: bool, measured: Option<Measure>) -> Outcome<()> {
        if stream.discards {
            return Ok(self.catalog.sync()?);
        }
        let kv = self.catalog.kv();
        let newest = kv.newest();
        let data = || sync_data(node, &stream.file, data_only, measured);
        if cfg!(feature = "flawed") || self.catalog.durable() >= newest {
            return data();
        }
        if kv.device().is_some_and(|device| self.pools.get(stream.pool).is_ok_and(|pool| pool.device() == Some(device)))
        {
            // The disk writes the data while the log is written: a tenth of the whole on a fast one. What fails here fails again below.
            let _ = crate::sys::begin_writing(&stream.file);
            let written = kv.write_out(newest)?;
            data().inspect_err(|_| {
                // That may be this file's affair alone, and what the log still lacks is others'. It tells itself of its failure.
                let _ = kv.sync(newest);
            })?;
            return Ok(kv.flushed(written)?);
        }
        // Handing the log to another thread pays where a flush takes longer than waking that thread.
        if self.log_flush.load(Relaxed) < WORTH_A_THREAD.as_nanos() as u64 {
            self.flush_log(newest)?;
            return data();
        }
        let (log, data) = threads::beside("log-flush", || self.flush_log(newest), data);
        log.and(data)
    }

    /// What was written with such flags is to be durable now. What has pages of its own in the kernel is synced by it (FSYNC).
    pub(crate) fn sync_written(&self, node: NodeId, flags: u32) -> Outcome<()> {
        if !syncs(flags) {
            return Ok(());
        }
        let past_pages = self.node(node)?.open.lock().backing.as_deref().is_some_and(|it| it.registered.is_some());
        if past_pages { self.do_fsync(node, flags as i32 & libc::O_SYNC != libc::O_SYNC) } else { Ok(()) }
    }

    /// Before a handle with such flags is given out: what the kernel writes through it, and syncs, is not heard of here, and is to be
    /// found after a crash. The leaf is marked, so the length is measured then.
    pub(crate) fn sync_names(&self, flags: u32) -> Outcome<()> {
        Self::may_sync_names(flags)?;
        if writes_and_syncs(flags) { Ok(self.catalog.sync()?) } else { Ok(()) }
    }

    /// LATER where that may not be waited for.
    pub(crate) fn may_sync_names(flags: u32) -> Outcome<()> {
        if writes_and_syncs(flags) { hurry::may_wait() } else { Ok(()) }
    }

    /// Whether the record says everything but the times that the data cannot be read without, and is durable: then
    /// fdatasync(2) is the backing file's own. Databases overwrite and sync all the time.
    fn only_times_changed(&self, open: &OpenFile) -> Outcome<bool> {
        let Some(backing) = &open.backing else { return Ok(false) };
        let known = backing.recorded != Seq(0) && backing.recorded <= self.catalog.durable();
        if backing.discards || !known || open.grant.excess() > 0 {
            return Ok(false);
        }
        let now = Measure::of(&backing.file)?;
        Ok((now.size, now.blocks) == (backing.baseline.size, backing.baseline.blocks))
    }

    /// Flushes the log and remembers how long that takes.
    fn flush_log(&self, upto: Seq) -> Outcome<()> {
        let began = Instant::now();
        self.catalog.kv().sync(upto)?;
        let took = began.elapsed().as_nanos() as u64;
        let before = self.log_flush.load(Relaxed);
        self.log_flush.store(before - before / 8 + took / 8, Relaxed);
        Ok(())
    }

    pub(crate) fn do_fsyncdir(&self, _node: NodeId) -> Outcome<()> {
        if cfg!(feature = "flawed") {
            return Ok(());
        }
        Ok(self.catalog.sync()?)
    }

    /// Everything: the records, and every pool's file system.
    pub(crate) fn do_syncfs(&self) -> Outcome<()> {
        for member in self.pools.members() {
            member.pool.sync()?;
        }
        Ok(self.catalog.sync()?)
    }

    /// A space that is not to be used after all: nothing goes on in it, and whoever lets go of it then has let go of its catalog and its pools.
    /// These stay as they are, with what is marked in them.
    pub fn give_up(&self) {
        self.drains.stop();
        self.brake.stop();
        self.departing.wait();
        self.settler.stop();
        self.reaper.stop();
    }

    /// RELEASEs and FORGETs that were still queued when the connection ended never come. A handle may outlive a connection that was broken
    /// off: what becomes of its file is found out as of any other that may be written to.
    fn let_go_of_all(&self) {
        let until = Instant::now() + PATIENCE;
        for node in self.nodes.forget_all() {
            // Who still has it stands still with its disk.
            let Some(mut open) = node.open.try_lock_until(until) else { continue };
            (open.handles, open.writers) = (0, 0);
            if node.inode.lock().record.nlink == 0 {
                self.let_go_locked(&node, open);
            } else if open.backing.is_some() {
                self.settler.push(&node, &mut open);
            }
        }
    }

    /// The connection is gone: what is still open is measured and closed, and everything goes to the disk.
    pub(crate) fn do_detach(&self) {
        let drained = self.drains.stop();
        self.give_back_kept(true);
        self.brake.stop();
        self.departing.wait();
        self.let_go_of_all();
        self.settler.stop();
        // What still goes to another pool may have its names told to nobody.
        let in_step = self.trees.stop() && drained;
        self.trees_in_step.store(in_step, Relaxed);
        if let Err(error) = self.catalog.sync() {
            tracing::error!("the catalog could not be written: {error}");
        }
        self.reaper.stop();
        for member in self.pools.members() {
            if let Err(error) = member.pool.close() {
                tracing::error!("pool '{}' could not be closed: {error}", member.name);
            }
        }
        if let Err(error) = self.catalog.sync() {
            tracing::error!("the catalog could not be written: {error}");
        }
    }
}

/// Whether a handle with these flags writes, and all that is durable when a call returns.
fn writes_and_syncs(flags: u32) -> bool {
    syncs(flags) && flags as i32 & libc::O_ACCMODE != libc::O_RDONLY
}

/// Makes durable what was written to a file, at least what it was `measured` with.
fn sync_data(node: &Node, file: &File, data_only: bool, measured: Option<Measure>) -> Outcome<()> {
    let synced = if data_only { rustix::fs::fdatasync(file) } else { rustix::fs::fsync(file) };
    let mut open = node.open.lock();
    open.told(synced.map_err(Errno::from))?;
    if let (Some(backing), Some(_)) = (&mut open.backing, measured) {
        backing.synced = measured;
    }
    Ok(())
}
