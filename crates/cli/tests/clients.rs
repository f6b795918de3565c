//! What clients of banks and stores are told, and what of them the servers say.

#![allow(missing_docs, clippy::unwrap_used, clippy::format_collect, clippy::format_push_string)]

mod site;

use site::{Plan, Site, ULLAGE, ullage};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

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

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The client said that its operation was cancelled, and the server nothing.
#[test]
fn who_is_turned_away_hears_why_and_the_server_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (pki, other, log) = (at("pki"), at("other"), at("log"));
    ullage(&["pki", "init", &pki]);
    ullage(&["pki", "issue", &pki, "bank0", "--role", "bank", "--host", "127.0.0.1"]);
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
    // Another authority's certificate.
    ullage(&["pki", "init", &other]);
    ullage(&["pki", "issue", &other, "root", "--role", "admin"]);
    fs::copy(format!("{pki}/ca.pem"), format!("{other}/ca.pem")).unwrap();
    let config = at("root.toml");
    let text = format!("user = \"root\"\nbanks = [{}]\ncertificates = \"other\"\npatience_secs = 0\n", said["listen"]);
    fs::write(&config, text).unwrap();
    let (_, err) = fails(&["bank", "quota", "--config", &config]);
    assert!(err.contains("alert"), "{err}");
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !fs::read_to_string(&log).unwrap().contains("turned away") {
        assert!(std::time::Instant::now() < until, "{}", fs::read_to_string(&log).unwrap());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
