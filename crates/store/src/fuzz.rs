//! Every decoder of stored or received bytes, for fuzzing.

use crate::chunk::fuzz_record;
use crate::chunk::header::Header;
use crate::client::fuzz_manifest;
use crate::wire::{ChunkList, WriteAnswer};

/// Decodes `bytes` as each thing that a store's files or a peer may contain. None may panic; a header or record that is
/// read must be written again as the same bytes, or two stored forms would mean the same.
pub fn fuzz_decode(bytes: &[u8]) {
    if let Ok(header) = Header::from_body(bytes) {
        assert_eq!(header.body(), bytes, "a header has one form");
        if header.body().len() < crate::chunk::header::HEADER_BYTES - 20 {
            assert_eq!(Header::from_page(&header.page()), Ok(header), "a header survives its page");
        }
    }
    let _ = Header::from_page(bytes);
    fuzz_record(bytes);
    fuzz_manifest(bytes);
    let _ = serde_json::from_slice::<WriteAnswer>(bytes);
    let _ = serde_json::from_slice::<ChunkList>(bytes);
}
