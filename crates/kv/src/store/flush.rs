//! Group commit: whoever finds nobody writing writes all that is pending, in its own thread; the others wait
//! for that write and, if it came too early for them, one of them does the next.

use super::core::Core;
use super::options::Canary;
use crate::layer::Layer;
use crate::log::Append;
use crate::{Error, Seq};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Where a sealed layer became durable.
enum Landed {
    Log,
    Engine,
}

impl Core {
    /// Returns when every commit up to `upto`, or up to the newest if that is less, is durable.
    pub fn flush(&self, upto: Seq) -> Result<(), Error> {
        let mut state = self.state.lock();
        let upto = upto.min(state.newest);
        while state.durable < upto {
            state.check()?;
            if state.flushing {
                self.progress.wait(&mut state);
                continue;
            }
            if state.pending.is_empty() || self.canary(Canary::AckBeforeWrite) {
                // What was committed cancelled itself out: the durable state is the newest one already.
                state.durable = state.newest;
                state.pending.last = state.newest;
                self.progress.notify_all();
                break;
            }
            state.flushing = true;
            drop(state);
            let sealed = self.seal();
            let landed = self.write(&sealed);
            state = self.state.lock();
            state.flushing = false;
            match landed {
                Ok(Landed::Log) => state.logged(sealed),
                Ok(Landed::Engine) => state.bypassed(&sealed),
                // Under the same lock, so that nobody writes a record after the one that failed.
                Err(error) => return Err(self.poison_locked(&mut state, error)),
            }
            self.progress.notify_all();
        }
        Ok(())
    }

    fn write(&self, sealed: &Arc<Layer>) -> Result<Landed, Error> {
        let Some(log) = &self.log else { return Ok(Landed::Log) };
        let mut log = log.lock();
        loop {
            let persisted = self.state.lock().persisted;
            let appended = log.append(sealed, persisted).map_err(|source| Error::Io {
                doing: "write the log of",
                path: self.path.clone(),
                source,
            })?;
            match appended {
                Append::Written { bytes, switched } => {
                    self.counters.records.fetch_add(1, Relaxed);
                    self.counters.log_bytes.fetch_add(bytes, Relaxed);
                    if switched {
                        let mut state = self.state.lock();
                        state.persist_wanted = true;
                        self.kick(&mut state);
                    }
                    return Ok(Landed::Log);
                }
                Append::Full => self.apply(true)?,
                Append::TooLarge => {
                    self.apply_past_log(sealed)?;
                    log.skip();
                    return Ok(Landed::Engine);
                }
            }
        }
    }

    /// Brings a layer that no log file can hold straight into the engine, where one batch is atomic too.
    fn apply_past_log(&self, sealed: &Arc<Layer>) -> Result<(), Error> {
        let guard = self.applying.lock();
        self.apply_locked(false, &guard)?;
        self.engine.apply(&sealed.changes(), sealed.last)?;
        self.engine.persist()?;
        self.tell(sealed);
        Ok(())
    }
}
