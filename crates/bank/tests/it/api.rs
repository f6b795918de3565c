//! The description of the API agrees with the API.

use crate::common::{self, TOKEN_KEY, embedded, http, settings};
use bytes::Bytes;
use hyper::Method;
use std::time::Duration;
use ullage_bank::server::OPENAPI;
use ullage_bank::wire::{AccountChange, AccountView, ClientAnswers, ClientBatch, History};
use ullage_bank::{Bank, identity};
use ullage_net::client::{Client, Settings};
use ullage_net::token::Bearer;
use ullage_net::{Role, clock};
use ullage_voucher::Op;
use ullage_voucher::message::{BankToClient, ClientToBank};

async fn bank(directory: &std::path::Path) -> String {
    let bank = Bank::bind("127.0.0.1:0", settings(embedded(directory))).await.unwrap();
    let address = bank.address().to_string();
    tokio::spawn(bank.serve(std::future::pending()));
    address
}

fn client(name: &str, role: Role, key: [u8; 32], secs: i64) -> Client {
    let expires = clock::now_secs().saturating_add_signed(secs);
    let token = Bearer { name: name.into(), role, expires }.sign(&key);
    Client::new(Settings { token: Some(token), ..Settings::default() })
}

/// What a request is answered: status and text.
async fn told(client: &Client, address: &str, method: Method, path: &str, body: &'static str) -> (u16, String) {
    let reply = client.send(address, method, path, &[], Bytes::from(body)).await.unwrap();
    (reply.status.as_u16(), String::from_utf8_lossy(&reply.body).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_described_exists_and_every_schema_named_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let address = bank(directory.path()).await;
    let admin = http("root", Role::Admin);
    let document: serde_json::Value = serde_json::from_str(OPENAPI).unwrap();
    let served = admin.send(&address, Method::GET, "/v1/openapi.json", &[], Bytes::new()).await.unwrap();
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&served.body).unwrap(), document);
    let mut operations = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys().filter(|key| *key != "parameters") {
            let method: Method = method.to_uppercase().parse().unwrap();
            let path = path.replace("{name}", "alice").replace("{node}", "1");
            let reply = admin.send(&address, method.clone(), &path, &[], Bytes::from("{}")).await.unwrap();
            let text = String::from_utf8_lossy(&reply.body).into_owned();
            assert!(!text.contains("no_route"), "{method} {path}: {text}");
            operations += 1;
        }
    }
    assert_eq!(operations, 11);
    for (position, _) in OPENAPI.match_indices("#/components/schemas/") {
        let name = OPENAPI[position + "#/components/schemas/".len()..].split('"').next().unwrap();
        assert!(document["components"]["schemas"].get(name).is_some(), "{name}");
    }
}

/// Regression: half of all users' and clients' numbers are above what "int64" says, and a client made from the description took none of those.
#[test]
fn numbers_are_described_as_large_as_they_are() {
    fn look(value: &serde_json::Value, count: &mut usize) {
        if value["format"] == "int64" {
            assert!(value.get("minimum").is_none(), "what is never below zero goes up to 2^64: {value}");
        }
        *count += usize::from(value["format"] == "uint64");
        for part in value.as_object().into_iter().flat_map(|fields| fields.values()) {
            look(part, count);
        }
        for part in value.as_array().into_iter().flatten() {
            look(part, count);
        }
    }
    let mut count = 0;
    look(&serde_json::from_str(OPENAPI).unwrap(), &mut count);
    assert_eq!(count, 30);
}

