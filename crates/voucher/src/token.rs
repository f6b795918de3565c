//! The voucher as bytes: `{algorithm, key, {epoch, expiry, user, value, serial, issuer, audience}, MAC}, amount`.

use crate::{Epoch, Incarnation, Issuer, KeyId, Node, User, VoucherId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use smallvec::SmallVec;

/// Length of the signed part: algorithm, key id and terms.
pub(crate) const SIGNED_LEN: usize = 54;
/// Length of an encoded [`Piece`], in bytes.
pub const PIECE_LEN: usize = SIGNED_LEN + 32 + 8;
/// The largest value of one voucher, in bytes (2^60): sums of many stay far from the limits of arithmetic.
pub const MAX_VALUE: u64 = 1 << 60;
/// The audience of a voucher that any storage server accepts.
pub const ANYONE: Node = Node(0);

const HMAC_SHA256: u8 = 1;

/// What a voucher says, all of it signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Terms {
    /// When it was issued: the epoch in which its value is accounted.
    pub epoch: Epoch,
    /// The last epoch in which it can be spent.
    pub expiry: Epoch,
    /// Who is charged.
    pub user: User,
    /// What it is worth, in bytes.
    pub value: u64,
    /// The issuer's own count.
    pub serial: u64,
    /// Who made it.
    pub issuer: Issuer,
    /// The only storage server that may accept it, or [`ANYONE`].
    pub audience: Node,
}

/// A signed voucher. Made by [`crate::Keyring::sign`]; worth nothing before [`crate::Keyring::verify`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Voucher {
    /// Which root key it was signed under.
    pub key: KeyId,
    /// What it says.
    pub terms: Terms,
    /// HMAC-SHA256 over algorithm, key id and terms.
    pub mac: [u8; 32],
}

/// A voucher with the amount of it that is meant: the paper's `{{…}auth, amount}`.
///
/// The amount is outside the signature, so a client can split a voucher and a store can return a balance
/// without a key. That cannot be abused: a store lets no more than the signed value of a serial be spent at it,
/// whatever the amounts say, and the bank adds up each serial over all stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The voucher.
    pub voucher: Voucher,
    /// How much of it, at most its value, in bytes.
    pub amount: u64,
}

/// The pieces that pay for one request: mostly one.
pub type Pieces = SmallVec<[Piece; 1]>;

/// Why bytes are no voucher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Not exactly [`PIECE_LEN`] bytes.
    #[error("a voucher has {PIECE_LEN} bytes")]
    Length,
    /// An algorithm that this version does not know.
    #[error("unknown algorithm of a voucher")]
    Algorithm,
    /// A value of zero or above [`MAX_VALUE`], or an amount above the value.
    #[error("a voucher's value or amount is out of range")]
    Value,
    /// It expires before it is issued.
    #[error("a voucher that expires before its epoch")]
    Expiry,
}

impl Voucher {
    /// What makes it unique.
    pub const fn id(&self) -> VoucherId {
        VoucherId { issuer: self.terms.issuer, serial: self.terms.serial }
    }

    /// All of it, as one piece.
    pub const fn whole(self) -> Piece {
        Piece { amount: self.terms.value, voucher: self }
    }
}

/// The bytes that are signed.
pub(crate) fn signed_bytes(key: KeyId, terms: &Terms) -> [u8; SIGNED_LEN] {
    let mut out = [0; SIGNED_LEN];
    out[0] = HMAC_SHA256;
    out[1] = key.0;
    out[2..10].copy_from_slice(&terms.epoch.0.to_be_bytes());
    out[10..18].copy_from_slice(&terms.expiry.0.to_be_bytes());
    out[18..26].copy_from_slice(&terms.user.0.to_be_bytes());
    out[26..34].copy_from_slice(&terms.value.to_be_bytes());
    out[34..42].copy_from_slice(&terms.serial.to_be_bytes());
    out[42..46].copy_from_slice(&terms.issuer.node.0.to_be_bytes());
    out[46..50].copy_from_slice(&terms.issuer.incarnation.0.to_be_bytes());
    out[50..54].copy_from_slice(&terms.audience.0.to_be_bytes());
    out
}

/// Takes fixed-size fields off the front; the caller has checked the length.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, tail) = self.0.split_first_chunk::<N>().ok_or(DecodeError::Length)?;
        self.0 = tail;
        Ok(*head)
    }

    fn long(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_be_bytes(self.take()?))
    }

    fn short(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_be_bytes(self.take()?))
    }
}

impl Piece {
    /// What makes its voucher unique.
    pub const fn id(&self) -> VoucherId {
        self.voucher.id()
    }

    /// Splits off `amount`, or the whole piece if it has no more; nothing if either is zero. What is taken
    /// and what stays always add up to what was there.
    pub fn split(&mut self, amount: u64) -> Option<Self> {
        let taken = amount.min(self.amount);
        if taken == 0 {
            return None;
        }
        self.amount -= taken;
        Some(Self { amount: taken, ..*self })
    }

    /// As bytes.
    pub fn encode(&self) -> [u8; PIECE_LEN] {
        let mut out = [0; PIECE_LEN];
        out[..SIGNED_LEN].copy_from_slice(&signed_bytes(self.voucher.key, &self.voucher.terms));
        out[SIGNED_LEN..SIGNED_LEN + 32].copy_from_slice(&self.voucher.mac);
        out[SIGNED_LEN + 32..].copy_from_slice(&self.amount.to_be_bytes());
        out
    }

    /// From bytes. Total: any bytes give a piece or an error. Says nothing about the signature.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.len() != PIECE_LEN {
            return Err(DecodeError::Length);
        }
        let mut fields = Fields(bytes);
        let [algorithm, key] = fields.take()?;
        if algorithm != HMAC_SHA256 {
            return Err(DecodeError::Algorithm);
        }
        let terms = Terms {
            epoch: Epoch(fields.long()?),
            expiry: Epoch(fields.long()?),
            user: User(fields.long()?),
            value: fields.long()?,
            serial: fields.long()?,
            issuer: Issuer { node: Node(fields.short()?), incarnation: Incarnation(fields.short()?) },
            audience: Node(fields.short()?),
        };
        let mac = fields.take()?;
        let amount = fields.long()?;
        if terms.value == 0 || terms.value > MAX_VALUE || amount > terms.value {
            return Err(DecodeError::Value);
        }
        if terms.expiry < terms.epoch {
            return Err(DecodeError::Expiry);
        }
        Ok(Self { voucher: Voucher { key: KeyId(key), terms, mac }, amount })
    }
}

/// In text formats (JSON) a piece is its header form; in binary ones, its bytes.
impl Serialize for Piece {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.serialize_str(&crate::text::to_text(self))
        } else {
            serializer.serialize_bytes(&self.encode())
        }
    }
}

impl<'de> Deserialize<'de> for Piece {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        if deserializer.is_human_readable() {
            let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
            crate::text::from_text(text.as_bytes()).map_err(D::Error::custom)
        } else {
            struct Bytes;
            impl serde::de::Visitor<'_> for Bytes {
                type Value = Piece;
                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    write!(f, "{PIECE_LEN} bytes of a voucher")
                }
                fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Piece, E> {
                    Piece::decode(bytes).map_err(E::custom)
                }
            }
            deserializer.deserialize_bytes(Bytes)
        }
    }
}
