//! Ending a transfer before it is done.

use super::files::FileError;
use std::future::Future;
use tokio::sync::watch;

/// Whether transfers are to end: what they had made so far is taken away again. The default tells them nothing.
#[derive(Debug, Clone, Default)]
pub struct Stop(Option<watch::Receiver<bool>>);

impl Stop {
    /// One that is given when `true` is sent.
    pub fn new() -> (watch::Sender<bool>, Self) {
        let (sender, receiver) = watch::channel(false);
        (sender, Self(Some(receiver)))
    }

    /// Whether it was given.
    pub fn is_given(&self) -> bool {
        self.0.as_ref().is_some_and(|told| *told.borrow())
    }

    async fn given(&self) {
        if let Some(mut told) = self.0.clone()
            && told.wait_for(|stop| *stop).await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }

    /// The work's outcome, unless this is given first: the work is dropped then.
    pub(super) async fn or<T>(&self, work: impl Future<Output = Result<T, FileError>>) -> Result<T, FileError> {
        tokio::select! {
            biased;
            () = self.given() => Err(FileError::Stopped),
            done = work => done,
        }
    }
}
