//! HTTP/1.1 with mutual TLS, the small certificate authority, tokens and limits: what bank, store and client share.
//!
//! Nothing here knows of vouchers. A server is one async function from request to answer ([`server::serve`]); who asks is
//! a [`Peer`], established by certificate or by [`token`].

#![deny(missing_docs)]

mod answer;
pub mod client;
pub mod clock;
pub mod ends;
mod handshakes;
pub mod keyfile;
pub mod limit;
mod linger;
pub mod memory;
mod patience;
mod peer;
pub mod pki;
mod replacement;
pub mod revoked;
mod seldom;
pub mod server;
mod shares;
pub mod tls;
pub mod token;

pub use answer::{Answer, Body, ErrorBody, Problem, json, read_body, read_json};
pub use peer::{Peer, Role};
pub use seldom::Seldom;
