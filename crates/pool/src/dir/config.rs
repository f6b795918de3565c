//! What a `dir` pool is told when it is opened.

use std::fmt;
use std::time::Duration;
use ullage_policy::place::Sparse;

/// A UUID of a space or a pool.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// A random one (version 4).
    pub fn random() -> std::io::Result<Self> {
        let mut bytes = [0; 16];
        std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bytes)?;
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        Ok(Self(bytes))
    }

    /// Its first bytes, as files and directories carry them.
    pub(crate) fn short(&self) -> [u8; 8] {
        *self.0.first_chunk().unwrap_or(&[0; 8])
    }

    /// Reads the usual form, with or without its dashes.
    pub fn parse(text: &str) -> Option<Self> {
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        let plain = digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_hexdigit());
        let number = plain.then(|| u128::from_str_radix(&digits, 16).ok())??;
        Some(Self(number.to_be_bytes()))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            write!(f, "{}{byte:02x}", if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// How to open a `dir` pool.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// The space that the pool belongs to.
    pub space: Uuid,
    /// The pool that must be found; `None` at its first use, when [`crate::DirPool::uuid`] then says which it became.
    pub pool: Option<Uuid>,
    /// Number of this machine among those that use the space: one of the three things the layout hashes.
    pub node: u64,
    /// The layout's parameters. They may change between uses.
    pub sparse: Sparse,
    /// The layout that users know it by: `sparse`, or `mirror`, where a plain tree lies beside the backing files.
    pub layout: &'static str,
    /// Hold backing files ready. Without it, each is made when it is asked for.
    pub ready: bool,
    /// How long a leaf must have been idle before its mark is cleared. What is in it is flushed for that, so this should be
    /// longer than the kernel keeps dirty pages anyway (30 s).
    pub clear_after: Duration,
    /// First pause before a file in quarantine is tried again; doubled each time up to 1,024 times this.
    pub quarantine_retry: Duration,
}

impl PoolConfig {
    /// The usual values for a pool of this space.
    pub fn new(space: Uuid, pool: Option<Uuid>) -> Self {
        Self {
            space,
            pool,
            node: 0,
            sparse: Sparse { buckets: buckets(), ..Sparse::default() },
            layout: "sparse",
            ready: true,
            clear_after: Duration::from_secs(35),
            quarantine_retry: Duration::from_secs(1),
        }
    }
}

/// Two for each CPU: so many processes do not come into each other's way, and a new one mostly comes to where others, before it,
/// left files ready.
fn buckets() -> u16 {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u16::try_from(2 * cpus).unwrap_or(u16::MAX).clamp(Sparse::default().buckets, 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_survive_the_round_trip() {
        let uuid = Uuid::random().unwrap();
        assert_eq!(Uuid::parse(&uuid.to_string()), Some(uuid));
        assert_eq!(Uuid([0xab; 16]).to_string(), "abababab-abab-abab-abab-abababababab");
        assert_eq!(Uuid::parse("abab"), None);
        assert_eq!(Uuid::parse(&"x".repeat(32)), None);
    }
}
