//! A connection that gives up on a peer who takes no answers.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// What must at least go out in each time of patience; less is a peer that keeps an answer in our memory.
const LEAST_BYTES: u64 = 256 << 10;

/// A stream whose writes fail when the peer hardly reads.
#[derive(Debug)]
pub(crate) struct Patient<S> {
    stream: S,
    patience: Duration,
    least: u64,
    /// Ends the present time of patience; it runs from the first write that waits until all is written.
    alarm: Pin<Box<Sleep>>,
    waits: bool,
    sent: u64,
}

impl<S> Patient<S> {
    pub(crate) fn new(stream: S, patience: Duration) -> Self {
        Self::with_least(stream, patience, LEAST_BYTES)
    }

    fn with_least(stream: S, patience: Duration, least: u64) -> Self {
        Self { stream, patience, least, alarm: Box::pin(tokio::time::sleep(patience)), waits: false, sent: 0 }
    }

    fn begin(&mut self) {
        self.waits = true;
        self.sent = 0;
        self.alarm.as_mut().reset(Instant::now() + self.patience);
    }

    fn counted(&mut self, context: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(written) => {
                self.sent += *written.as_ref().unwrap_or(&0) as u64;
                Poll::Ready(written)
            }
            Poll::Pending => self.still_waits(context),
        }
    }

    /// Nothing could be written now.
    fn still_waits<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if !self.waits {
            self.begin();
        }
        loop {
            ready!(self.alarm.as_mut().poll(context));
            if self.sent < self.least {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            self.begin();
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.counted(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_flush(context) {
            Poll::Ready(flushed) => {
                self.waits = false;
                Poll::Ready(flushed)
            }
            Poll::Pending => self.still_waits(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.counted(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const PATIENCE: Duration = Duration::from_millis(500);
    const LEAST: u64 = 16 << 10;

    fn pair() -> (Patient<tokio::io::DuplexStream>, tokio::io::DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(4096);
        (Patient::with_least(ours, PATIENCE, LEAST), theirs)
    }

    #[tokio::test]
    async fn who_takes_nothing_is_given_up_and_who_takes_enough_is_not() {
        let (mut ours, _theirs) = pair();
        let begun = Instant::now();
        let given_up = ours.write_all(&vec![1; 1 << 20]).await.unwrap_err();
        assert_eq!(given_up.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() >= PATIENCE);
        drop(ours);
        // For longer than the patience; then nothing for longer, and once more.
        let (mut ours, mut theirs) = pair();
        let reader = tokio::spawn(async move {
            let mut taken = 0;
            let mut buffer = vec![0; 4096];
            while let Ok(length @ 1..) = theirs.read(&mut buffer).await {
                taken += length;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            taken
        });
        for _ in 0..2 {
            ours.write_all(&vec![1; 4 << 20]).await.unwrap();
            ours.flush().await.unwrap();
            tokio::time::sleep(PATIENCE * 2).await;
        }
        drop(ours);
        assert_eq!(reader.await.unwrap(), 8 << 20);
    }

    /// A byte now and then is not taking an answer.
    #[tokio::test]
    async fn who_takes_a_little_now_and_then_is_given_up() {
        let (mut ours, mut theirs) = pair();
        tokio::spawn(async move {
            while theirs.read_u8().await.is_ok() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        assert_eq!(ours.write_all(&vec![1; 1 << 20]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