/// Regression: the answer was the account, unchanged, and 200.
#[tokio::test(flavor = "multi_thread")]
async fn a_misspelt_change_of_an_account_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let address = bank(directory.path()).await;
    let admin = http("root", Role::Admin);
    let put = async |body| told(&admin, &address, Method::PUT, "/v1/users/alice", body).await;
    assert_eq!(put(r#"{"quota_bytes":5}"#).await.0, 200);
    for misspelt in [r#"{"quota":7}"#, r#"{"quota_bytes":7,"block":true}"#] {
        let (status, body) = put(misspelt).await;
        assert!(status == 400 && body.contains("unknown field"), "{status} {body}");
    }
    assert!(put("{}").await.1.contains(r#""quota_bytes":5"#));
}

/// Regression: a history without entries, as of one who did nothing.
#[tokio::test(flavor = "multi_thread")]
async fn who_is_unknown_has_no_history() {
    let directory = tempfile::tempdir().unwrap();
    let address = bank(directory.path()).await;
    let admin = http("root", Role::Admin);
    let send = async |method, path, body| told(&admin, &address, method, path, body).await;
    let (status, body) = send(Method::GET, "/v1/users/alice/history", "").await;
    assert!(status == 404 && body.contains("unknown_user"), "{status} {body}");
    send(Method::PUT, "/v1/users/alice", r#"{"quota_bytes":5}"#).await;
    send(Method::DELETE, "/v1/users/alice", "").await;
    assert_eq!(send(Method::GET, "/v1/users/alice/history", "").await.0, 200);
}

/// Regression: it stayed, with a quota of 0, in all lists.
#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_is_removed_is_gone_with_what_the_user_has() {
    let directory = tempfile::tempdir().unwrap();
    let address = bank(directory.path()).await;
    let admin = common::client("root", Role::Admin, &[&address], Duration::ZERO);
    let change = AccountChange { quota_bytes: Some(1 << 20), blocked: None };
    for user in ["alice", "alcie"] {
        admin.change(user, &change).await.unwrap();
    }
    let user = identity::user("alice");
    let messages = vec![ClientToBank::Request { user, op: Op(1), want: 1000, audience: None }];
    let batch = ClientBatch { client: identity::client("alice", 1), messages, ..Default::default() };
    let alice = http("alice", Role::User);
    let _: ClientAnswers = alice.json(&address, Method::POST, "/v1/messages", Some(&batch)).await.unwrap();
    for user in ["alice", "alcie"] {
        assert_eq!(admin.remove(user).await.unwrap().quota_bytes, 1 << 20, "as it was");
    }
    let left = admin.accounts().await.unwrap();
    assert_eq!(
        left.iter().map(|a| (a.user.as_str(), a.removed, a.issued_bytes)).collect::<Vec<_>>(),
        [("alice", true, 1000)]
    );
    assert_eq!(admin.remove("alcie").await.unwrap_err().code(), Some("unknown_user"));
    assert!(!admin.change("alcie", &change).await.unwrap().removed);
}

/// Regression: who asked again since an answer was lost was told to have been given twice as much.
#[tokio::test(flavor = "multi_thread")]
async fn a_repetition_is_not_counted_in_the_history() {
    let directory = tempfile::tempdir().unwrap();
    let address = bank(directory.path()).await;
    let admin = http("root", Role::Admin);
    let change = AccountChange { quota_bytes: Some(1 << 20), blocked: None };
    let _: AccountView = admin.json(&address, Method::PUT, "/v1/users/alice", Some(&change)).await.unwrap();
    let alice = http("alice", Role::User);
    let user = identity::user("alice");
    let send = async |message: &ClientToBank| {
        let batch =
            ClientBatch { client: identity::client("alice", 1), messages: vec![message.clone()], ..Default::default() };
        let answers: ClientAnswers = alice.json(&address, Method::POST, "/v1/messages", Some(&batch)).await.unwrap();
        answers.messages.into_iter().next().unwrap()
    };
    let request = ClientToBank::Request { user, op: Op(1), want: 1000, audience: None };
    let answer = send(&request).await;
    let BankToClient::Granted { pieces, .. } = answer.clone() else { panic!("{answer:?}") };
    let back = ClientToBank::Return { user, op: Op(2), pieces };
    let returned = send(&back).await;
    for _ in 0..3 {
        assert_eq!(send(&request).await, answer);
        assert_eq!(send(&back).await, returned);
    }
    let history: History = alice.json(&address, Method::GET, "/v1/users/alice/history", None::<&()>).await.unwrap();
    let [entry] = &history.entries[..] else { panic!("{history:?}") };
    assert_eq!((entry.grants, entry.granted_bytes, entry.returned_bytes), (1, 1000, 1000));
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_let_in_whom_they_name_and_nobody_else() {
    let directory = tempfile::tempdir().unwrap();
    let address = bank(directory.path()).await;
    let status = async |client: &Client| {
        client.send(&address, Method::GET, "/v1/users", &[], Bytes::new()).await.unwrap().status.as_u16()
    };
    assert_eq!(status(&client("root", Role::Admin, TOKEN_KEY, 100)).await, 200);
    assert_eq!(status(&client("root", Role::User, TOKEN_KEY, 100)).await, 403);
    assert_eq!(status(&client("root", Role::Admin, TOKEN_KEY, -100)).await, 401);
    assert_eq!(status(&client("root", Role::Admin, [6; 32], 100)).await, 401);
    assert_eq!(status(&Client::new(Settings::default())).await, 401);
}
