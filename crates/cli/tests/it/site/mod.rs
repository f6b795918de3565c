//! A site of real processes on loopback: the one binary, with certificates, that can be killed and started again.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use ullage_store::client::{ClientConfig, Files};

pub const ULLAGE: &str = env!("CARGO_BIN_EXE_ullage");

/// Whether the documented full size is wanted instead of the small one.
pub fn full() -> bool {
    std::env::var_os("ULLAGE_FULL").is_some()
}

/// A process that dies with the test.
pub struct Process {
    child: Child,
    command: Vec<String>,
    pub address: String,
}

impl Process {
    /// Starts a server of this binary, which says on its first line where it listens.
    pub fn start(command: &[String]) -> Self {
        let mut child = Command::new(ULLAGE)
            .args(command)
            .env("ULLAGE_LOG", "error")
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: serde_json::Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{command:?}: {line:?}"));
        let address = said["listen"].as_str().unwrap().to_owned();
        Self { child, command: command.to_vec(), address }
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Again, on the same address.
    pub fn restart(&mut self) {
        let mut command = self.command.clone();
        let position = command.iter().position(|word| word == "--listen").unwrap();
        command[position + 1].clone_from(&self.address);
        *self = Self::start(&command);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command of the binary to its end.
pub fn ullage(arguments: &[&str]) -> String {
    let output = Command::new(ULLAGE).args(arguments).env("ULLAGE_LOG", "error").output().unwrap();
    assert!(
        output.status.success(),
        "ullage {arguments:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub struct Plan {
    pub banks: u32,
    pub stores: u32,
    pub epoch_ms: u64,
    /// `etcd://...`, or the embedded engine.
    pub engine: Option<String>,
}

pub struct Site {
    pub directory: TempDir,
    pub banks: Vec<Process>,
    pub stores: Vec<Process>,
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

impl Site {
    pub fn start(plan: &Plan) -> Self {
        let directory = TempDir::new().unwrap();
        let root = directory.path();
        let pki = root.join("pki");
        let pki = pki.to_str().unwrap();
        ullage(&["pki", "init", pki]);
        ullage(&["pki", "issue", pki, "root", "--role", "admin"]);
        // Where there are several banks, each comes to lead two.
        let shards = if plan.banks > 1 { 2 * plan.banks } else { 1 };
        let mut banks = Vec::new();
        for number in 0..plan.banks {
            let name = format!("bank{number}");
            ullage(&["pki", "issue", pki, &name, "--role", "bank", "--host", "127.0.0.1"]);
            let mut command = words(&format!(
                "bank serve --json --pki {pki} --name {name} --listen 127.0.0.1:0 --shards {shards} --epoch-ms {0} --shortest-epoch-ms {0} --lease-ms 3000",
                plan.epoch_ms
            ));
            match &plan.engine {
                Some(url) => command.extend(["--engine".to_owned(), url.clone()]),
                None => command.extend(words(&format!("--directory {}/{name}", root.display()))),
            }
            banks.push(Process::start(&command));
        }
        let mut site = Self { directory, banks, stores: Vec::new() };
        let addresses: String = site.banks.iter().map(|bank| format!(" --bank {}", bank.address)).collect();
        for node in 1..=plan.stores {
            let name = format!("store-{node}");
            ullage(&["pki", "issue", pki, &name, "--role", "store", "--host", "127.0.0.1"]);
            let place = site.store_directory(node);
            let command = words(&format!(
                "store {} --json --pki {pki} --name {name} --listen 127.0.0.1:0 --shards {shards} --renew-ms 300{addresses}",
                place.display()
            ));
            site.stores.push(Process::start(&command));
        }
        site.write_config("root");
        site
    }

    pub fn store_directory(&self, node: u32) -> PathBuf {
        self.directory.path().join(format!("store{node}"))
    }

    fn write_config(&self, user: &str) {
        let banks: Vec<&str> = self.banks.iter().map(|bank| bank.address.as_str()).collect();
        let mut text = format!(
            "user = \"{user}\"\nbanks = {banks:?}\ncertificates = \"{}/pki\"\npatience_secs = 60\n",
            self.directory.path().display()
        );
        for (index, store) in self.stores.iter().enumerate() {
            text += &format!("[[stores]]\nnode = {}\naddress = \"{}\"\n", index + 1, store.address);
        }
        std::fs::write(self.config(user), text).unwrap();
    }

    pub fn config(&self, user: &str) -> PathBuf {
        self.directory.path().join(format!("{user}.toml"))
    }

    /// A user with a certificate, a configuration and a quota.
    pub fn user(&self, name: &str, quota_bytes: u64) {
        let pki = self.directory.path().join("pki");
        ullage(&["pki", "issue", pki.to_str().unwrap(), name, "--role", "user"]);
        self.write_config(name);
        self.admin(&["quota", name, &quota_bytes.to_string()]);
    }

    /// `ullage bank ...` as the administrator, in JSON.
    pub fn admin(&self, arguments: &[&str]) -> serde_json::Value {
        let config = self.config("root");
        let all = [&["bank"], arguments, &["--json", "--config", config.to_str().unwrap()]].concat();
        serde_json::from_str(&ullage(&all)).unwrap()
    }

    pub fn account(&self, user: &str) -> serde_json::Value {
        self.admin(&["quota", user])["accounts"][0].clone()
    }

    /// Waits until all that has happened is reconciled and nothing issued is outstanding; returns the account.
    pub fn reconciled(&self, user: &str) -> serde_json::Value {
        let until = Instant::now() + Duration::from_secs(120);
        let now = self.account(user)["epoch"].as_u64();
        loop {
            let account = self.account(user);
            if account["horizon"].as_u64() >= now && account["issued_bytes"] == 0 {
                return account;
            }
            assert!(Instant::now() < until, "never reconciled: {account}");
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    pub fn files(&self, user: &str) -> Files {
        ClientConfig::read(&self.config(user)).unwrap().files(64 << 20).unwrap()
    }

    /// What the file systems say all chunks of all stores occupy.
    pub fn on_disk(&self) -> u64 {
        (1..=self.stores.len() as u32).map(|node| on_disk(&self.store_directory(node))).sum()
    }
}

fn on_disk(store: &Path) -> u64 {
    let mut sum = 0;
    for shard in std::fs::read_dir(store.join("chunks")).unwrap() {
        for file in std::fs::read_dir(shard.unwrap().path()).unwrap() {
            sum += file.unwrap().metadata().map_or(0, |meta| meta.blocks() * 512);
        }
    }
    sum
}

/// One member of an etcd cluster on loopback.
pub struct Etcd {
    child: Child,
    arguments: Vec<String>,
}

impl Etcd {
    fn spawn(arguments: &[String]) -> Child {
        Command::new("etcd").args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn restart(&mut self) {
        self.child = Self::spawn(&self.arguments);
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Three members and their URL; nothing if Debian's etcd-server is not installed.
pub fn etcd(directory: &Path) -> Option<(Vec<Etcd>, String)> {
    if Command::new("etcd").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("skipped: etcd is not installed (apt-get install etcd-server)");
        return None;
    }
    let ports: Vec<(u16, u16)> = (0..3).map(|_| (free_port(), free_port())).collect();
    let peers: Vec<String> =
        ports.iter().enumerate().map(|(i, (_, peer))| format!("e{i}=http://127.0.0.1:{peer}")).collect();
    let mut members = Vec::new();
    for (number, (client, peer)) in ports.iter().enumerate() {
        let arguments = words(&format!(
            "--name e{number} --data-dir {}/e{number} --listen-client-urls http://127.0.0.1:{client} \
             --advertise-client-urls http://127.0.0.1:{client} --listen-peer-urls http://127.0.0.1:{peer} \
             --initial-advertise-peer-urls http://127.0.0.1:{peer} --initial-cluster {} --initial-cluster-state new \
             --heartbeat-interval 100 --election-timeout 1000 --unsafe-no-fsync",
            directory.display(),
            peers.join(",")
        ));
        members.push(Etcd { child: Etcd::spawn(&arguments), arguments });
    }
    let hosts: Vec<String> = ports.iter().map(|(client, _)| format!("127.0.0.1:{client}")).collect();
    Some((members, format!("etcd://{}/test", hosts.join(","))))
}
