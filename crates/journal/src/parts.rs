//! What is more than a record may be: several records, which count once the last is there.

use crate::frame::RECORD_MAX_BYTES;

/// What goes into one record at most.
pub const PART_BYTES: usize = RECORD_MAX_BYTES / 4;

/// Which part it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The first.
    First,
    /// One between the first and the last.
    Next,
    /// The last.
    Last,
}

/// The parts of what is more than [`PART_BYTES`].
///
/// # Panics
/// If it is not.
pub fn split(whole: &[u8]) -> impl Iterator<Item = (Part, &[u8])> {
    assert!(whole.len() > PART_BYTES, "what goes into one record has no parts");
    let last = whole.len().div_ceil(PART_BYTES) - 1;
    let part = move |(number, bytes)| match number {
        0 => (Part::First, bytes),
        number if number == last => (Part::Last, bytes),
        _ => (Part::Next, bytes),
    };
    whole.chunks(PART_BYTES).enumerate().map(part)
}

/// Parts that are put together again, in the order of their records.
#[derive(Debug, Default)]
pub struct Begun(Vec<u8>);

impl Begun {
    /// Takes a part, and gives the whole with the last one.
    pub fn add(&mut self, part: Part, bytes: &[u8]) -> Option<Vec<u8>> {
        if part == Part::First {
            self.forget();
        }
        self.0.extend_from_slice(bytes);
        (part == Part::Last).then(|| std::mem::take(&mut self.0))
    }

    /// What anything else follows lost its end to a crash, and nobody had an answer.
    pub fn forget(&mut self) {
        self.0.clear();
    }
}
