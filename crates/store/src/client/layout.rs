//! How a file becomes chunks: a manifest, and stripes that go round the stores (voucher-quotas, section 4.1).
//!
//! The manifest of `docs/a` of alice is the chunk `alice/m/docs/a`, its stripes are `alice/d/ID.000000` and so on. A new version
//! of a file has a new id: its manifest replaces the old one in one step, so a reader sees one version wholly.

use crate::chunk::{CHUNK_MAX_BYTES, ChunkName, NAME_MAX_BYTES};
use serde::{Deserialize, Serialize};
use ullage_voucher::Node;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The default size of stripes.
pub const STRIPE_BYTES: u64 = 4 << 20;

/// The smallest stripes that are written.
const STRIPE_MIN_BYTES: u64 = 4096;

/// Most stripes of a file: six digits number them.
const STRIPES_MAX: u64 = 999_999;

/// What a file is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Of this format: 1.
    pub version: u32,
    /// The file's bytes.
    pub size_bytes: u64,
    /// Bytes per stripe.
    pub stripe_bytes: u64,
    /// Names its stripes.
    pub id: String,
    /// Stripe i is at store `stores[i % stores.len()]`.
    pub stores: Vec<Node>,
    /// Milliseconds since 1970.
    pub written_ms: u64,
}

impl Manifest {
    /// How many stripes there are.
    pub fn stripes(&self) -> u64 {
        self.size_bytes.div_ceil(self.stripe_bytes)
    }

    /// Where stripe `index` is; nothing in a manifest without stores.
    pub fn store_of(&self, index: u64) -> Option<Node> {
        self.stores.get(index.checked_rem(self.stores.len() as u64)? as usize).copied()
    }

    /// The chunk of stripe `index`.
    pub fn chunk_of(&self, user: &str, index: u64) -> String {
        format!("{user}/d/{}.{index:06}", self.id)
    }

    /// Whether it can be worked with: what a server sends is not believed blindly.
    pub fn is_sound(&self) -> bool {
        self.version == 1
            && (1..=CHUNK_MAX_BYTES).contains(&self.stripe_bytes)
            && !self.stores.is_empty()
            && self.stripes() <= STRIPES_MAX
            && self.id.len() <= 32
            && self.id.bytes().all(|byte| byte.is_ascii_hexdigit())
    }
}

/// Whether a file of this name and size can be put, before any of it is sent: what to do instead if not.
pub(crate) fn check_new(user: &str, file: &str, size_bytes: u64, stripe_bytes: u64) -> Result<(), String> {
    if !(STRIPE_MIN_BYTES..=CHUNK_MAX_BYTES).contains(&stripe_bytes) {
        return Err("a stripe has 4 KiB to 16 MiB".into());
    }
    if file.is_empty() {
        return Err("the name at the stores is empty: a file needs one".into());
    }
    let chunk = manifest_chunk(user, file);
    if chunk.parse::<ChunkName>().is_err() {
        return Err(format!(
            "the name takes {} bytes at the stores, where {} fit (what is not A-Z a-z 0-9 . _ - / @ + takes three \
             times its bytes): choose a shorter one",
            chunk.len(),
            NAME_MAX_BYTES
        ));
    }
    let stripes = size_bytes.div_ceil(stripe_bytes);
    if stripes <= STRIPES_MAX {
        return Ok(());
    }
    let wide_enough = size_bytes.div_ceil(STRIPES_MAX).next_power_of_two();
    if wide_enough > CHUNK_MAX_BYTES {
        return Err(format!("a file has at most {STRIPES_MAX} stripes of 16 MiB: put it in parts"));
    }
    Err(format!(
        "that would be {stripes} stripes, and a file has at most {STRIPES_MAX}: put it with --stripe {}KiB",
        wide_enough / 1024
    ))
}

/// The chunk of a file's manifest. Bytes that chunk names cannot have become `=XX`.
pub(crate) fn manifest_chunk(user: &str, file: &str) -> String {
    let mut name = format!("{user}/m/");
    for byte in file.bytes() {
        if byte.is_ascii_alphanumeric() || b"._-/@+".contains(&byte) {
            name.push(char::from(byte));
        } else {
            name.extend(['=', hex_digit(byte >> 4), hex_digit(byte & 15)]);
        }
    }
    name
}

fn hex_digit(nibble: u8) -> char {
    char::from(b"0123456789ABCDEF"[usize::from(nibble & 15)])
}

