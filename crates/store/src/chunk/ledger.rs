//! What the chunk store asks of whoever keeps the accounts.

use std::sync::Arc;

/// A change of one user's charge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posting {
    /// Who is charged, or was.
    pub user: Arc<str>,
    /// Bytes allocated (positive) or freed (negative).
    pub delta_bytes: i64,
}

/// The accounts beside the chunks. A change of a chunk and its posting are one journal record: the note returned here is
/// replayed after a crash, so replaying must give the same state as the first time.
pub trait Ledger: Send + 'static {
    /// How an operation is paid for.
    type Payment;
    /// What the payer gets back.
    type Receipt;
    /// Why the payment is refused.
    type Refusal: Send + 'static;

    /// Books `postings`, or refuses and changes nothing that matters. Returns the note to replay.
    fn book(
        &mut self,
        postings: &[Posting],
        payment: &Self::Payment,
    ) -> Result<(Vec<u8>, Self::Receipt), Self::Refusal>;

    /// Books what a recount found; cannot be refused, for the space is in use.
    fn correct(&mut self, postings: &[Posting]) -> Vec<u8>;

    /// Redoes a note.
    fn replay(&mut self, note: &[u8]) -> Result<(), String>;

    /// The whole state.
    fn save(&self) -> Vec<u8>;

    /// Takes the state back.
    fn load(&mut self, state: &[u8]) -> Result<(), String>;
}
