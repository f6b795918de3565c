//! Vouchers: one quota over many clients and storage servers, without a question per write.
//!
//! Everything here is a state machine: events and the time go in, writes and messages come out. There is no
//! I/O, no wall clock and no randomness of its own, so that the servers, the simulator and the tests run the
//! same code. `README.md` beside this crate says how a server drives it.
//!
//! The rule that everything serves (voucher-quotas, section 3): for every user, in every state,
//! *real bytes + vouchers still spendable ≤ A ≤ quota*, where `A = ΣS_h + Σ V_e for e > h` and the horizon `h`
//! is `c − K`, or earlier while a store has not reported.

#![deny(missing_docs)]
#![allow(clippy::wrong_self_convention, reason = "`from_bank` takes what comes from the bank")]

pub mod bank;
mod epoch_length;
mod flaw;
mod ids;
mod keys;
pub mod message;
mod params;
mod rows;
pub mod store;
#[cfg(test)]
mod testing;
mod text;
mod token;
pub mod wallet;

pub use epoch_length::EpochLength;
#[cfg(feature = "canary")]
pub use flaw::Flaw;
pub use ids::{Client, Epoch, Incarnation, Issuer, Micros, Node, Op, User, VoucherId};
pub use keys::{KeyId, Keyring, VerifyError};
pub use params::{ChargeBy, Params, ParamsError};
pub use rows::{LoadError, RowBytes, Write};
pub use text::{HeaderError, MAX_PIECES, decode_header, encode_header};
pub use token::{ANYONE, DecodeError, MAX_VALUE, PIECE_LEN, Piece, Pieces, Terms, Voucher};
