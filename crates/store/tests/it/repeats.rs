//! What a request is answered that was carried out before.

use crate::cluster::{Cluster, Plan, http};
use hyper::Method;
use ullage_bank::capability::{Capability, Rights};
use ullage_bank::identity;
use ullage_bank::wire::ClientBatch;
use ullage_net::clock;
use ullage_store::headers::{CAPABILITY_HEADER, CHECKSUM_HEADER, CLIENT_HEADER, OP_HEADER, VOUCHER_HEADER, checksum};
use ullage_store::wire::WriteAnswer;
use ullage_voucher::message::{BankToClient, ClientToBank, StoreToClient};
use ullage_voucher::{ChargeBy, Op, encode_header};

/// Regression: who put a chunk of another user's and did not hear of it was told, when asking again, that the chunk is not theirs to change.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_put_for_another_is_answered_alike_when_it_is_repeated() {
    let plan = Plan { stores: 1, store: |settings| settings.charge_by = ChargeBy::Writer, ..Plan::default() };
    let mut cluster = Cluster::start(plan).await;
    for user in ["alice", "bob"] {
        cluster.user(user, 1 << 30).await;
    }
    let (client, user) = (identity::client("bob", 1), identity::user("bob"));
    let message = ClientToBank::Request { user, op: Op(1), want: 8192, audience: None };
    let batch = ClientBatch { client, messages: vec![message], ..ClientBatch::default() };
    let answers = cluster.bank_client("bob").messages(&batch).await.unwrap();
    let BankToClient::Granted { pieces, .. } = &answers.messages[0] else { panic!("{answers:?}") };
    let (owner, prefix, expires) = ("alice".into(), "alice/".into(), clock::now_secs() + 600);
    let capability = Capability { user: "bob".into(), owner, prefix, rights: Rights::ALL, expires };
    let data = [7; 4096];
    let headers = [
        (&CAPABILITY_HEADER, capability.sign(&cluster.capability_key)),
        (&CLIENT_HEADER, format!("{:016x}", client.0)),
        (&OP_HEADER, "7".to_owned()),
        (&CHECKSUM_HEADER, checksum(&data)),
        (&VOUCHER_HEADER, encode_header(pieces)),
    ];
    let bob = http(&cluster.certificates(), "bob");
    for time in ["first", "second"] {
        let put =
            bob.send(&cluster.stores[0].address, Method::PUT, "/v1/chunks/alice/new", &headers, data.to_vec().into());
        let reply = put.await.unwrap();
        assert_eq!(reply.status.as_u16(), 200, "{time}: {:?}", reply.body);
        let outcomes = serde_json::from_slice::<WriteAnswer>(&reply.body).unwrap().outcomes;
        assert!(matches!(outcomes[..], [StoreToClient::Spent { used: 8192, .. }]), "{time}: {outcomes:?}");
    }
    cluster.stop().await;
}
