//! Where etcd is, and how it knows us.

use std::net::IpAddr;
use ullage_net::tls::Files;

/// How to reach etcd.
#[derive(Debug, Clone)]
pub struct EtcdSettings {
    /// `host:port` of its members.
    pub endpoints: Vec<String>,
    /// Different sites on one etcd have different names.
    pub name: String,
    /// How long a dead leader keeps the lead, in seconds.
    pub lease_secs: i64,
    /// Where clients reach this bank.
    pub address: String,
    /// What is shown to etcd, and whose authority its members must have; nothing where the connection is plain.
    pub tls: Option<Files>,
}

impl EtcdSettings {
    /// From `etcds://host:port,host:port[/name]`, or `etcd://…` for plain connections. `certificates` are this bank's.
    pub fn parse(url: &str, address: &str, certificates: &Files) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let tls = match scheme {
            "etcds" => Some(certificates.clone()),
            "etcd" => None,
            _ => return None,
        };
        let (hosts, name) = rest.split_once('/').unwrap_or((rest, "default"));
        let endpoints: Vec<String> = hosts.split(',').filter(|host| !host.is_empty()).map(str::to_owned).collect();
        let name = if name.is_empty() { "default" } else { name };
        // A scheme in it, as in `etcd://https://host:port`, would be taken for a host.
        let sound = endpoints.iter().all(|endpoint| host_of(endpoint).is_some());
        (sound && !endpoints.is_empty()).then(|| Self {
            endpoints,
            name: name.to_owned(),
            lease_secs: 3,
            address: address.to_owned(),
            tls,
        })
    }

    /// The first member that is reached plainly and not on this machine: whoever is on the way could change every account.
    pub fn exposed(&self) -> Option<&str> {
        let local = |endpoint: &&String| {
            let host = host_of(endpoint).unwrap_or_default();
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        };
        self.endpoints.iter().find(|endpoint| self.tls.is_none() && !local(endpoint)).map(String::as_str)
    }
}

fn host_of(endpoint: &str) -> Option<&str> {
    let (host, port) = endpoint.rsplit_once(':')?;
    port.parse::<u16>().ok()?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    (!host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn parse(url: &str) -> Option<EtcdSettings> {
        EtcdSettings::parse(url, "bank:1", &Files::in_directory(Path::new("pki"), "bank-a"))
    }

    #[test]
    fn certificates_are_shown_where_the_url_says_so() {
        let settings = parse("etcds://10.0.0.1:2379,etcd-2:2379/site").unwrap();
        assert_eq!((settings.endpoints.len(), settings.name.as_str()), (2, "site"));
        assert_eq!(settings.tls.as_ref().unwrap().key, Path::new("pki/bank-a.key"));
        assert_eq!(settings.exposed(), None);
        for wrong in ["http://h:1", "etcd://", "etcd://https://h:1", "etcd://h", "etcds://h:1,:2", "h:1"] {
            assert!(parse(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn plain_connections_that_leave_the_machine_are_told_from_those_that_do_not() {
        assert_eq!(parse("etcd://127.0.0.1:1,localhost:2,[::1]:3/t").unwrap().exposed(), None);
        assert_eq!(parse("etcd://127.0.0.1:1,10.0.0.1:2").unwrap().exposed(), Some("10.0.0.1:2"));
        assert_eq!(parse("etcd://etcd.example.org:1").unwrap().exposed(), Some("etcd.example.org:1"));
    }
}
