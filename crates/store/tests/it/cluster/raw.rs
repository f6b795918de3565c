//! Requests to a store as they are on the wire.

use super::Cluster;
use hyper::Method;
use std::sync::Arc;
use ullage_bank::capability::{Capability, Rights};
use ullage_bank::identity;
use ullage_bank::wire::ClientBatch;
use ullage_net::client::Client;
use ullage_net::clock;
use ullage_store::headers::{CAPABILITY_HEADER, CHECKSUM_HEADER, CLIENT_HEADER, OP_HEADER, VOUCHER_HEADER, checksum};
use ullage_store::wire::WriteAnswer;
use ullage_voucher::message::{BankToClient, ClientToBank, StoreToClient};
use ullage_voucher::{Op, encode_header};

/// How many vouchers there are.
const PUTS_MAX: u64 = 8000;

/// Alice's client, at the wire of the one store.
pub struct Raw {
    http: Arc<Client>,
    pub address: String,
    pub capability: String,
    /// One for each request that puts, by its number.
    pub vouchers: Vec<String>,
}

impl Raw {
    pub async fn new(cluster: &Cluster) -> Self {
        cluster.user("alice", 1 << 30).await;
        let rights = Rights::ALL;
        let (user, owner, prefix) = ("alice".into(), "alice".into(), "alice/".into());
        let capability = Capability { user, owner, prefix, rights, expires: clock::now_secs() + 600 };
        let message =
            ClientToBank::Request { user: identity::user("alice"), op: Op(1), want: 64 << 20, audience: None };
        let client = identity::client("alice", 1);
        let batch = ClientBatch { client, messages: vec![message], ..ClientBatch::default() };
        let answers = cluster.bank_client("alice").messages(&batch).await.unwrap();
        let BankToClient::Granted { pieces, .. } = &answers.messages[0] else { panic!("{answers:?}") };
        let mut rest = pieces[0];
        let vouchers = (0..PUTS_MAX).map(|_| encode_header(&[rest.split(8192).unwrap()])).collect();
        Self {
            http: super::http(&cluster.certificates(), "alice"),
            address: cluster.stores[0].address.clone(),
            capability: capability.sign(&cluster.capability_key),
            vouchers,
        }
    }

    pub async fn send(&self, op: u64, method: Method, path: &str, data: &[u8]) -> Result<Vec<StoreToClient>, u16> {
        let headers = [
            (&CAPABILITY_HEADER, self.capability.clone()),
            (&CLIENT_HEADER, format!("{:016x}", identity::client("alice", 1).0)),
            (&OP_HEADER, op.to_string()),
            (&CHECKSUM_HEADER, checksum(data)),
            (&VOUCHER_HEADER, self.vouchers.get(op as usize).cloned().unwrap_or_default()),
        ];
        let reply = self.http.send(&self.address, method, path, &headers, data.to_vec().into()).await.unwrap();
        let outcomes = |body| serde_json::from_slice::<WriteAnswer>(body).unwrap().outcomes;
        if reply.status.is_success() { Ok(outcomes(&reply.body)) } else { Err(reply.status.as_u16()) }
    }

    pub async fn put(&self, op: u64, name: &str) -> Result<Vec<StoreToClient>, u16> {
        self.send(op, Method::PUT, &format!("/v1/chunks/alice/{name}"), &[7; 4096]).await
    }

    pub async fn delete(&self, op: u64, name: &str) -> Result<Vec<StoreToClient>, u16> {
        self.send(op, Method::DELETE, &format!("/v1/chunks/alice/{name}"), &[]).await
    }

    pub async fn cancel(&self, op: u64) -> Result<Vec<StoreToClient>, u16> {
        self.send(op, Method::POST, "/v1/cancel", &[]).await
    }
}