/// Back from [`manifest_chunk`].
pub(crate) fn file_name(user: &str, chunk: &str) -> Option<String> {
    let encoded = chunk.strip_prefix(user)?.strip_prefix("/m/")?;
    let mut bytes = Vec::new();
    let mut rest = encoded.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        if *first == b'=' {
            let (digits, tail) = tail.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = tail;
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok()
}

/// Stores in the order in which a file's manifest is looked for: every client finds the same, and a new store changes
/// little (rendezvous hashing).
pub(crate) fn home_order(name: &str, stores: &[Node]) -> Vec<Node> {
    let mut order = stores.to_vec();
    order.sort_by_key(|node| std::cmp::Reverse(xxh3_64_with_seed(name.as_bytes(), u64::from(node.0))));
    order
}

/// Bytes that a chunk of this much data occupies as a rule: whole blocks and a header. A file system may take more for itself;
/// the store then says how much.
pub(crate) fn expected_allocation(data_bytes: u64) -> u64 {
    data_bytes.div_ceil(4096) * 4096 + 4096
}

/// An id for a new file: when it was made, so that leftovers can be told from work in progress, and randomness.
pub(crate) fn new_id(now_ms: u64, random: u64) -> String {
    format!("{:012x}{random:016x}", now_ms & 0xffff_ffff_ffff)
}

/// The id in a stripe's name, and when it was made in milliseconds since 1970; nothing if it is no stripe of a file.
pub(crate) fn stripe_id<'a>(user: &str, chunk: &'a str) -> Option<(&'a str, u64)> {
    let (id, index) = chunk.strip_prefix(user)?.strip_prefix("/d/")?.split_once('.')?;
    let made = id.get(..12).filter(|_| id.len() == 28)?;
    let well_formed =
        id.bytes().all(|byte| byte.is_ascii_hexdigit()) && index.bytes().all(|byte| byte.is_ascii_digit());
    well_formed.then(|| u64::from_str_radix(made, 16).ok()).flatten().map(|made| (id, made))
}

/// Decodes what a store may send as a manifest; see [`crate::fuzz_decode`].
pub(crate) fn fuzz_manifest(bytes: &[u8]) {
    let manifest = serde_json::from_slice::<Manifest>(bytes).ok().filter(Manifest::is_sound);
    if let Some(manifest) = manifest {
        for index in [0, manifest.stripes().saturating_sub(1)] {
            assert!(manifest.store_of(index).is_some());
            assert!(manifest.chunk_of("u", index).parse::<crate::chunk::ChunkName>().is_ok(), "stripes can be named");
        }
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = stripe_id("u", text);
        if let Some(name) = file_name("u", text) {
            assert_eq!(file_name("u", &manifest_chunk("u", &name)), Some(name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn file_names_come_back(name in "\\PC{1,40}") {
            let chunk = manifest_chunk("alice", &name);
            prop_assert_eq!(file_name("alice", &chunk), Some(name));
        }

        /// A file of a million stripes was put, the version before it removed, and what was there could not be read.
        #[test]
        fn what_may_be_put_is_what_can_be_read(
            exponent in 12u32..25,
            stripes in prop_oneof![0u64..3, 999_990u64..1_000_010],
            less in 0u64..4096,
        ) {
            let stripe_bytes = 1u64 << exponent;
            let size_bytes = (stripes * stripe_bytes).saturating_sub(less);
            let written_ms = 1 << 40;
            let id = new_id(written_ms, 7);
            let manifest = Manifest { version: 1, size_bytes, stripe_bytes, id, stores: vec![Node(1)], written_ms };
            let allowed = check_new("alice", "a", size_bytes, stripe_bytes);
            prop_assert_eq!(allowed.is_ok(), manifest.is_sound());
            if let Err(advice) = allowed
                && let Some(kib) = advice.rsplit_once("--stripe ").and_then(|(_, text)| text.strip_suffix("KiB"))
            {
                check_new("alice", "a", size_bytes, kib.parse::<u64>().unwrap() * 1024).unwrap();
            }
        }

        #[test]
        fn ids_tell_when_they_were_made(now in 0u64..1 << 48, random: u64, index in 0u64..1_000_000) {
            let id = new_id(now, random);
            let chunk = format!("alice/d/{id}.{index:06}");
            prop_assert_eq!(stripe_id("alice", &chunk), Some((id.as_str(), now)));
        }
    }
}
