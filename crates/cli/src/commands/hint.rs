//! Commands as messages name them.

use std::path::Path;
use ullage_daemon::State;

/// A command by the name that the caller has for the mount point, which may be a link.
pub fn command(what: &str, state: &State, mountpoint: &Path) -> String {
    let settled = ullage_daemon::settled(mountpoint).unwrap_or_else(|_| mountpoint.to_owned());
    ullage_daemon::command(what, state, &settled)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `ullage up MNT` alone would have made or started another space.
    #[test]
    fn a_hint_names_a_state_that_is_not_at_the_usual_place() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let (point, elsewhere) = (at("space"), State::at(at("state")));
        std::fs::create_dir(elsewhere.dir()).unwrap();
        let plain = format!("ullage up {}", point.display());
        assert_eq!(command("up", &State::of_mountpoint(&point), &point), plain);
        let stated = format!("{plain} --state {}", elsewhere.dir().display());
        assert_eq!(command("up", &elsewhere, &point), stated);
        let why = |state: &State| super::super::not_up(state, &point).to_string();
        std::fs::write(elsewhere.settings_path(), "").unwrap();
        assert!(why(&elsewhere).contains(&format!("`{stated}`")), "{}", why(&elsewhere));
        std::os::unix::fs::symlink(elsewhere.dir(), at("space.ullage")).unwrap();
        assert_eq!(command("up", &elsewhere, &point), plain);
        let (blank, state) = (at("a space"), State::at(at("a state")));
        assert_eq!(
            command("up", &state, &blank),
            format!("ullage up '{}' --state '{}'", blank.display(), state.dir().display())
        );
    }
}
