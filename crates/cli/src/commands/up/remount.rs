//! What of `up`'s options a remount changes: mount(8) passes the whole line of fstab(5).

use super::{Most, Up};
use anyhow::{Context, bail};
use ullage_daemon::{Answer, LimitChange, LimitSubject, Request, SpaceSettings, StatusReport, TransportChoice};
use ullage_types::{Bytes, ROOT};

impl Up {
    /// Has the space that is mounted there be as asked for, as far as that can change while it is; gives back the options that are
    /// to change and cannot.
    pub fn change(&self) -> anyhow::Result<Vec<&'static str>> {
        let switches = self.no_passthrough || self.enable_uring || self.transport != TransportChoice::Auto;
        if self.size.is_none() && self.reserve.is_none() && self.without.is_empty() && !switches {
            return Ok(Vec::new());
        }
        let (mountpoint, state) = ullage_daemon::find_mount(&self.mountpoint)?;
        let path = self.mountpoint.canonicalize().with_context(|| format!("look at {}", self.mountpoint.display()))?;
        if path != mountpoint {
            bail!("{} is no mount point; it lies in the space at {}", path.display(), mountpoint.display());
        }
        let mut client = super::super::connect(&state, &mountpoint)?;
        if let Some(Most(most)) = self.size {
            let bytes = most.map_or(LimitChange::Lift, LimitChange::Most);
            let subject = LimitSubject::Directory(ROOT.0);
            client.patience(None);
            client.ask(&Request::SetLimit { subject, bytes, inodes: LimitChange::Keep })?;
        }
        let Answer::Status(now) = client.ask(&Request::Status)? else { bail!("the daemon answered another question") };
        let settings = state.load()?.with_context(|| format!("{} is gone", state.settings_path().display()))?;
        Ok(self.left(&now, &settings))
    }

    /// The options that say something else than what is.
    fn left(&self, now: &StatusReport, settings: &SpaceSettings) -> Vec<&'static str> {
        let transport = match self.transport {
            TransportChoice::Auto => now.transport.as_str(),
            TransportChoice::IoUring => "io_uring",
            TransportChoice::Device => "/dev/fuse",
            TransportChoice::Fuser => "fuser",
        };
        let other = |reserve: Bytes| settings.pools.iter().any(|pool| pool.reserve_bytes != reserve);
        let is_there = |name: &String| now.pools.iter().any(|pool| pool.name == *name && !pool.absent);
        let left = [
            ("transport", transport != now.transport),
            ("enable_uring", self.enable_uring && ullage_daemon::uring_is_off()),
            ("no_passthrough", self.no_passthrough && now.passthrough),
            ("reserve", self.reserve.is_some_and(other)),
            ("without", self.without.iter().any(is_there)),
        ];
        left.into_iter().filter(|(_, is_left)| *is_left).map(|(name, _)| name).collect()
    }
}
