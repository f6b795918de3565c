//! Who is at the other end of a connection.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What a certificate entitles to; its organisational unit says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A person or service that owns files; the common name is the user.
    User,
    /// A machine that acts for users who have given it a token.
    Node,
    /// A storage server.
    Store,
    /// A bank.
    Bank,
    /// Sets quotas and reads everybody's history.
    Admin,
    /// A member of the etcd that keeps the banks' accounts; nothing here serves it.
    Etcd,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::User => "user",
            Self::Node => "node",
            Self::Store => "store",
            Self::Bank => "bank",
            Self::Admin => "admin",
            Self::Etcd => "etcd",
        })
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::User, Self::Node, Self::Store, Self::Bank, Self::Admin, Self::Etcd]
            .into_iter()
            .find(|role| role.to_string() == text)
            .ok_or_else(|| format!("{text:?} is no role: user, node, store, bank, admin or etcd"))
    }
}

/// An authenticated party.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Peer {
    /// Common name of the certificate, or the name in the token.
    pub name: String,
    /// What it may do.
    pub role: Role,
}

impl Peer {
    /// What to tell of a certificate of its that ends.
    pub(crate) fn renewal(&self) -> String {
        format!("`ullage pki issue DIR {} --role {} --renew` makes it anew", self.name, self.role)
    }
}
