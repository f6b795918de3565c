//! Capabilities: what a storage server believes about who may do what. Made by the bank, which knows the users; checked by
//! stores, which know only the key.

use serde::{Deserialize, Serialize};
use ullage_net::token::{self, TokenError};

/// What a capability allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is one right")]
pub struct Rights {
    /// Read and stat.
    #[serde(default)]
    pub read: bool,
    /// Create, write, truncate.
    #[serde(default)]
    pub write: bool,
    /// Delete.
    #[serde(default)]
    pub delete: bool,
    /// List.
    #[serde(default)]
    pub list: bool,
}

impl Rights {
    /// Everything: an owner's.
    pub const ALL: Self = Self { read: true, write: true, delete: true, list: true };

    /// Whether all of `needed` are allowed.
    pub fn include(self, needed: Self) -> bool {
        (self.read || !needed.read)
            && (self.write || !needed.write)
            && (self.delete || !needed.delete)
            && (self.list || !needed.list)
    }
}

/// A signed permission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capability {
    /// Who may use it; others are refused even if they got hold of it.
    pub user: String,
    /// Whose chunks they are: who owns what is created.
    pub owner: String,
    /// Names it is good for start so.
    pub prefix: String,
    /// What for.
    pub rights: Rights,
    /// Seconds since 1970 after which it is void.
    pub expires: u64,
}

const PURPOSE: &str = "ullage capability v1";

impl Capability {
    /// The text that travels.
    pub fn sign(&self, key: &[u8; 32]) -> String {
        token::sign(key, PURPOSE, self)
    }

    /// Back from text, if the signature is right and it has not expired by `now_secs`.
    ///
    /// # Errors
    /// When it is not to be believed.
    pub fn verify(key: &[u8; 32], text: &str, now_secs: u64) -> Result<Self, TokenError> {
        let capability: Self = token::verify(key, PURPOSE, text)?;
        if capability.expires < now_secs { Err(TokenError::Expired) } else { Ok(capability) }
    }
}
