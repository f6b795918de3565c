//! What a request's head says: who, with which right, for which chunk, how paid, with which checksum.

use super::accounts::{OP_MAX, Payment};
use crate::chunk::{ChunkName, Expected};
use crate::headers::{
    CAPABILITY_HEADER, CHECKSUM_HEADER, CLIENT_HEADER, OP_HEADER, SETTLED_HEADER, STORE_HEADER, VOUCHER_HEADER,
    checksum,
};
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};
use hyper::http::request::Parts;
use std::sync::Arc;
use ullage_bank::capability::{Capability, Rights};
use ullage_bank::identity;
use ullage_net::{Peer, Problem, clock, keyfile};
use ullage_voucher::{ChargeBy, Client, Node, Pieces, decode_header};

pub(crate) fn problem(status: StatusCode, code: &str, message: impl ToString) -> Problem {
    Problem::new(status, code, message)
}

pub(crate) fn bad(code: &str, message: impl ToString) -> Problem {
    problem(StatusCode::BAD_REQUEST, code, message)
}

/// A header's text; what it may contain is for its reader to say.
pub(crate) fn header<'a>(head: &'a Parts, name: &HeaderName) -> Option<&'a str> {
    head.headers.get(name).and_then(|value| std::str::from_utf8(value.as_bytes()).ok())
}

/// One parameter of the query, as it stands: names and numbers need no decoding.
pub(crate) fn query<'a>(head: &'a Parts, name: &str) -> Option<&'a str> {
    head.uri.query()?.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

pub(crate) fn number(head: &Parts, name: &str) -> Result<Option<u64>, Problem> {
    query(head, name)
        .map(|text| text.parse().map_err(|_| bad("bad_request", format!("{name} is a number of bytes"))))
        .transpose()
}

/// Refuses what is meant for another store: what is written here would be looked for there.
pub(crate) fn is_meant(head: &Parts, own: Node) -> Result<(), Problem> {
    match header(head, &STORE_HEADER) {
        Some(meant) if meant != own.0.to_string() => {
            let message = format!(
                "this is store {own}, and store {meant} is meant: the client's [[stores]] has a wrong node or address"
            );
            Err(problem(StatusCode::MISDIRECTED_REQUEST, "wrong_store", message))
        }
        _ => Ok(()),
    }
}

/// What must be in the chunk's place: the generation that is stated, or else what the request means without one.
pub(crate) fn expected(head: &Parts, otherwise: Expected) -> Result<Expected, Problem> {
    let Some(text) = query(head, "generation") else { return Ok(otherwise) };
    text.parse().map(Expected::Generation).map_err(|_| bad("bad_request", "a generation is a number"))
}

/// Checks the capability for a chunk's name (or a prefix of names).
pub(crate) fn authorize(
    head: &Parts,
    peer: &Peer,
    key: &[u8; 32],
    name: &str,
    needed: Rights,
) -> Result<Capability, Problem> {
    let refuse = |message: &str| problem(StatusCode::FORBIDDEN, "capability", message);
    let text = header(head, &CAPABILITY_HEADER).ok_or_else(|| refuse("a capability is needed"))?;
    let capability = Capability::verify(key, text, clock::now_secs()).map_err(|error| refuse(&error.to_string()))?;
    if capability.user != peer.name {
        return Err(refuse("the capability is another's"));
    }
    if !name.starts_with(&capability.prefix) {
        return Err(refuse("the capability is for other chunks"));
    }
    if !capability.rights.include(needed) {
        return Err(refuse("the capability does not allow this"));
    }
    Ok(capability)
}

pub(crate) fn chunk_name(text: &str) -> Result<ChunkName, Problem> {
    text.parse().map_err(|error| bad("bad_name", error))
}

pub(crate) fn client_and_op(head: &Parts, peer: &Peer) -> Result<(Client, u64), Problem> {
    let client = header(head, &CLIENT_HEADER).and_then(keyfile::from_hex::<8>);
    let client =
        Client(u64::from_be_bytes(client.ok_or_else(|| bad("bad_client", "the client is 16 hexadecimal digits"))?));
    if !identity::is_client_of(client, &peer.name) {
        return Err(problem(StatusCode::FORBIDDEN, "foreign_client", "this client number is not one of yours"));
    }
    let op = header(head, &OP_HEADER).and_then(|text| text.parse().ok()).filter(|op| *op < OP_MAX);
    Ok((client, op.ok_or_else(|| bad("bad_op", format!("the op is a number below {OP_MAX}")))?))
}

pub(crate) fn pieces(head: &Parts) -> Result<Pieces, Problem> {
    let text = head.headers.get(&VOUCHER_HEADER).map(HeaderValue::as_bytes).unwrap_or_default();
    decode_header(text).map_err(|error| bad("bad_voucher", error))
}

pub(crate) fn payment(head: &Parts, peer: &Peer, owner: &str, by: ChargeBy) -> Result<Payment, Problem> {
    let (client, op) = client_and_op(head, peer)?;
    let pieces = pieces(head)?;
    let payer = match by {
        ChargeBy::Owner => owner,
        ChargeBy::Writer => &peer.name,
    };
    let settled = header(head, &SETTLED_HEADER)
        .map(|text| text.parse().map_err(|_| bad("bad_settled", "what is settled is told by a number of a request")))
        .transpose()?;
    Ok(Payment { client, op, payer: Arc::from(payer), pieces, settled })
}

pub(crate) fn check_body(head: &Parts, body: &Bytes) -> Result<(), Problem> {
    let stated = header(head, &CHECKSUM_HEADER).ok_or_else(|| bad("checksum", "the body's checksum is missing"))?;
    if stated == checksum(body) { Ok(()) } else { Err(bad("checksum", "the body does not match its checksum")) }
}
