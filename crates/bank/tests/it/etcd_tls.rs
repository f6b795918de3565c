//! etcd that takes nobody without a certificate, set up as the manual says, with certificates of the site's own authority.

use crate::member::{Member, lead, port};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use ullage_bank::engine::{Engine, EtcdSettings};
use ullage_net::tls::Files;
use ullage_net::{Role, pki};
use ullage_voucher::Write;

/// The authority, a member, a bank, and others that have nothing to do here.
fn certificates(directory: &Path) {
    let hosts = |hosts: &[&str]| hosts.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>();
    pki::create_authority(directory, 10).unwrap();
    pki::issue(directory, "etcd-1", Role::Etcd, &hosts(&["127.0.0.1", "etcd.ullage"]), 10).unwrap();
    pki::issue(directory, "bank-a", Role::Bank, &hosts(&["127.0.0.1", "bank.ullage"]), 10).unwrap();
    pki::issue(directory, "store-1", Role::Store, &hosts(&["127.0.0.1"]), 10).unwrap();
    pki::issue(directory, "alice", Role::User, &[], 10).unwrap();
}

/// A member as the manual starts it, and its port; nothing if Debian's etcd-server is not installed.
fn etcd(pki: &Path, data: &Path) -> Option<(Member, u16)> {
    let (client, peer) = (port(), port());
    let (urls, peers) = (format!("https://127.0.0.1:{client}"), format!("https://127.0.0.1:{peer}"));
    let file = |name: &str| pki.join(name).into_os_string();
    let member = Member::start(
        Command::new("etcd")
            .args(["--name", "etcd-1", "--unsafe-no-fsync", "--data-dir"])
            .arg(data)
            .args(["--listen-client-urls", &urls, "--advertise-client-urls", &urls])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("etcd-1={peers}")])
            .args(["--client-cert-auth", "--client-cert-allowed-hostname", "bank.ullage"])
            .args(["--peer-client-cert-auth", "--peer-cert-allowed-hostname", "etcd.ullage"])
            .args([
                "--trusted-ca-file".into(),
                file("ca.pem"),
                "--cert-file".into(),
                file("etcd-1.pem"),
                "--key-file".into(),
                file("etcd-1.key"),
                "--peer-trusted-ca-file".into(),
                file("ca.pem"),
                "--peer-cert-file".into(),
                file("etcd-1.pem"),
                "--peer-key-file".into(),
                file("etcd-1.key"),
            ]),
    )?;
    Some((member, client))
}

/// There was no way to reach such an etcd: a bank campaigned in vain for ever, with "transport error".
#[tokio::test(flavor = "multi_thread")]
async fn a_bank_leads_on_an_etcd_that_takes_only_certificates_of_banks() {
    let directory = tempfile::tempdir().unwrap();
    let pki = directory.path();
    certificates(pki);
    let Some((_member, port)) = etcd(pki, &pki.join("data")) else { return };
    let settings = |scheme: &str, name: &str| {
        let url = format!("{scheme}://127.0.0.1:{port}/t");
        EtcdSettings::parse(&url, "first:1", &Files::in_directory(pki, name)).unwrap()
    };
    let run = async {
        let bank = settings("etcds", "bank-a");
        let (first, rows) = lead(&bank).await;
        assert!(rows.is_empty());
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let write = Write { key: [1][..].into(), value: Some([2][..].into()) };
        first.append(&[write], Box::new(move |result| drop(sender.send(result))));
        receiver.await.unwrap().unwrap();
        assert_eq!(bank.leader(0).await.unwrap().as_deref(), Some("first:1"));
        // Users and stores have certificates of the same authority.
        for stranger in [settings("etcds", "alice"), settings("etcds", "store-1"), settings("etcd", "bank-a")] {
            let error = stranger.leader(0).await.unwrap_err().to_string();
            assert!(error.starts_with("etcd: "), "{error}");
        }
        drop(first);
        let (_, rows) = lead(&bank).await;
        assert_eq!(rows.len(), 1);
    };
    tokio::time::timeout(Duration::from_secs(60), run).await.unwrap();
}

/// A member that cannot show a certificate of the authority is none, whatever it listens on.
#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_of_another_authority_is_not_believed() {
    let directory = tempfile::tempdir().unwrap();
    let (own, other) = (directory.path().join("own"), directory.path().join("other"));
    for pki in [&own, &other] {
        std::fs::create_dir(pki).unwrap();
        certificates(pki);
    }
    let Some((_member, port)) = etcd(&other, &directory.path().join("data")) else { return };
    let url = format!("etcds://127.0.0.1:{port}/t");
    let settings = |pki| EtcdSettings::parse(&url, "first:1", &Files::in_directory(pki, "bank-a")).unwrap();
    let run = async {
        lead(&settings(&other)).await;
        let error = settings(&own).leader(0).await.unwrap_err().to_string();
        println!("{error}");
        assert!(error.contains("certificate"), "{error}");
    };
    tokio::time::timeout(Duration::from_secs(60), run).await.unwrap();
}
