//! What a `space.toml` may say, which anybody may have written by hand.

use crate::SpaceSettings;
use ullage_policy::choose::Spread;
use ullage_policy::place::Sparse;
use ullage_pool::Uuid;

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
    if let Err(error) = settings.spread.parse::<Spread>() {
        return Some(error.to_string());
    }
    if settings.pools.is_empty() {
        return Some("it names no pool, and a space has at least one: write each that it had as a [[pool]]".into());
    }
    if settings.pools.iter().all(|pool| pool.draining) {
        return Some(
            "all of its pools are to be emptied, and files need one to lie in: take `draining` away from one".into(),
        );
    }
    for (index, pool) in settings.pools.iter().enumerate() {
        if let Some(why) = wrong_name(&pool.name) {
            return Some(why);
        }
        if settings.pools[..index].iter().any(|other| other.name == pool.name) {
            return Some(format!("two pools are called '{}'; give each a name of its own", pool.name));
        }
        if pool.path.is_relative() {
            return Some(format!(
                "the path of the pool '{}', {}, does not begin with a slash, and would lead elsewhere from each directory: write all of it",
                pool.name,
                pool.path.display()
            ));
        }
        if let Err(why) = pool.sparse.of(Sparse::default()).validate() {
            return Some(format!("the pool '{}': {why}", pool.name));
        }
        if let Some(uuid) = pool.uuid.as_ref().filter(|uuid| Uuid::parse(uuid).is_none()) {
            return Some(format!(
                "the uuid of the pool '{}', '{}', is none: write the one that .ullage-pool.toml beside its files has",
                pool.name,
                uuid.escape_debug()
            ));
        }
        if let Some(other) = settings.pools[..index].iter().find(|other| other.id == pool.id) {
            return Some(format!(
                "the pools '{}' and '{}' both have the number {}: write the one that each had",
                other.name, pool.name, pool.id
            ));
        }
    }
    None
}

/// Why a pool cannot have this name.
pub(crate) fn wrong_name(name: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let fits = !name.is_empty() && name.len() <= 64 && name.chars().all(plain);
    let shown = name.escape_debug();
    (!fits).then(|| format!("'{shown}' is no name for a pool: use letters, digits, '-' and '_', 64 at most (its files stay where they are)"))
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

    /// Regressions: a period that no clock can add to ended the mount, and so did no pools at all; a check called them clean, and what `up`
    /// refused. Two pools of one name, and names that no command line takes, were served.
    #[test]
    fn what_no_space_can_have_is_refused_when_settings_are_read() {
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
        let named = |name: &str| {
            let mut settings = good.clone();
            settings.pools[1].name = name.into();
            settings
        };
        assert!(read(&named("a")).unwrap_err().contains("two pools are called 'a'"));
        for name in ["", "a\nb", "a,b", "a=b", "ä", &"n".repeat(65)] {
            let error = read(&named(name)).unwrap_err();
            assert!(error.contains("is no name for a pool") && error.lines().count() == 1, "{error}");
        }
        read(&named(&"n".repeat(64))).unwrap();
        // It led the check and the daemon to different places.
        let mut relative = good.clone();
        relative.pools[1].path = "y".into();
        assert!(read(&relative).unwrap_err().contains("does not begin with a slash"));
        let mut drained = good.clone();
        drained.pools[0].draining = true;
        read(&drained).unwrap();
        drained.pools[1].draining = true;
        assert!(read(&drained).unwrap_err().contains("all of its pools are to be emptied"));
        let error = read(&SpaceSettings { pools: Vec::new(), ..good.clone() }).unwrap_err();
        assert!(error.contains("names no pool"), "{error}");
        let error = read(&SpaceSettings { spread: "thin".into(), ..good.clone() }).unwrap_err();
        assert!(error.contains("most-free, round-robin or first-fit"), "{error}");
        let mut deep = good.clone();
        deep.pools[1].sparse.depth = Some(9);
        assert!(read(&deep).unwrap_err().contains("the pool 'b': depth must be"));
        // It was taken for a pool that was never used: an empty directory, whose disk was not mounted, became a new one in its place.
        let mut nobody = good.clone();
        nobody.pools[1].uuid = Some("a\nb".into());
        let error = read(&nobody).unwrap_err();
        assert!(error.contains("the uuid of the pool 'b'") && error.lines().count() == 1, "{error}");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
