//! Vouchers in an HTTP header: base64url without padding, several separated by commas.

use crate::token::{DecodeError, PIECE_LEN, Piece};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

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

/// One piece as text.
pub(crate) fn to_text(piece: &Piece) -> String {
    URL_SAFE_NO_PAD.encode(piece.encode())
}

/// One piece from text.
pub(crate) fn from_text(text: &str) -> Result<Piece, HeaderError> {
    let mut bytes = [0; PIECE_LEN + 3];
    let length = URL_SAFE_NO_PAD.decode_slice(text.trim(), &mut bytes).map_err(|_| HeaderError::Text)?;
    Ok(Piece::decode(&bytes[..length])?)
}

/// The value of the header that carries these pieces; empty for none.
pub fn encode_header(pieces: &[Piece]) -> String {
    let mut text = String::with_capacity(pieces.len() * (PIECE_LEN * 4 / 3 + 3));
    for piece in pieces {
        if !text.is_empty() {
            text.push(',');
        }
        URL_SAFE_NO_PAD.encode_string(piece.encode(), &mut text);
    }
    text
}

/// The pieces in a header. Total: any text gives pieces or an error.
pub fn decode_header(text: &str) -> Result<Vec<Piece>, HeaderError> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let count = text.split(',').count();
    if count > MAX_PIECES {
        return Err(HeaderError::TooMany);
    }
    let mut pieces = Vec::with_capacity(count);
    for piece in text.split(',') {
        pieces.push(from_text(piece)?);
    }
    Ok(pieces)
}
