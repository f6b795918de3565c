//! Group commit: whoever finds nobody writing writes all that is pending, in its own thread; the others wait
//! for that write and, if it came too early for them, one of them does the next.

use super::core::Core;
use super::options::Canary;
use super::state::State;
use crate::layer::Layer;
use crate::log::{Append, Flush, Log};
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
        self.advance(upto, Flush::Now).map(|_| ())
    }

    /// Returns when every commit up to `upto` is in the log, flushed or not; gives back the newest that is.
    pub fn write_out(&self, upto: Seq) -> Result<Seq, Error> {
        self.advance(upto, Flush::Later)
    }

    fn advance(&self, upto: Seq, flush: Flush) -> Result<Seq, Error> {
        let mut state = self.state.lock();
        state.check()?;
        let upto = upto.min(state.newest);
        let reached = |state: &State| if flush == Flush::Now { state.durable } else { state.written };
        while reached(&state) < upto {
            state.check()?;
            if state.flushing {
                self.progress.wait(&mut state);
                continue;
            }
            if state.written < upto && (state.pending.is_empty() || self.canary(Canary::AckBeforeWrite)) {
                // What was committed cancelled itself out: what is written is the newest state already.
                if state.durable == state.written {
                    state.durable = state.newest;
                }
                state.written = state.newest;
                state.pending.last = state.newest;
                self.progress.notify_all();
                continue;
            }
            state.flushing = true;
            if state.written >= upto {
                let written = state.written;
                drop(state);
                let flushed = self.flush_log();
                state = self.state.lock();
                state.flushing = false;
                match flushed {
                    Ok(()) => state.durable = written,
                    Err(error) => return Err(self.poison_locked(&mut state, error)),
                }
                self.progress.notify_all();
                continue;
            }
            drop(state);
            let sealed = self.seal();
            self.go_ahead();
            let landed = self.write(&sealed, flush);
            state = self.state.lock();
            state.flushing = false;
            match landed {
                Ok(Landed::Log) => state.logged(sealed, flush == Flush::Now || self.log.is_none()),
                Ok(Landed::Engine) => state.bypassed(&sealed),
                // Under the same lock, so that nobody writes a record after the one that failed.
                Err(error) => return Err(self.poison_locked(&mut state, error)),
            }
            self.progress.notify_all();
        }
        Ok(state.written)
    }

    /// The device of the log was flushed after [`Core::write_out`] gave back `written`.
    pub fn flushed(&self, written: Seq) -> Result<(), Error> {
        let mut state = self.state.lock();
        if state.durable >= written {
            return Ok(());
        }
        state.check()?;
        state.durable = written;
        // While somebody writes there is something unflushed in any case.
        if state.written == written
            && !state.flushing
            && let Some(log) = &self.log
        {
            log.lock().flushed();
        }
        self.progress.notify_all();
        Ok(())
    }

    /// Call with `State::flushing` set.
    fn flush_log(&self) -> Result<(), Error> {
        let Some(log) = &self.log else { return Ok(()) };
        log.lock().flush().map_err(|source| self.log_failed(source))
    }

    fn log_failed(&self, source: std::io::Error) -> Error {
        Error::Io { doing: "write the log of", path: self.path.clone(), source }
    }

    fn write(&self, sealed: &Arc<Layer>, flush: Flush) -> Result<Landed, Error> {
        let Some(log) = &self.log else { return Ok(Landed::Log) };
        let mut log = log.lock();
        loop {
            let (durable, persisted) = {
                let state = self.state.lock();
                (state.durable, state.persisted)
            };
            let appended = log.append(sealed, durable, persisted, flush).map_err(|source| self.log_failed(source))?;
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
                Append::Full => {
                    self.flush_written(&mut log)?;
                    self.apply(true)?;
                }
                Append::TooLarge => {
                    self.flush_written(&mut log)?;
                    self.apply_past_log(sealed)?;
                    log.skip(sealed.last);
                    return Ok(Landed::Engine);
                }
            }
        }
    }

    /// Makes durable what is in the log, so that it may go into the engine.
    fn flush_written(&self, log: &mut Log) -> Result<(), Error> {
        log.flush().map_err(|source| self.log_failed(source))?;
        let mut state = self.state.lock();
        state.durable = state.written;
        Ok(())
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
