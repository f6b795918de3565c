//! What clients of banks and stores are told, and what of them the servers say.

use crate::site::{Plan, Site, ULLAGE, ullage};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use ullage_bank::client::BankClient;
use ullage_bank::identity;
use ullage_bank::wire::ClientBatch;
use ullage_store::client::ClientConfig;
use ullage_voucher::Op;
use ullage_voucher::message::ClientToBank;

fn fails(arguments: &[&str]) -> (String, String) {
    let Output { status, stdout, stderr } =
        Command::new(ULLAGE).args(arguments).env("ULLAGE_LOG", "error").output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (text(stdout), text(stderr));
    assert_eq!(status.code(), Some(1), "{stdout}{stderr}");
    (stdout, stderr)
}

/// Only the failure was told, without its name; those before and after it were removed in silence.
#[test]
fn rm_tells_what_became_of_each_name() {
    let site = Site::start(&Plan { banks: 1, stores: 1, epoch_ms: 600_000, engine: None });
    site.user("alice", 1 << 30);
    let (file, config) = (site.directory.path().join("file"), site.config("alice"));
    let (file, config) = (file.to_str().unwrap(), config.to_str().unwrap());
    fs::write(file, b"data").unwrap();
    for name in ["a", "c\n", "d"] {
        ullage(&["put", file, name, "--config", config]);
    }
    let (out, err) = fails(&["rm", "a", "b", "c\n", "--config", config]);
    assert_eq!(out, "a: removed\nc\\n: removed\n");
    assert!(err.starts_with("ullage: b: ") && err.lines().count() == 1, "{err}");
    let (out, _) = fails(&["rm", "--json", "b", "d", "--config", config]);
    let said: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&said["removed"][0]["name"], &said["failed"][0]["name"]), (&"d".into(), &"b".into()), "{said}");
    assert_eq!(ullage(&["ls", "--config", config]), "");
}

/// Regression: a store with a lease is not given up, and the command ended as if it were.
#[test]
fn a_store_in_use_is_not_said_to_be_given_up() {
    let mut site = Site::start(&Plan { banks: 1, stores: 2, epoch_ms: 600_000, engine: None });
    let root = site.config("root");
    let exclude = ["bank", "exclude", "2", "--config", root.to_str().unwrap()];
    let until = Instant::now() + Duration::from_secs(30);
    let mut told = String::new();
    // It may not have come yet.
    while !told.contains("is not given up") {
        assert!(Instant::now() < until, "{told}");
        told = fails(&exclude).1;
    }
    assert!(told.contains("--lease-ms"), "{told}");
    site.stores[1].kill();
    while !Command::new(ULLAGE).args(exclude).stderr(Stdio::null()).output().unwrap().status.success() {
        assert!(Instant::now() < until, "its lease does not end");
        std::thread::sleep(Duration::from_millis(100));
    }
    let stores = site.admin(&["status"])["banks"][&site.banks[0].address]["shards"][0]["stores"].clone();
    let given_up = |node: u64| stores.as_array().unwrap().iter().any(|s| s["node"] == node && s["given_up"] == true);
    assert!(given_up(2) && !given_up(1), "{stores}");
}

