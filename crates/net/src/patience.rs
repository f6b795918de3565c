//! A connection that gives up on a peer who takes no answers, and tells how much goes over it: who sends or takes slowly is not silent.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// What must at least go out, or come in, in each time of patience; less is a peer that keeps an answer or a body in our memory.
const LEAST_BYTES: u64 = 256 << 10;

/// What comes of `work` over a connection over which so much has `moved`. It may take many times of patience, if enough moves in each; nothing
/// comes of it if not.
pub(crate) async fn while_moving<T>(work: impl Future<Output = T>, moved: &AtomicU64, patience: Duration) -> Option<T> {
    tokio::pin!(work);
    let mut before = moved.load(Ordering::Relaxed);
    loop {
        if let Ok(done) = tokio::time::timeout(patience, &mut work).await {
            return Some(done);
        }
        let now = moved.load(Ordering::Relaxed);
        if now.saturating_sub(before) < LEAST_BYTES {
            return None;
        }
        before = now;
    }
}

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
    /// All bytes so far, both ways.
    moved: Arc<AtomicU64>,
}

impl<S> Patient<S> {
    pub(crate) fn new(stream: S, patience: Duration) -> Self {
        Self::with_least(stream, patience, LEAST_BYTES)
    }

    fn with_least(stream: S, patience: Duration, least: u64) -> Self {
        Self {
            stream,
            patience,
            least,
            alarm: Box::pin(tokio::time::sleep(patience)),
            waits: false,
            sent: 0,
            moved: Arc::default(),
        }
    }

    pub(crate) fn moved(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.moved)
    }

    fn begin(&mut self) {
        self.waits = true;
        self.sent = 0;
        self.alarm.as_mut().reset(Instant::now() + self.patience);
    }

    fn counted(&mut self, context: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(written) => {
                let bytes = *written.as_ref().unwrap_or(&0) as u64;
                self.sent += bytes;
                self.moved.fetch_add(bytes, Ordering::Relaxed);
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
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.moved.fetch_add((buffer.filled().len() - before) as u64, Ordering::Relaxed);
        read
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
    use crate::client::{Client, Settings};
    use crate::server::{Gate, Limits, serve};
    use crate::token::Bearer;
    use crate::{Role, clock, read_body};
    use hyper::{Method, StatusCode};
    use std::net::SocketAddr;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpSocket;
    use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

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

    /// A socket that takes in little before it is read: what the kernel holds of a body counts as sent.
    fn socket() -> TcpSocket {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(64 << 10).unwrap();
        socket
    }

    /// Carries both ways, no faster than some MiB a second.
    fn slow_line_to(server: SocketAddr) -> String {
        let socket = socket();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(8).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = self::socket().connect(server).await.unwrap().into_split();
                tokio::spawn(carry(from_client, to_server));
                tokio::spawn(carry(from_server, to_client));
            }
        });
        address
    }

    async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        let mut part = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from.read(&mut part).await {
            tokio::time::sleep(Duration::from_millis(4)).await;
            if to.write_all(&part[..length]).await.is_err() {
                return;
            }
        }
    }

    /// Regression: whatever took a minute was given up, at both ends, however well it went: below two Mbit/s no file could be put or got.
    #[tokio::test(flavor = "multi_thread")]
    async fn who_sends_and_takes_slowly_is_served_and_who_hardly_sends_is_not() {
        let patience = Duration::from_millis(800);
        let limits = Limits { request_timeout: patience, ..Limits::default() };
        let gate = Gate { tls: None, token_key: Some([7; 32]) };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let echo = |request: hyper::Request<hyper::body::Incoming>, _| async {
            let body = read_body(request.into_body(), 64 << 20).await?;
            Ok(hyper::Response::new(http_body_util::Full::new(body)))
        };
        tokio::spawn(serve(listener, gate, limits, echo, std::future::pending()));
        let token = Bearer { name: "alice".into(), role: Role::User, expires: clock::now_secs() + 60 }.sign(&[7; 32]);
        let settings = Settings { token: Some(token.clone()), timeout: patience, ..Settings::default() };
        let line = slow_line_to(address);
        let begun = Instant::now();
        let body = bytes::Bytes::from(vec![1; 8 << 20]);
        let reply = Client::new(settings).send(&line, Method::POST, "/", &[], body.clone()).await.unwrap();
        assert!(reply.status == StatusCode::OK && reply.body == body);
        assert!(begun.elapsed() > 2 * patience, "{:?}", begun.elapsed());
        // A little now and then is not sending a body.
        let mut trickle = tokio::net::TcpStream::connect(address).await.unwrap();
        let head = format!("POST / HTTP/1.1\r\nauthorization: Bearer {token}\r\ncontent-length: 1000000\r\n\r\n");
        trickle.write_all(head.as_bytes()).await.unwrap();
        let (mut answer, mut sender) = trickle.into_split();
        tokio::spawn(async move {
            while sender.write_all(&[1; 100]).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        let mut text = [0; 12];
        tokio::time::timeout(4 * patience, answer.read_exact(&mut text)).await.unwrap().unwrap();
        assert_eq!(&text, b"HTTP/1.1 504");
    }
}
