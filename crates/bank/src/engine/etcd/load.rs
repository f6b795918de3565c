//! Reading a shard's rows back: the newest snapshot, and all commits since. Nothing is taken to fit into one answer.

use super::super::EngineError;
use super::failed;
use crate::rows::{Rows, apply, decode_rows, decode_writes};
use etcd_client::{Client, GetOptions, GetResponse, KvClient, SortOrder, SortTarget};
use std::collections::BTreeSet;

/// Values in one answer, and what they may take together: gRPC's own bound is 4 MiB.
const PAGE: i64 = 16;
const ANSWER_MAX_BYTES: usize = 64 << 20;

/// What there is of a shard.
pub(super) struct Loaded {
    /// The rows as the last leader left them.
    pub(super) rows: Rows,
    /// The number of the next commit.
    pub(super) next: u64,
    /// How many commits there are since the last snapshot, and how many bytes in them.
    pub(super) commits: u64,
    pub(super) bytes: u64,
}

/// All of it.
pub(super) async fn load(client: &Client, prefix: &str) -> Result<Loaded, EngineError> {
    let mut kv = client.kv_client().max_decoding_message_size(ANSWER_MAX_BYTES);
    let base = kv.get(format!("{prefix}base"), None).await.map_err(failed)?;
    let base: u64 =
        base.kvs().first().and_then(|pair| pair.value_str().ok()).and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut rows = decode_rows(&joined(&mut kv, &format!("{prefix}snapshot/{base:020}/")).await?)?;
    let begun = beginnings(&mut kv, prefix).await?;
    let (mut next, mut bytes) = (base, 0);
    loop {
        let page = page(&mut kv, format!("{prefix}log/{next:020}"), format!("{prefix}log/~")).await?;
        if page.kvs().is_empty() {
            return Ok(Loaded { rows, next, commits: next - base, bytes });
        }
        for pair in page.kvs() {
            let expected = format!("{prefix}log/{next:020}");
            if pair.key() != expected.as_bytes() {
                return Err(EngineError::Etcd(format!("commit {next} of the log is missing")));
            }
            if begun.contains(&next) {
                let mut record = joined(&mut kv, &format!("{prefix}part/{next:020}/")).await?;
                record.extend_from_slice(pair.value());
                bytes += record.len() as u64;
                apply(&mut rows, &decode_writes(&record)?);
            } else {
                bytes += pair.value().len() as u64;
                apply(&mut rows, &decode_writes(pair.value())?);
            }
            next += 1;
        }
    }
}

/// As many pairs as one answer holds, by key.
async fn page(kv: &mut KvClient, from: String, end: String) -> Result<GetResponse, EngineError> {
    let options = GetOptions::new().with_range(end).with_limit(PAGE).with_sort(SortTarget::Key, SortOrder::Ascend);
    kv.get(from, Some(options)).await.map_err(failed)
}

/// All values below a prefix, one after the other.
async fn joined(kv: &mut KvClient, below: &str) -> Result<Vec<u8>, EngineError> {
    let (mut from, mut bytes) = (below.to_owned(), Vec::new());
    loop {
        let page = page(kv, from, format!("{below}~")).await?;
        for pair in page.kvs() {
            bytes.extend_from_slice(pair.value());
        }
        let Some(last) = page.kvs().last() else { return Ok(bytes) };
        from = format!("{}\0", last.key_str().map_err(failed)?);
    }
}

/// The commits that have their beginning apart.
async fn beginnings(kv: &mut KvClient, prefix: &str) -> Result<BTreeSet<u64>, EngineError> {
    let below = format!("{prefix}part/");
    let keys = kv.get(below.as_str(), Some(GetOptions::new().with_prefix().with_keys_only())).await.map_err(failed)?;
    let number = |key: &str| key.strip_prefix(&below)?.split('/').next()?.parse().ok();
    Ok(keys.kvs().iter().filter_map(|pair| number(pair.key_str().ok()?)).collect())
}
