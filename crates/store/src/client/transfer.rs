//! Moving many stripes at a time.

use super::files::FileError;
use super::stop::Stop;
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

/// Runs `work` for `0..count`, at most `width` at a time; the first failure ends all, and so does the stop. Nothing is under way any more when
/// this returns: who then takes away what was made comes after it.
pub(crate) async fn in_parallel<F>(
    count: u64,
    width: usize,
    stop: &Stop,
    work: impl FnMut(u64) -> F,
) -> Result<u64, FileError>
where
    F: Future<Output = Result<u64, FileError>> + Send + 'static,
{
    let mut running = JoinSet::new();
    let done = stop.or(sum_of(count, width, &mut running, work)).await;
    running.shutdown().await;
    done
}

async fn sum_of<F>(
    count: u64,
    width: usize,
    running: &mut JoinSet<Result<u64, FileError>>,
    mut work: impl FnMut(u64) -> F,
) -> Result<u64, FileError>
where
    F: Future<Output = Result<u64, FileError>> + Send + 'static,
{
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
