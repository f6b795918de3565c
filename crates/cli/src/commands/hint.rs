//! Commands as messages name them.

use std::path::Path;
use ullage_daemon::{State, quoted};

/// `ullage up MNT`, and what else makes it find this state and no other.
pub fn command(what: &str, state: &State, mountpoint: &Path) -> String {
    let command = format!("ullage {what} {}", quoted(mountpoint));
    if is_usual(state, mountpoint) { command } else { format!("{command} --state {}", quoted(state.dir())) }
}

/// A state elsewhere is the usual one if a link to it lies at the usual place.
fn is_usual(state: &State, mountpoint: &Path) -> bool {
    let real = |path: &Path| ullage_daemon::settled(path).unwrap_or_else(|_| path.to_owned());
    real(State::of_mountpoint(&real(mountpoint)).dir()) == real(state.dir())
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
