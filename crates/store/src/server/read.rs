//! Reading a chunk, or a part of it.

use super::explain::explain;
use super::request::{authorize, number, query};
use super::routes::{READ, Shared, off_loop, permitted, wait_durable};
use crate::chunk::{Access, CHUNK_MAX_BYTES, ChunkInfo, ChunkName, OpError};
use crate::headers::{CHECKSUM_HEADER, GENERATION_HEADER, checksum};
use crate::wire::ChunkView;
use bytes::Bytes;
use http_body_util::Full;
use hyper::Response;
use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use std::sync::Arc;
use ullage_net::memory::Held;
use ullage_net::{Answer, Peer, Problem, json};

/// An answer on its way, which takes memory until all of it has gone out.
struct Sent {
    bytes: Vec<u8>,
    _memory: Held,
}

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

pub(crate) async fn read(shared: Arc<Shared>, head: Parts, peer: Peer, name: ChunkName) -> Result<Answer, Problem> {
    let capability = authorize(&head, &peer, shared.settings.capability_key.key(), name.as_str(), READ)?;
    let Some(info) = shared.chunks.stat(&name) else {
        // Whoever is told that a chunk is gone may remove what belongs to it.
        wait_durable(&shared).await?;
        return Err(explain(OpError::NotFound(name)));
    };
    permitted(&name, &info, &capability.user, Access::Read)?;
    if query(&head, "stat") == Some("1") {
        wait_durable(&shared).await?;
        return Ok(json(&ChunkView::new(&name, &info)));
    }
    let offset = number(&head, "offset")?.unwrap_or(0);
    let length = number(&head, "length")?.unwrap_or(u64::MAX).min(CHUNK_MAX_BYTES);
    let (bytes, info, memory) = read_part(&shared, &peer, &name, &capability.user, info, (offset, length)).await?;
    let sum = checksum(&bytes);
    let mut answer = Response::new(Full::new(Bytes::from_owner(Sent { bytes, _memory: memory })));
    let headers = answer.headers_mut();
    headers.insert("content-type", HeaderValue::from_static("application/octet-stream"));
    headers.insert(&CHECKSUM_HEADER, HeaderValue::from_str(&sum).unwrap_or_else(|_| HeaderValue::from_static("")));
    headers.insert("x-ullage-size", HeaderValue::from(info.size));
    headers.insert(&GENERATION_HEADER, HeaderValue::from(info.generation));
    Ok(answer)
}

/// Reads a part of a chunk that was `seen` so. It may have grown before its lock was free: no more is read than memory was taken for, and then
/// once more.
async fn read_part(
    shared: &Shared,
    peer: &Peer,
    name: &ChunkName,
    by: &str,
    mut seen: ChunkInfo,
    (offset, wanted): (u64, u64),
) -> Result<(Vec<u8>, ChunkInfo, Held), Problem> {
    loop {
        let length = wanted.min(seen.size);
        let memory = shared.memory.take(&peer.name, length).await?;
        let (chunks, name, by) = (Arc::clone(&shared.chunks), name.clone(), by.to_owned());
        let (read, memory) = off_loop(move || (chunks.read(&name, &by, offset, length), memory)).await?;
        let (bytes, info) = read.map_err(explain)?;
        if length == wanted || info.size <= seen.size {
            return Ok((bytes, info, memory));
        }
        seen = info;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::{ChunkStore, Options};
    use crate::server::StoreSettings;
    use crate::server::accounts::{Accounts, Payment};
    use std::time::Duration;
    use tokio::time::timeout;
    use ullage_journal::Durability;
    use ullage_net::Role;
    use ullage_net::memory::Memory;
    use ullage_voucher::{Client, KeyId, Keyring, Node, Pieces};

    /// Regression: for a chunk that grew behind the look at it, as it did while it was written, much was read and no memory taken.
    #[tokio::test]
    async fn what_has_grown_is_read_when_there_is_memory_for_it() {
        let directory = tempfile::tempdir().unwrap();
        let keys = Arc::new(Keyring::with_root(KeyId(1), [1; 32]));
        let settings = StoreSettings::new(directory.path().to_owned(), Node(1), keys, [2; 32]);
        let options = Options { durability: Durability::Process, ..Options::default() };
        let chunks = ChunkStore::open(directory.path(), Accounts::new(&settings), options).unwrap();
        let (name, alice): (ChunkName, Arc<str>) = ("alice/x".parse().unwrap(), "alice".into());
        let put = |op: u64, data: &[u8]| {
            let payment =
                Payment { client: Client(1), op, payer: Arc::clone(&alice), pieces: Pieces::new(), settled: None };
            chunks.put(&name, "alice", &alice, &alice, None, data, true, &payment).unwrap().info.unwrap()
        };
        let seen = put(1, &[1; 4096]);
        let data = vec![2; 2 << 20];
        put(2, &data);
        let shared = Shared { settings, chunks: Arc::new(chunks), memory: Memory::new(2, 2 << 20) };
        let peer = Peer { name: "alice".into(), role: Role::User };
        let held = shared.memory.take("alice", 2 << 20).await.unwrap();
        let read = read_part(&shared, &peer, &name, "alice", seen.clone(), (0, CHUNK_MAX_BYTES));
        assert!(timeout(Duration::from_secs(1), read).await.is_err(), "there is no memory");
        drop(held);
        let read = async |part| read_part(&shared, &peer, &name, "alice", seen.clone(), part).await.unwrap();
        let (bytes, info, _held) = read((0, CHUNK_MAX_BYTES)).await;
        assert!(bytes == data && info.size == 2 << 20);
        // Nor is more read than was asked for.
        let (bytes, ..) = read((4000, 100)).await;
        assert_eq!(bytes, [2; 100]);
    }
}
