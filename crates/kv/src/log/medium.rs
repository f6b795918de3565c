//! What the log is written on.

use std::io;

/// A piece of stable storage of fixed length. Tests put one below the log that fails or loses power.
///
/// The log writes whole [`super::BLOCK`]s at multiples of that, from buffers so aligned, and counts on nothing
/// written before a [`Medium::sync`] that returned `Ok`.
pub trait Medium: Send {
    /// Writes some or all of `bytes` at `offset`; gives back how many.
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Writes as [`Medium::write_at`] does, and returns when that survives a power cut. What was written before need
    /// not.
    fn write_durably_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let written = self.write_at(bytes, offset)?;
        self.sync()?;
        Ok(written)
    }

    /// The device (`st_dev`) whose cache is all that stands between a write that returned and the medium: whoever has
    /// that flushed need not call [`Medium::sync`]. None where a write stays in memory, or the flush of a file might not
    /// flush the device.
    fn device(&self) -> Option<u64> {
        None
    }

    /// Whether a write there changes those bytes and nothing else, so that a flush of the [`Medium::device`] is all that it needs: not where they get a
    /// place with it, of which the file system writes down elsewhere.
    fn is_in_place(&self, offset: u64, length: u64) -> bool {
        let _ = (offset, length);
        true
    }

    /// Reads into some or all of `into` from `offset`; gives back how many, 0 only at the end.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Returns when all that was written survives a power cut.
    fn sync(&mut self) -> io::Result<()>;

    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Whether it has no bytes at all.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// Reads exactly `into.len()` bytes; false when the medium ends before.
pub(crate) fn read_exact_at(medium: &dyn Medium, mut into: &mut [u8], mut offset: u64) -> io::Result<bool> {
    while !into.is_empty() {
        match medium.read_at(into, offset) {
            Ok(0) => return Ok(false),
            Ok(n) => {
                into = into.get_mut(n..).unwrap_or_default();
                offset += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(true)
}
