//! Signed statements in text: `BASE.MAC` in hexadecimal, HMAC-SHA256 over a purpose and the statement.
//!
//! User tokens and capabilities are both made of this; the purpose keeps one from passing as the other.

use crate::keyfile::{bytes_of, from_hex, to_hex};
use crate::{Peer, Role};
use hmac::{Hmac, KeyInit, Mac};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// Longest token accepted.
pub const TOKEN_MAX_BYTES: usize = 2048;

/// Why a token is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Not of the right form.
    #[error("the token is malformed")]
    Malformed,
    /// Signed with another key, or changed since.
    #[error("the token's signature is wrong")]
    Signature,
    /// Too old.
    #[error("the token has expired")]
    Expired,
}

fn mac(key: &[u8; 32], purpose: &str, statement: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(purpose.as_bytes());
    mac.update(&[0]);
    mac.update(statement);
    mac
}

/// Signs a statement for one purpose.
///
/// # Panics
/// When the statement cannot be written as JSON, which plain structs always can.
pub fn sign<T: Serialize>(key: &[u8; 32], purpose: &str, statement: &T) -> String {
    let statement = serde_json::to_vec(statement).expect("a plain struct is JSON");
    let signature = mac(key, purpose, &statement).finalize().into_bytes();
    format!("{}.{}", to_hex(&statement), to_hex(&signature))
}

/// Checks the signature and gives the statement back. Its expiry is the caller's to check.
///
/// # Errors
/// When the text is no token of this key and purpose.
pub fn verify<T: DeserializeOwned>(key: &[u8; 32], purpose: &str, token: &str) -> Result<T, TokenError> {
    if token.len() > TOKEN_MAX_BYTES {
        return Err(TokenError::Malformed);
    }
    let (statement, signature) = token.split_once('.').ok_or(TokenError::Malformed)?;
    let signature: [u8; 32] = from_hex(signature).ok_or(TokenError::Malformed)?;
    let statement = bytes_of(statement).ok_or(TokenError::Malformed)?;
    mac(key, purpose, &statement).verify_slice(&signature).map_err(|_| TokenError::Signature)?;
    serde_json::from_slice(&statement).map_err(|_| TokenError::Malformed)
}

/// Who a bearer is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bearer {
    /// The name.
    pub name: String,
    /// The role.
    pub role: Role,
    /// Seconds since 1970 after which it is void.
    pub expires: u64,
}

const BEARER: &str = "ullage bearer v1";

impl Bearer {
    /// The token to hand out.
    pub fn sign(&self, key: &[u8; 32]) -> String {
        sign(key, BEARER, self)
    }

    /// Who the token was made for.
    ///
    /// # Errors
    /// When it is forged, damaged or older than `now_secs` allows.
    pub fn verify(key: &[u8; 32], token: &str, now_secs: u64) -> Result<Peer, TokenError> {
        let bearer: Self = verify(key, BEARER, token)?;
        if bearer.expires < now_secs {
            return Err(TokenError::Expired);
        }
        Ok(Peer { name: bearer.name, role: bearer.role })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_for_its_key_its_purpose_and_its_time_only() {
        let key = [7; 32];
        let bearer = Bearer { name: "alice".into(), role: Role::User, expires: 100 };
        let token = bearer.sign(&key);
        assert_eq!(Bearer::verify(&key, &token, 100).unwrap().name, "alice");
        assert_eq!(Bearer::verify(&key, &token, 101), Err(TokenError::Expired));
        assert_eq!(Bearer::verify(&[8; 32], &token, 1), Err(TokenError::Signature));
        assert_eq!(verify::<Bearer>(&key, "another purpose", &token), Err(TokenError::Signature));
        for position in 0..token.len() {
            let mut bytes = token.clone().into_bytes();
            bytes[position] = if bytes[position] == b'0' { b'1' } else { b'0' };
            let changed = String::from_utf8(bytes).unwrap();
            assert!(Bearer::verify(&key, &changed, 1).is_err(), "position {position}");
            assert!(Bearer::verify(&key, &token[..position], 1).is_err());
        }
    }
}
