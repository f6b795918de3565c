//! What every thread of a connection shares.

use crate::connection::Connection;
use crate::counters::Counters;
use crate::dispatch::Dispatcher;
use crate::message::Dialect;
use crate::workers::Workers;
use std::sync::Arc;

/// One connection's parts.
pub(crate) struct Core {
    pub connection: Arc<Connection>,
    pub dispatcher: Dispatcher,
    pub dialect: Dialect,
    pub workers: Arc<Workers>,
    pub counters: Arc<Counters>,
    /// READ and WRITE go to workers.
    pub blocking_io: bool,
    /// Longest data of one READ or WRITE.
    pub max_transfer: usize,
    /// Bytes of a ring entry's payload: what the kernel demands, except in tests of its refusal.
    pub ring_payload: usize,
}
