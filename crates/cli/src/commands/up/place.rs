//! Which space `up` is asked for: where it lies, and what it consists of.

use super::super::hint;
use super::Up;
use anyhow::bail;
use std::path::{Path, PathBuf};
use ullage_daemon::{Layout, SpaceSettings, State};

impl Up {
    pub(super) fn place(&self) -> anyhow::Result<(PathBuf, State)> {
        let mountpoint = super::super::settled(&self.mountpoint)?;
        let state = match &self.state {
            Some(dir) => State::at(std::path::absolute(dir)?),
            None => State::of_mountpoint(&mountpoint),
        };
        // Another space may be mounted there, or around the state.
        ullage_daemon::refuse_silent(&mountpoint, super::super::PATIENCE)?;
        ullage_daemon::refuse_silent(state.dir(), super::super::PATIENCE)?;
        state.refuse_users()?;
        state.refuse_users_link(&mountpoint)?;
        refuse_dangling(&mountpoint, &state)?;
        Ok((mountpoint, state))
    }

    pub(super) fn settings(&self, mountpoint: &Path, state: &State) -> anyhow::Result<SpaceSettings> {
        let settings = match state.load()? {
            Some(mut settings) => {
                let known = |asked| settings.pools.iter().any(|pool| pool.is_as_asked(asked));
                let spread = self.spread.as_ref().is_none_or(|spread| *spread == settings.spread);
                // The same command again, as scripts give it, is no error; one that imports, until all is taken in.
                let is_done = settings.pools.iter().all(|pool| !pool.import);
                if !self.pools.iter().all(known) || !spread || self.import && is_done {
                    bail!(
                        "the space exists already, and not as asked for: its pools stand in {}; leave out --pool, --spread and --import \
                         (`ullage pool add` and `ullage pool remove` change them)",
                        state.settings_path().display()
                    );
                }
                settings.mountpoint = mountpoint.to_owned();
                for name in &self.without {
                    settings.leave_out(name)?;
                }
                if let Some(reserve) = self.reserve {
                    let own =
                        |name: &str| self.pools.iter().any(|asked| asked.name == name && asked.reserve_bytes.0 > 0);
                    let others = settings.pools.iter_mut().filter(|pool| !own(&pool.name));
                    others.for_each(|pool| pool.reserve_bytes = reserve);
                }
                settings
            }
            None => {
                if self.pools.is_empty() {
                    bail!(
                        "there is no space at {} yet; say where its data goes, as in `{} --pool main=/some/directory`",
                        state.dir().display(),
                        hint::command("up", state, mountpoint)
                    );
                }
                if let Some(name) = self.without.first() {
                    bail!("--without {name} is for a space that was made before");
                }
                let spread = self.spread.clone().unwrap_or_else(|| "most-free".into());
                let mut pools = self.pools.clone();
                if self.import && !pools.iter().any(|pool| pool.layout == Layout::Mirror) {
                    bail!("--import is for pools with layout=mirror, and there is none");
                }
                for pool in &mut pools {
                    pool.import = self.import && pool.layout == Layout::Mirror;
                }
                if let Some(reserve) = self.reserve {
                    pools
                        .iter_mut()
                        .filter(|pool| pool.reserve_bytes.0 == 0)
                        .for_each(|pool| pool.reserve_bytes = reserve);
                }
                SpaceSettings::new(mountpoint, pools, spread)?
            }
        };
        for pool in settings.pools.iter().filter(|pool| !pool.absent) {
            ullage_daemon::refuse_silent(&pool.path, super::super::PATIENCE)?;
        }
        ullage_daemon::refuse_places(&settings, state)?;
        Ok(settings)
    }
}

/// Refuses a new space where a link leads to a state that is not there: its disk may only not be mounted yet.
fn refuse_dangling(mountpoint: &Path, state: &State) -> anyhow::Result<()> {
    let usual = State::of_mountpoint(mountpoint);
    match std::fs::read_link(usual.dir()) {
        Ok(target) if target != state.dir() && !state.settings_path().exists() => {
            super::super::dangling(&usual).map_or(Ok(()), |why| Err(anyhow::anyhow!(why)))
        }
        _ => Ok(()),
    }
}
