//! Every decoder of files and requests, for fuzzing.

use crate::control::messages::{Answer, Request};
use crate::mirror::Generation;
use crate::{PoolSettings, SpaceSettings};

/// Decodes `bytes` as settings, as a pool of the command line, as a request, as an answer and as a name in the catalog's
/// mirror. None may panic, and what is read must survive being written.
pub fn fuzz_decode(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(settings) = toml::from_str::<SpaceSettings>(text) {
        let written = toml::to_string_pretty(&settings);
        assert!(written.is_ok_and(|text| toml::from_str::<SpaceSettings>(&text).is_ok()), "settings survive");
    }
    if let Ok(pool) = text.parse::<PoolSettings>() {
        // A path with a comma can only be written into the settings file.
        let again = pool.to_string().parse::<PoolSettings>();
        assert!(again.is_ok_and(|again| again.to_string() == pool.to_string()), "a pool survives");
    }
    let _ = serde_json::from_str::<Request>(text);
    let _ = serde_json::from_str::<Answer>(text);
    let _ = Generation::parse(text);
}
