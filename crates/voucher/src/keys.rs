//! Keys: a root key per key id, from it one key per audience, from that one per epoch (HKDF-SHA256).

use crate::token::{ANYONE, Terms, Voucher, signed_bytes};
use crate::{Epoch, Node};
use hkdf::Hkdf;
use hmac::{Hmac, KeyInit, Mac};
use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use std::fmt;
use subtle::{Choice, ConstantTimeEq};

type HmacSha256 = Hmac<Sha256>;

/// The number of a root key. Rotation: add the new key everywhere, then sign with it, and retire the old one
/// K epochs later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyId(pub u8);

/// Why a voucher is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// Its key is unknown here: never added, retired, or of another audience.
    #[error("signed with a key that is not known here")]
    UnknownKey,
    /// The signature is wrong: forged or damaged.
    #[error("the signature is wrong")]
    BadSignature,
}

/// What one key opens.
#[derive(Clone)]
enum Secret {
    /// Makes and checks vouchers for every audience.
    Root([u8; 32]),
    /// Makes and checks vouchers for one audience only.
    Audience(Node, [u8; 32]),
}

/// How many derived keys are kept; beyond it they are derived again.
const CACHED: usize = 512;

/// The keys of a bank or a store. Derived keys are cached, so that a check costs one HMAC.
///
/// Whoever can check a voucher can also make one. A store that is not trusted with that gets only the key of
/// its own audience ([`Keyring::audience_secret`]): what it makes, nobody else accepts.
pub struct Keyring {
    secrets: Vec<(KeyId, Secret)>,
    signing: Option<KeyId>,
    derived: RwLock<FxHashMap<(KeyId, Node, Epoch), HmacSha256>>,
}

impl fmt::Debug for Keyring {
    /// Shows the key ids, never a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<u8> = self.secrets.iter().map(|(id, _)| id.0).collect();
        f.debug_struct("Keyring").field("ids", &ids).field("signing", &self.signing).finish_non_exhaustive()
    }
}

fn derive(secret: &[u8; 32], label: &[u8], number: u64) -> [u8; 32] {
    let mut info = [0; 48];
    let length = label.len().min(40);
    info[..length].copy_from_slice(&label[..length]);
    info[length..length + 8].copy_from_slice(&number.to_be_bytes());
    let mut out = [0; 32];
    Hkdf::<Sha256>::new(Some(b"ullage voucher v1"), secret)
        .expand(&info[..length + 8], &mut out)
        .expect("32 bytes are within what HKDF gives");
    out
}

/// Compares signatures in constant time, by words: byte by byte takes four times as long.
pub(crate) fn equal(ours: &[u8; 32], theirs: &[u8; 32]) -> bool {
    let (ours, theirs) = (ours.as_chunks::<8>().0, theirs.as_chunks::<8>().0);
    let words = ours.iter().zip(theirs).map(|(a, b)| (u64::from_ne_bytes(*a), u64::from_ne_bytes(*b)));
    words.fold(Choice::from(1), |all, (a, b)| all & a.ct_eq(&b)).into()
}

impl Keyring {
    /// No keys: nothing can be signed or checked.
    pub fn new() -> Self {
        Self { secrets: Vec::new(), signing: None, derived: RwLock::default() }
    }

    /// With one root key that signs and checks.
    pub fn with_root(id: KeyId, root: [u8; 32]) -> Self {
        let mut keys = Self::new();
        keys.add_root(id, root);
        keys
    }

    /// Adds (or replaces) a root key; it signs from now on.
    pub fn add_root(&mut self, id: KeyId, root: [u8; 32]) {
        self.add(id, Secret::Root(root));
    }

    /// Adds (or replaces) the key of one audience, from [`Keyring::audience_secret`]; it signs from now on.
    pub fn add_audience(&mut self, id: KeyId, audience: Node, secret: [u8; 32]) {
        self.add(id, Secret::Audience(audience, secret));
    }

    fn add(&mut self, id: KeyId, secret: Secret) {
        self.retire(id);
        self.secrets.push((id, secret));
        self.signing = Some(id);
    }

    /// Which key signs; ignored if it is not known.
    pub fn sign_with(&mut self, id: KeyId) {
        if self.secrets.iter().any(|(known, _)| *known == id) {
            self.signing = Some(id);
        }
    }

    /// Forgets a key: what was signed with it is no longer believed.
    pub fn retire(&mut self, id: KeyId) {
        self.secrets.retain(|(known, _)| *known != id);
        self.derived.get_mut().retain(|(known, _, _), _| *known != id);
        if self.signing == Some(id) {
            self.signing = self.secrets.last().map(|(known, _)| *known);
        }
    }

    /// The secret to hand to a store that shall be limited to vouchers addressed to it.
    pub fn audience_secret(&self, id: KeyId, audience: Node) -> Option<[u8; 32]> {
        self.secrets.iter().find(|(known, _)| *known == id).and_then(|(_, secret)| match secret {
            Secret::Root(root) => Some(derive(root, b"audience", audience.0.into())),
            Secret::Audience(of, secret) if *of == audience => Some(*secret),
            Secret::Audience(..) => None,
        })
    }

    /// The audience that this keyring is limited to, if its signing key is of one audience only.
    pub fn limited_to(&self) -> Option<Node> {
        let signing = self.signing?;
        self.secrets.iter().find(|(id, _)| *id == signing).and_then(|(_, secret)| match secret {
            Secret::Root(_) => None,
            Secret::Audience(audience, _) => Some(*audience),
        })
    }

    fn hmac(&self, id: KeyId, audience: Node, epoch: Epoch) -> Option<HmacSha256> {
        let slot = (id, audience, epoch);
        if let Some(mac) = self.derived.read().get(&slot) {
            return Some(mac.clone());
        }
        let secret = self.audience_secret(id, audience)?;
        let key = derive(&secret, b"epoch", epoch.0);
        let mac = HmacSha256::new_from_slice(&key).expect("HMAC takes keys of any length");
        let mut derived = self.derived.write();
        if derived.len() >= CACHED {
            derived.clear();
        }
        derived.insert(slot, mac.clone());
        Some(mac)
    }

    /// Signs; nothing if there is no key for that audience.
    pub fn sign(&self, terms: Terms) -> Option<Voucher> {
        let key = self.signing?;
        let mut mac = self.hmac(key, terms.audience, terms.epoch)?;
        mac.update(&signed_bytes(key, &terms));
        Some(Voucher { key, terms, mac: mac.finalize().into_bytes().into() })
    }

    /// Checks the signature, in constant time. Callers check the epoch first, so that strangers cannot
    /// make it derive keys without end.
    pub fn verify(&self, voucher: &Voucher) -> Result<(), VerifyError> {
        let terms = &voucher.terms;
        let mut mac = self.hmac(voucher.key, terms.audience, terms.epoch).ok_or(VerifyError::UnknownKey)?;
        mac.update(&signed_bytes(voucher.key, terms));
        let expected = mac.finalize().into_bytes().into();
        if equal(&expected, &voucher.mac) { Ok(()) } else { Err(VerifyError::BadSignature) }
    }

    /// The audience to put on vouchers made with these keys: the limit if there is one, else anyone.
    pub(crate) fn audience_to_sign(&self) -> Node {
        self.limited_to().unwrap_or(ANYONE)
    }
}

impl Default for Keyring {
    fn default() -> Self {
        Self::new()
    }
}
