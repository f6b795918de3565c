//! What the numbers in a `space.toml` may be, which anybody may have written by hand.

use crate::SpaceSettings;

/// A year.
const MIRROR_SECONDS_MAX: u64 = 365 * 24 * 3600;

/// Why these settings cannot be used, and what to do.
pub(crate) fn wrong(settings: &SpaceSettings) -> Option<String> {
    if settings.mirror_seconds > MIRROR_SECONDS_MAX {
        return Some(format!(
            "mirror_seconds is {}, more than a year: write {MIRROR_SECONDS_MAX} or less, or 0 for no copies of the catalog in the pools",
            settings.mirror_seconds
        ));
    }
    for (index, pool) in settings.pools.iter().enumerate() {
        if let Some(other) = settings.pools[..index].iter().find(|other| other.id == pool.id) {
            return Some(format!(
                "the pools '{}' and '{}' both have the number {}: write the one that each had",
                other.name, pool.name, pool.id
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PoolSettings, State};
    use std::path::Path;

    fn settings() -> SpaceSettings {
        let pools: Vec<PoolSettings> = ["a=/x", "b=/y,reserve=1G"].map(|text| text.parse().unwrap()).into();
        SpaceSettings::new(Path::new("/mnt"), pools, "most-free".into()).unwrap()
    }

    /// Regression: a period that no clock can add to ended the mount.
    #[test]
    fn numbers_that_no_space_can_have_are_refused_when_settings_are_read() {
        let dir = std::env::temp_dir().join(format!("ullage-bounds-{}", std::process::id()));
        let state = State::at(dir.clone());
        let read = |settings: &SpaceSettings| {
            state.store(settings).unwrap();
            state.load().map_err(|error| error.to_string())
        };
        let good = settings();
        assert_eq!(read(&good).unwrap().unwrap(), good);
        for seconds in [MIRROR_SECONDS_MAX + 1, i64::MAX as u64] {
            let error = read(&SpaceSettings { mirror_seconds: seconds, ..good.clone() }).unwrap_err();
            assert!(error.contains("space.toml") && error.contains("more than a year"), "{error}");
        }
        for seconds in [0, MIRROR_SECONDS_MAX] {
            read(&SpaceSettings { mirror_seconds: seconds, ..good.clone() }).unwrap();
        }
        let mut same = good.clone();
        same.pools[1].id = 0;
        assert!(read(&same).unwrap_err().contains("both have the number 0"));
        std::fs::remove_dir_all(dir).unwrap();
    }
}
