//! Keeps the journal short and its room held, with a bank and without: a snapshot whenever enough was logged.

use super::accounts::Accounts;
use crate::chunk::ChunkStore;
use std::sync::Arc;
use std::time::Duration;

/// How often is looked.
const EVERY: Duration = Duration::from_millis(50);

/// Runs until the process ends. A task of its own: a snapshot may wait for the disk longer than a lease lasts.
pub(crate) async fn run(chunks: Arc<ChunkStore<Accounts>>) {
    loop {
        if chunks.snapshot_due() {
            let chunks = Arc::clone(&chunks);
            let snapshot = tokio::task::spawn_blocking(move || chunks.snapshot()).await;
            if let Ok(Err(error)) = snapshot {
                tracing::error!(%error, "the snapshot fails; the journal grows until one succeeds");
            }
        }
        chunks.hold_room();
        tokio::time::sleep(EVERY).await;
    }
}
