//! Where etcd is.

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
}

impl EtcdSettings {
    /// From `etcd://host:port,host:port[/name]`.
    pub fn parse(url: &str, address: &str) -> Option<Self> {
        let rest = url.strip_prefix("etcd://")?;
        let (hosts, name) = rest.split_once('/').unwrap_or((rest, "default"));
        let endpoints: Vec<String> = hosts.split(',').filter(|host| !host.is_empty()).map(str::to_owned).collect();
        let name = if name.is_empty() { "default" } else { name };
        (!endpoints.is_empty()).then(|| Self {
            endpoints,
            name: name.to_owned(),
            lease_secs: 3,
            address: address.to_owned(),
        })
    }
}
