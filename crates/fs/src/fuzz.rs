//! The decoder of what users hand in as bytes, for fuzzing.

use crate::acl::Acl;

/// Decodes `bytes` as a POSIX ACL. It may not panic, and what is read must be written again as the same bytes.
pub fn fuzz_decode(bytes: &[u8]) {
    if let Ok(acl) = Acl::decode(bytes) {
        assert_eq!(acl.encode(), bytes, "an ACL has one form");
    }
}
