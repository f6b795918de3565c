//! Paying for one chunk with many small vouchers: those that come back for small files that were removed.

use super::chunks::{ChunkError, Chunks};
use crate::wire::ChunkView;
use bytes::Bytes;
use ullage_voucher::Node;

/// What as many of the smallest refunds as one request may carry pay for, twice over: a bank that passes them on gives half as many at a time.
const PART_BYTES: usize = 64 << 10;

impl Chunks {
    /// Replaces a chunk that nobody else looks at yet as [`Self::put`] does. Where what the user has left lies in more vouchers than one
    /// request carries, it is written piece by piece, each paid by itself.
    ///
    /// # Errors
    /// As [`Self::put`]; a part of the chunk may be there then.
    pub(super) async fn put_unseen(
        &self,
        node: Node,
        name: &str,
        data: Bytes,
    ) -> Result<Option<ChunkView>, ChunkError> {
        match self.put(node, name, data.clone(), true).await {
            Err(error) if error.is_over_quota() && data.len() > PART_BYTES => {}
            done => return done,
        }
        let mut view = self.put(node, name, data.slice(..PART_BYTES), true).await?;
        for start in (PART_BYTES..data.len()).step_by(PART_BYTES) {
            let part = data.slice(start..data.len().min(start + PART_BYTES));
            view = self.write_at(node, name, start as u64, part).await?;
        }
        Ok(view)
    }
}
