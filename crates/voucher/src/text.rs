//! Vouchers in an HTTP header: base64url without padding, several separated by commas.

use crate::token::{DecodeError, PIECE_LEN, Piece, Pieces};
use base64_simd::{Out, URL_SAFE_NO_PAD};

/// The most pieces that one request may carry; more are refused before any of them is looked at.
pub const MAX_PIECES: usize = 64;

/// Why a header holds no vouchers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Not base64url.
    #[error("a voucher is not base64url")]
    Text,
    /// Too many in one request.
    #[error("more than {MAX_PIECES} vouchers in one request")]
    TooMany,
    /// The bytes are no voucher.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

/// How long one piece is as text.
const TEXT_LEN: usize = (PIECE_LEN * 4).div_ceil(3);

/// One piece as text.
pub(crate) fn to_text(piece: &Piece) -> String {
    encode_header(std::slice::from_ref(piece))
}

/// One piece from text.
pub(crate) fn from_text(text: &[u8]) -> Result<Piece, HeaderError> {
    let text = text.trim_ascii();
    if text.len() != TEXT_LEN {
        return Err(DecodeError::Length.into());
    }
    let mut bytes = [0; PIECE_LEN];
    let read = URL_SAFE_NO_PAD.decode(text, Out::from_slice(&mut bytes)).map_err(|_| HeaderError::Text)?;
    Ok(Piece::decode(read)?)
}

/// The value of the header that carries these pieces; empty for none.
pub fn encode_header(pieces: &[Piece]) -> String {
    let mut text = String::with_capacity((pieces.len() * (TEXT_LEN + 1)).saturating_sub(1));
    for piece in pieces {
        if !text.is_empty() {
            text.push(',');
        }
        URL_SAFE_NO_PAD.encode_append(piece.encode(), &mut text);
    }
    text
}

/// The pieces in a header. Total: any bytes give pieces or an error.
pub fn decode_header(text: &[u8]) -> Result<Pieces, HeaderError> {
    let text = text.trim_ascii();
    if text.is_empty() {
        return Ok(Pieces::new());
    }
    // Mostly there is one: no commas to look for.
    if text.len() == TEXT_LEN {
        return Ok(Pieces::from_buf([from_text(text)?]));
    }
    let texts = || text.split(|byte| *byte == b',');
    let count = texts().count();
    if count > MAX_PIECES {
        return Err(HeaderError::TooMany);
    }
    let mut pieces = Pieces::with_capacity(count);
    for piece in texts() {
        pieces.push(from_text(piece)?);
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Epoch, KeyId, Terms, Voucher};
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use proptest::prelude::*;

    fn piece(serial: u64, mac: [u8; 32], amount: u64) -> Piece {
        let terms = Terms {
            epoch: Epoch(serial >> 7),
            expiry: Epoch(u64::MAX),
            user: crate::User(!serial),
            value: crate::MAX_VALUE,
            serial,
            issuer: crate::Issuer::default(),
            audience: crate::ANYONE,
        };
        Piece { voucher: Voucher { key: KeyId(mac[0]), terms, mac }, amount }
    }

    proptest! {
        #[test]
        fn text_is_base64_as_others_write_and_read_it(
            serial in any::<u64>(), mac in any::<[u8; 32]>(), amount in any::<u64>(),
            place in 0..TEXT_LEN, other in any::<u8>(),
        ) {
            let piece = piece(serial, mac, amount & (crate::MAX_VALUE - 1));
            let text = to_text(&piece);
            prop_assert_eq!(&text, &URL_SAFE_NO_PAD.encode(piece.encode()));
            prop_assert_eq!(from_text(text.as_bytes()), Ok(piece));
            let mut changed = text.into_bytes();
            changed[place] = other & 0x7f;
            let changed = String::from_utf8(changed).unwrap();
            let theirs = URL_SAFE_NO_PAD.decode(&changed).ok().and_then(|bytes| Piece::decode(&bytes).ok());
            // White space around is no part of it.
            if !changed.contains(char::is_whitespace) {
                prop_assert_eq!(from_text(changed.as_bytes()).ok(), theirs);
            }
        }
    }
}