/// Regression: history, what is given up and the answers of `pki` said nothing of their form, as all others do; and of a certificate it was
/// not told until when it is good.
#[test]
fn what_is_printed_as_json_has_a_version_and_a_certificate_its_end() {
    let site = Site::start(&Plan { banks: 1, stores: 1, epoch_ms: 600_000, engine: None });
    site.user("alice", 1 << 20);
    let (root, pki) = (site.config("root"), site.directory.path().join("other").display().to_string());
    let root = root.to_str().unwrap();
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let history = json(&ullage(&["bank", "history", "alice", "--json", "--config", root]));
    assert!(history["version"] == 1 && history["entries"].is_array(), "{history}");
    // It may not have come yet.
    let until = Instant::now() + Duration::from_secs(30);
    let said = loop {
        let (said, told) = fails(&["bank", "exclude", "1", "--config", root]);
        if told.contains("is not given up") {
            break json(&said);
        }
        assert!(Instant::now() < until, "{told}");
    };
    assert!(said["version"] == 1 && said["shards"].is_array(), "{said}");
    assert_eq!(json(&ullage(&["pki", "init", &pki, "--json"]))["version"], 1);
    ullage(&["pki", "issue", &pki, "bob", "--role", "user", "--days", "7"]);
    let file = format!("{pki}/bob.pem");
    let shown = json(&ullage(&["pki", "show", &file, "--json"]));
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let left = shown["until_secs"].as_u64().unwrap() - now;
    assert!((7 * 86_400 - 60..=7 * 86_400).contains(&left), "{shown}");
    assert!(shown["from_secs"].as_u64().unwrap() < now && shown["ended"] == false && shown["version"] == 1, "{shown}");
    assert!(ullage(&["pki", "show", &file]).starts_with("bob (user), good until "));
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A bank, and what it says.
struct Told {
    _bank: Killed,
    address: String,
    log: String,
}

impl Told {
    fn start(directory: &Path, days: &str) -> Self {
        let at = |name: &str| directory.join(name).to_str().unwrap().to_owned();
        let (pki, log) = (at("pki"), at("log"));
        ullage(&["pki", "init", &pki]);
        ullage(&["pki", "issue", &pki, "bank0", "--role", "bank", "--host", "127.0.0.1", "--days", days]);
        let arguments = ["bank", "serve", "--json", "--listen", "127.0.0.1:0", "--name", "bank0", "--pki", &pki];
        let mut bank = Command::new(ULLAGE)
            .args(arguments.into_iter().chain(["--directory", &at("bank")]))
            .env("ULLAGE_LOG", "warn")
            .stdout(Stdio::piped())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .map(Killed)
            .unwrap();
        let mut line = String::new();
        BufReader::new(bank.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: serde_json::Value = serde_json::from_str(&line).unwrap();
        Self { _bank: bank, address: said["listen"].as_str().unwrap().to_owned(), log }
    }

    #[track_caller]
    fn says(&self, what: &str) {
        let until = Instant::now() + Duration::from_secs(20);
        while !fs::read_to_string(&self.log).unwrap().contains(what) {
            assert!(Instant::now() < until, "{}", fs::read_to_string(&self.log).unwrap());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The client said that its operation was cancelled, and the server nothing.
#[test]
fn who_is_turned_away_hears_why_and_the_server_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let bank = Told::start(directory.path(), "365");
    // Another authority's certificate.
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let other = at("other");
    ullage(&["pki", "init", &other]);
    ullage(&["pki", "issue", &other, "root", "--role", "admin"]);
    fs::copy(at("pki/ca.pem"), format!("{other}/ca.pem")).unwrap();
    let config = at("root.toml");
    let text = format!("user = \"root\"\nbanks = [{:?}]\ncertificates = \"other\"\npatience_secs = 0\n", bank.address);
    fs::write(&config, text).unwrap();
    let (_, err) = fails(&["bank", "quota", "--config", &config]);
    assert!(err.contains("alert"), "{err}");
    bank.says("turned away");
    assert!(!fs::read_to_string(&bank.log).unwrap().contains("good until"));
}

/// All its users were refused from one moment to the next.
#[test]
fn a_server_says_beforehand_that_its_certificate_ends() {
    let directory = tempfile::tempdir().unwrap();
    Told::start(directory.path(), "7").says("bank0.pem is good until");
}

/// It was told that this is for administrators.
#[test]
fn who_is_no_administrator_sees_the_own_account() {
    let site = Site::start(&Plan { banks: 1, stores: 1, epoch_ms: 600_000, engine: None });
    for (user, quota) in [("alice", 1 << 30), ("bob", 1 << 20)] {
        site.user(user, quota);
    }
    let seen = |user: &str| {
        let said = ullage(&["bank", "quota", "--json", "--config", site.config(user).to_str().unwrap()]);
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        let accounts = said["accounts"].as_array().unwrap().iter();
        accounts.map(|account| account["user"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(seen("bob"), ["bob"]);
    assert_eq!(seen("root"), ["alice", "bob"]);
}

/// One user made 74,000 requests for vouchers a second, and the bank grew by 60 MB with each.
#[test]
fn a_bank_bounds_what_one_user_asks_for_unless_told_otherwise() {
    let site = Site::start(&Plan { banks: 1, stores: 1, epoch_ms: 600_000, engine: None });
    site.user("alice", 1 << 30);
    let http = ClientConfig::read(&site.config("alice")).unwrap().http().unwrap();
    let user = identity::user("alice");
    let bank = BankClient::new(http, vec![site.banks[0].address.clone()], Duration::ZERO);
    let batches = 8;
    let ask = |number: u32| {
        let request = |op| ClientToBank::Request { user, op: Op(op), want: 1, audience: None };
        let client = identity::client("alice", number);
        let batch = ClientBatch { client, messages: (0..1000).map(request).collect(), ..ClientBatch::default() };
        let bank = bank.clone();
        async move { bank.messages(&batch).await }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let refused = runtime.block_on(async {
        let asked: Vec<_> = (0..batches).map(|number| tokio::spawn(ask(number))).collect();
        let mut refused = 0;
        for answer in asked {
            refused += u32::from(answer.await.unwrap().is_err_and(|error| error.code() == Some("too_many")));
        }
        refused
    });
    assert!((1..batches - 1).contains(&refused), "{refused} of {batches} thousands were refused");
}

/// Regression: it listened and refused everything, and its log said that the bank asks for a new life, and nothing after that.
#[test]
fn a_second_store_of_one_number_says_what_it_waits_for() {
    let site = Site::start(&Plan { banks: 1, stores: 1, epoch_ms: 600_000, engine: None });
    let (pki, place) = (site.directory.path().join("pki"), site.directory.path().join("other"));
    let (pki, place) = (pki.to_str().unwrap(), place.to_str().unwrap());
    ullage(&["pki", "issue", pki, "other-1", "--role", "store", "--host", "127.0.0.1"]);
    let store = ["store", place, "--pki", pki, "--name", "other-1", "--listen", "127.0.0.1:0", "--renew-ms", "300"];
    let mut store = Command::new(ULLAGE)
        .args(store)
        .args(["--bank", &site.banks[0].address])
        .env("ULLAGE_LOG", "warn")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(store.stderr.take().unwrap()).lines().map_while(Result::ok);
    let (sender, said) = std::sync::mpsc::channel();
    std::thread::spawn(move || lines.filter(|line| line.contains("wait")).for_each(|line| drop(sender.send(line))));
    let first = said.recv_timeout(Duration::from_secs(30));
    let again = said.recv_timeout(Duration::from_secs(1));
    store.kill().unwrap();
    store.wait().unwrap();
    assert!(first.unwrap().contains("another store of that number"));
    assert!(again.is_err(), "once: {again:?}");
}
