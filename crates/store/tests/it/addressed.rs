//! A store that takes only vouchers addressed to it, among others that take all.

use crate::cluster::{Cluster, Plan, quiet};
use std::time::Duration;
use ullage_store::client::{ClientConfig, Files};
use ullage_voucher::Node;

/// Banks addressed nothing: such a store could take no write, and each third stripe of a file failed.
#[tokio::test(flavor = "multi_thread")]
async fn a_put_over_three_stores_of_which_one_takes_only_what_is_addressed_to_it() {
    let run = async {
        let plan =
            Plan { stores: 3, epoch_ms: 500, store: |s| s.only_addressed = s.node == Node(2), ..Plan::default() };
        let mut cluster = Cluster::start(plan).await;
        // Little more than the file takes.
        cluster.user("alice", 14 << 20).await;
        let here = tempfile::tempdir().unwrap();
        let data: Vec<u8> = (0..12u32 << 20).map(|i| (i >> 8) as u8).collect();
        std::fs::write(here.path().join("in"), &data).unwrap();
        let config = |addressed: bool| -> ClientConfig {
            let mut text = format!(
                "user = \"alice\"\nbanks = [{:?}]\ncertificates = {:?}\n",
                cluster.bank.address,
                cluster.certificates()
            );
            for (index, store) in cluster.stores.iter().enumerate() {
                text += &format!("[[stores]]\nnode = {}\naddress = {:?}\n", index + 1, store.address);
                text += &format!("addressed = {}\n", addressed && index == 1);
            }
            toml::from_str(&text).unwrap()
        };
        let stranger = config(false).files(12 << 20).unwrap();
        let error = stranger.put(&here.path().join("in"), "a", 1 << 20, quiet()).await.unwrap_err();
        let error = with_causes(&error);
        assert!(error.contains("addressed"), "{error}");
        stranger.finish().await;
        drop(stranger);
        cluster.reconciled("alice").await;
        let files = config(true).files(Files::expected_charge(12 << 20, 1 << 20)).unwrap();
        let put = files.put(&here.path().join("in"), "a", 1 << 20, quiet()).await.unwrap();
        assert_eq!(cluster.used("alice"), put.allocated_bytes);
        assert!(cluster.meters.iter().all(|meter| meter.used("alice") > 3 << 20), "each has its part");
        files.get("a", &here.path().join("out"), quiet()).await.unwrap();
        assert!(std::fs::read(here.path().join("out")).unwrap() == data);
        files.remove("a").await.unwrap();
        files.finish().await;
        assert_eq!(cluster.reconciled("alice").await.settled_bytes, 0);
        cluster.stop().await;
    };
    tokio::time::timeout(Duration::from_secs(100), run).await.unwrap();
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}
