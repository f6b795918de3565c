//! Moving many stripes at a time.

use super::chunks::ChunkError;
use std::future::Future;
use tokio::task::JoinSet;

/// Told about every stripe that is done: bytes done so far, bytes in all.
pub type Progress = std::sync::Arc<dyn Fn(u64, u64) + Send + Sync>;

/// What was moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Transferred {
    /// The file's bytes.
    pub size_bytes: u64,
    /// Its stripes.
    pub stripes: u64,
    /// Bytes that it occupies at the stores, manifest included; zero where nothing was written.
    pub allocated_bytes: u64,
}

/// Runs `work` for `0..count`, at most `width` at a time; the first failure ends all.
pub(crate) async fn in_parallel<F, E>(count: u64, width: usize, mut work: impl FnMut(u64) -> F) -> Result<u64, E>
where
    F: Future<Output = Result<u64, E>> + Send + 'static,
    E: From<ChunkError> + Send + 'static,
{
    let mut running = JoinSet::new();
    let mut next = 0;
    let mut sum = 0;
    while next < count || !running.is_empty() {
        while next < count && running.len() < width.max(1) {
            running.spawn(work(next));
            next += 1;
        }
        match running.join_next().await {
            Some(Ok(done)) => sum += done?,
            Some(Err(panic)) => std::panic::resume_unwind(panic.into_panic()),
            None => break,
        }
    }
    Ok(sum)
}
