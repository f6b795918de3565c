//! The end of a connection whose peer may still be sending.

use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// What is taken at a time.
const PART_BYTES: usize = 64 << 10;

/// Takes what a peer still sends after its answer, and forgets it, until the peer ends the connection too. One that is closed before
/// is reset by the kernel, and who is busy sending finds that, and not the answer: the reason of a refusal, or that all was done before.
pub(crate) async fn linger<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, patience: Duration) {
    let rest = async {
        if stream.shutdown().await.is_ok() {
            let mut part = vec![0; PART_BYTES];
            while matches!(stream.read(&mut part).await, Ok(1..)) {}
        }
    };
    // Who goes on for longer does not want to know.
    let _ = tokio::time::timeout(patience, rest).await;
}

#[cfg(test)]
mod tests {
    use crate::client::{Client, Settings};
    use crate::server::{Gate, Limits, serve};
    use crate::token::Bearer;
    use crate::{Role, clock, json};
    use hyper::{Method, StatusCode};
    use tokio::net::TcpListener;
    use tokio::sync::oneshot;

    /// Regression: the connection was reset, so that a repetition that was answered, and a refusal with its reason, counted as silence.
    #[tokio::test(flavor = "multi_thread")]
    async fn who_sends_what_nobody_reads_is_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let key = [7; 32];
        let gate = Gate { tls: None, token_key: Some(key) };
        let (end, ended) = oneshot::channel::<()>();
        let server = tokio::spawn(serve(listener, gate, Limits::default(), |_, _| async { Ok(json(&1)) }, async {
            let _ = ended.await;
        }));
        let token = Bearer { name: "alice".into(), role: Role::User, expires: clock::now_secs() + 60 }.sign(&key);
        let client = Client::new(Settings { token: Some(token), ..Settings::default() });
        for length in [0, 1 << 10, 4 << 20, 16 << 20].repeat(5) {
            let reply = client.send(&address, Method::POST, "/", &[], vec![1; length].into()).await;
            assert_eq!(
                reply.map(|reply| reply.status).map_err(|error| error.to_string()),
                Ok(StatusCode::OK),
                "{length}"
            );
        }
        drop(end);
        server.await.unwrap();
    }
}
