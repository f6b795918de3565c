//! Vouchers in an HTTP header: base64url without padding, several separated by commas.

use crate::token::{DecodeError, PIECE_LEN, Piece};

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

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// What each byte stands for as a digit; above 63 for none.
const VALUES: [u8; 256] = {
    let mut values = [u8::MAX; 256];
    let mut digit = 0;
    while digit < DIGITS.len() {
        values[DIGITS[digit] as usize] = digit as u8;
        digit += 1;
    }
    values
};

/// Of one known length, unlike what a library has to be ready for: every write does this, and its reverse.
fn digits_of(piece: &Piece) -> [u8; TEXT_LEN] {
    let bytes = piece.encode();
    let mut text = [0; TEXT_LEN];
    let (threes, last) = bytes.as_chunks::<3>();
    let (fours, end) = text.as_chunks_mut::<4>();
    for (four, [a, b, c]) in fours.iter_mut().zip(threes) {
        let bits = u32::from(*a) << 16 | u32::from(*b) << 8 | u32::from(*c);
        *four = [18, 12, 6, 0].map(|shift| DIGITS[(bits >> shift & 63) as usize]);
    }
    if let ([a], [first, second]) = (last, end) {
        *first = DIGITS[usize::from(a >> 2)];
        *second = DIGITS[usize::from((a & 3) << 4)];
    }
    text
}

/// One piece as text.
pub(crate) fn to_text(piece: &Piece) -> String {
    encode_header(std::slice::from_ref(piece))
}

/// One piece from text. There is one text for each piece: the bits that are left over are zero.
pub(crate) fn from_text(text: &str) -> Result<Piece, HeaderError> {
    let text: &[u8; TEXT_LEN] = text.trim().as_bytes().try_into().map_err(|_| DecodeError::Length)?;
    let value = |digit: u8| VALUES[usize::from(digit)];
    let mut bytes = [0; PIECE_LEN];
    let (threes, last) = bytes.as_chunks_mut::<3>();
    let (fours, end) = text.as_chunks::<4>();
    let mut all = 0;
    for (three, four) in threes.iter_mut().zip(fours) {
        let [a, b, c, d] = four.map(value);
        all |= a | b | c | d;
        let bits = u32::from(a) << 18 | u32::from(b) << 12 | u32::from(c) << 6 | u32::from(d);
        *three = [(bits >> 16) as u8, (bits >> 8) as u8, bits as u8];
    }
    if let ([byte], [first, second]) = (last, end) {
        let (a, b) = (value(*first), value(*second));
        all |= a | b | (b & 15) << 4;
        *byte = a << 2 | b >> 4;
    }
    if all > 63 {
        return Err(HeaderError::Text);
    }
    Ok(Piece::decode(&bytes)?)
}

/// The value of the header that carries these pieces; empty for none.
pub fn encode_header(pieces: &[Piece]) -> String {
    let mut text = Vec::with_capacity((pieces.len() * (TEXT_LEN + 1)).saturating_sub(1));
    for piece in pieces {
        if !text.is_empty() {
            text.push(b',');
        }
        text.extend_from_slice(&digits_of(piece));
    }
    String::from_utf8(text).expect("all digits are ASCII")
}

/// The pieces in a header. Total: any text gives pieces or an error.
pub fn decode_header(text: &str) -> Result<Vec<Piece>, HeaderError> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    // Mostly there is one: no commas to look for.
    if text.len() == TEXT_LEN {
        return Ok(vec![from_text(text)?]);
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
            prop_assert_eq!(from_text(&text), Ok(piece));
            let mut changed = text.into_bytes();
            changed[place] = other & 0x7f;
            let changed = String::from_utf8(changed).unwrap();
            let theirs = URL_SAFE_NO_PAD.decode(&changed).ok().and_then(|bytes| Piece::decode(&bytes).ok());
            // White space around is no part of it.
            if !changed.contains(char::is_whitespace) {
                prop_assert_eq!(from_text(&changed).ok(), theirs);
            }
        }
    }
}
