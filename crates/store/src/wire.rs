//! What a storage server answers, in JSON.

use crate::chunk::{ChunkInfo, ChunkName, Recount};
use serde::{Deserialize, Serialize};
use ullage_voucher::message::StoreToClient;
use ullage_voucher::{Epoch, Incarnation};

/// The answer to everything that can allocate or free.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WriteAnswer {
    /// What was spent (with the balance) or refunded.
    pub outcomes: Vec<StoreToClient>,
    /// The chunk as it is now.
    pub chunk: Option<ChunkView>,
}

/// A chunk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkView {
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub owner: String,
    /// Permission bits.
    pub mode: u16,
    /// Bytes of data, holes included.
    pub size_bytes: u64,
    /// Bytes it occupies, all charged to somebody.
    pub allocated_bytes: u64,
}

impl ChunkView {
    pub(crate) fn new(name: &ChunkName, info: &ChunkInfo) -> Self {
        Self {
            name: name.to_string(),
            owner: info.owner.to_string(),
            mode: info.mode,
            size_bytes: info.size,
            allocated_bytes: info.allocated(),
        }
    }
}

/// Chunks, by name.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChunkList {
    /// One page; the next begins after the last name.
    pub chunks: Vec<ChunkView>,
}

/// How a storage server is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StoreStatus {
    /// Its number.
    pub node: u32,
    /// Whether it takes vouchers: it has a lease.
    pub open: bool,
    /// The newest epoch heard of, by shard of users.
    pub epochs: Vec<Epoch>,
    /// Its life, by shard of users.
    pub incarnations: Vec<Incarnation>,
    /// Bytes that all chunks occupy.
    pub charged_bytes: u64,
    /// What the recount at the start found.
    pub recount: Recount,
}
