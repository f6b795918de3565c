//! Where mount point, state and pools of a space lie, seen from one another.

use super::paths::refuse_odd_paths;
use crate::error::io_error;
use crate::{Error, Kind, Layout, PoolSettings, Result, SpaceSettings, State};
use std::path::{Path, PathBuf};

/// A path by the one name that the kernel's list of mounts has for it: no symbolic links, no slash at its end. What is not there yet
/// keeps the names that it was given.
pub fn settled(path: &Path) -> Result<PathBuf> {
    fn of(path: &Path) -> PathBuf {
        path.canonicalize().unwrap_or_else(|_| match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => of(parent).join(name),
            _ => path.to_owned(),
        })
    }
    Ok(of(&std::path::absolute(path).map_err(io_error("look for", path))?))
}

/// The directories of a path that are not there, the innermost first.
pub(crate) fn missing(dir: &Path) -> Vec<PathBuf> {
    dir.ancestors().take_while(|dir| !dir.exists()).map(Path::to_owned).collect()
}

/// Refuses paths that cannot be written down, and those that would hide or hold one another; to be asked each time before anything is
/// made, since a space may be mounted elsewhere than before.
pub fn refuse_places(settings: &SpaceSettings, state: &State) -> Result<()> {
    refuse_odd_paths(settings, state)?;
    let refused = |text| Err(Error::Refused(text));
    let (mountpoint, dir) = (settled(&settings.mountpoint)?, settled(&state.place())?);
    let catalog = settled(&state.catalog_path())?;
    if dir.starts_with(&mountpoint) {
        return refused(format!(
            "the mount point {} would hide the state {}; put it elsewhere with --state",
            mountpoint.display(),
            state.dir().display()
        ));
    }
    // One that does not answer is not asked.
    let place = |pool: &PoolSettings| if pool.absent { Ok(pool.path.clone()) } else { settled(&pool.path) };
    let paths: Vec<PathBuf> = settings.pools.iter().map(place).collect::<Result<_>>()?;
    let pools = || settings.pools.iter().zip(&paths).enumerate();
    for (index, (pool, path)) in pools() {
        if pool.kind == Kind::Dir && paths[..index].contains(path) {
            return refused(format!("two pools lie at {}; give each a directory of its own", pool.path.display()));
        }
        if path.starts_with(&mountpoint) {
            return refused(format!(
                "pool '{}' would lie below the mount point {}; put it elsewhere",
                pool.name,
                mountpoint.display()
            ));
        }
        if path.starts_with(&catalog) {
            return refused(format!("pool '{}' would lie in the catalog of the space; put it elsewhere", pool.name));
        }
        let mirror = pool.layout == Layout::Mirror;
        // Others than in plain trees that were there before this was refused stay.
        let may_not_hold = |other: &PoolSettings, place: &Path| {
            let both = pool.kind == Kind::Dir && other.kind == Kind::Dir && place != path;
            mirror || both && (pool.uuid.is_none() || other.uuid.is_none())
        };
        let is_inner = |(at, (other, place)): &(usize, (&PoolSettings, &PathBuf))| {
            *at != index && place.starts_with(path) && may_not_hold(other, place)
        };
        if let Some((_, (other, _))) = pools().find(is_inner) {
            return refused(format!(
                "pool '{}' would lie in the {} of pool '{}'; put it elsewhere",
                other.name,
                if mirror { "plain tree" } else { "directory" },
                pool.name
            ));
        }
        if !mirror {
            continue;
        }
        if mountpoint.starts_with(path) {
            return refused(format!(
                "the mount point {} lies in the plain tree of pool '{}'; mount it elsewhere",
                mountpoint.display(),
                pool.name
            ));
        }
        if dir.starts_with(path) {
            return refused(format!(
                "the state {} lies in the plain tree of pool '{}'; put it elsewhere with --state",
                state.dir().display(),
                pool.name
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_settled_as_far_as_they_are_there() {
        let ground = std::env::temp_dir().join(format!("ullage-places-{}", std::process::id()));
        std::fs::create_dir_all(ground.join("there")).unwrap();
        let real = ground.canonicalize().unwrap();
        std::os::unix::fs::symlink("there", real.join("link")).unwrap();
        for (path, expected) in [
            ("there/", "there"),
            ("link", "there"),
            ("new/", "new"),
            ("link/new/", "there/new"),
            ("link/new/deep/./er", "there/new/deep/er"),
        ] {
            assert_eq!(settled(&ground.join(path)).unwrap(), real.join(expected), "{path}");
        }
        assert!(settled(Path::new("")).is_err());
        std::fs::remove_dir_all(ground).unwrap();
    }

    #[test]
    fn what_would_hide_or_hold_one_another_is_refused() {
        let refusal = |mountpoint: &str, state: &str, pools: &[&str]| {
            let pools: Vec<PoolSettings> = pools.iter().map(|text| text.parse().unwrap()).collect();
            let settings = SpaceSettings::new(Path::new(mountpoint), pools, "most-free".into()).unwrap();
            refuse_places(&settings, &State::at(state.into())).err().map(|error| error.to_string())
        };
        for (mountpoint, state, pools, text) in [
            ("/no/m", "/no/m.ullage", &["a=/no/x", "b=/no/x/"][..], "two pools lie at"),
            ("/no/m", "/no/m.ullage", &["a=/no/m/x"], "below the mount point"),
            ("/no/m", "/no/m", &["a=/no/x"], "would hide the state"),
            ("/no/m", "/no/m/s", &["a=/no/x"], "would hide the state"),
            ("/no/m", "/no/m.ullage", &["a=/no/x,layout=mirror", "b=/no/x/y"], "pool 'b' would lie in the plain tree"),
            ("/no/m", "/no/m.ullage", &["b=/no/x/y", "a=/no/x,layout=mirror"], "pool 'b' would lie in the plain tree"),
            ("/no/m", "/no/m.ullage", &["a=/no/x", "b=/no/x/y"], "pool 'b' would lie in the directory of pool 'a'"),
            ("/no/m", "/no/m.ullage", &["b=/no/x/y", "a=/no/x"], "pool 'b' would lie in the directory of pool 'a'"),
            ("/no/m", "/no/s", &["a=/no/s/catalog/x"], "would lie in the catalog"),
            ("/no/x/m", "/no/s", &["a=/no/x,layout=mirror"], "the mount point /no/x/m lies in the plain tree"),
            ("/no/m", "/no/x/s", &["a=/no/x,layout=mirror"], "the state /no/x/s lies in the plain tree"),
        ] {
            let refusal = refusal(mountpoint, state, pools).unwrap_or_default();
            assert!(refusal.contains(text), "{pools:?}: {refusal}");
        }
        assert_eq!(refusal("/no/m", "/no/m.ullage", &["a=/no/x", "b=/no/y", "n=/no/x,kind=null"]), None);
    }
}
