//! A real etcd, of one member.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use ullage_bank::engine::{Etcd, EtcdSettings, campaign};
use ullage_bank::rows::Rows;

/// It ends with this.
pub struct Member(Child);

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Member {
    /// Starts one; nothing if Debian's etcd-server is not installed.
    pub fn start(command: &mut Command) -> Option<Self> {
        let started = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        if started.is_err() {
            println!("skipped: etcd is not installed (apt-get install etcd-server)");
        }
        started.ok().map(Self)
    }
}

/// One that nobody listens on.
pub fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Campaigns until it leads.
pub async fn lead(settings: &EtcdSettings) -> (Etcd, Rows) {
    loop {
        match campaign(settings, 0, &|_| true).await {
            Ok(won) => return won,
            Err(error) => println!("{error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
