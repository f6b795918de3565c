//! `ullage limit`.

use crate::output;
use crate::users::{Names, uid_of};
use anyhow::{Context, bail};
use clap::Args;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use ullage_daemon::{Answer, LimitChange, LimitReport, LimitSubject, Request, State, find_mount};
use ullage_types::{Bytes, ParseBytesError, ROOT};

/// A size, or `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Most(pub Option<u64>);

impl FromStr for Most {
    type Err = ParseBytesError;

    fn from_str(text: &str) -> Result<Self, ParseBytesError> {
        if text == "none" { Ok(Self(None)) } else { text.parse::<Bytes>().map(|bytes| Self(Some(bytes.0))) }
    }
}

/// A number, or `none`.
fn count(text: &str) -> Result<Most, String> {
    if text == "none" {
        return Ok(Most(None));
    }
    text.parse().map(|n| Most(Some(n))).map_err(|_| format!("'{text}' is neither a number nor `none`"))
}

/// Limit what a user, a directory or the whole space may use, or show the limits.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ullage limit /srv/space                        show all limits
  ullage limit /srv/space 100G                   the size of the whole space
  ullage limit /srv/space/projects/x 5G          all below a directory
  ullage limit /srv/space/projects/x             show what is used there, limited or not
  ullage limit /srv/space --user anna 2G         all files of a user, wherever they lie
  ullage limit /srv/space --user anna            show what a user uses, limited or not
  ullage limit /srv/space --user anna --inodes 10000
  ullage limit /srv/space --user anna none       no limit any more")]
pub struct Limit {
    /// A directory in a mounted space; the mount point stands for the whole space.
    path: PathBuf,
    /// The most bytes, or `none`.
    #[arg(value_name = "SIZE")]
    size: Option<Most>,
    /// Limit this user (a name or a number) instead of a directory.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// The most files of all kinds, or `none`.
    #[arg(long, value_name = "NUMBER", value_parser = count)]
    inodes: Option<Most>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Limit {
    /// Asks and prints.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        ullage_daemon::refuse_silent(&self.path, super::PATIENCE)?;
        let (mountpoint, state) = find_mount(&self.path)?;
        // All that is looked for is before the daemon is asked, which waits for no question that takes its time.
        if self.size.is_none() && self.inodes.is_none() {
            let limits = self.ask(&mountpoint, &state)?;
            if self.json {
                output::json(&serde_json::json!({ "limits": limits }))?;
            } else {
                print(&limits);
            }
            return Ok(ExitCode::SUCCESS);
        }
        let subject = match &self.user {
            Some(name) => {
                self.refuse_inner(&mountpoint, name)?;
                LimitSubject::User(uid_of(name)?)
            }
            None => LimitSubject::Directory(self.directory(&state, &mountpoint)?),
        };
        let change = |most: Option<Most>| match most {
            None => LimitChange::Keep,
            Some(Most(None)) => LimitChange::Lift,
            Some(Most(Some(most))) => LimitChange::Most(most),
        };
        let request = Request::SetLimit { subject, bytes: change(self.size), inodes: change(self.inodes) };
        let mut client = super::connect(&state, &mountpoint)?;
        client.patience(None);
        let Answer::LimitSet { unbound } = client.ask(&request)? else { bail!("the daemon answered another question") };
        if self.json {
            output::json(&serde_json::json!({ "unbound": unbound }))?;
        } else if unbound > 0 {
            say!(
                "{unbound} files were open for writing: they are stopped at the limit, but for what is stored into mappings"
            );
        }
        Ok(ExitCode::SUCCESS)
    }

    /// What is limited: all of it at the mount point, else one user or directory.
    fn ask(&self, mountpoint: &Path, state: &State) -> anyhow::Result<Vec<LimitReport>> {
        let user = self.user.as_deref().map(uid_of).transpose()?;
        let directory =
            if user.is_none() { Some(self.directory(state, mountpoint)?).filter(|ino| *ino != ROOT.0) } else { None };
        let mut client = super::connect(state, mountpoint)?;
        let Answer::Limits { mut limits } = client.ask(&Request::Limits { user, directory })? else {
            bail!("the daemon answered another question")
        };
        let subject = user.map(LimitSubject::User).or(directory.map(LimitSubject::Directory));
        only_of(subject, &mut limits);
        if directory.is_some() {
            let path = self.path.canonicalize().ok();
            for limit in &mut limits {
                limit.path = limit.path.take().or_else(|| path.clone());
            }
        }
        Ok(limits)
    }

    /// The number of the directory that is named.
    fn directory(&self, state: &State, mountpoint: &Path) -> anyhow::Result<u64> {
        let meta = super::seen(&self.path, self.path.metadata(), state, mountpoint)?;
        if !meta.is_dir() {
            bail!("{} is no directory; limits are on directories and users", self.path.display());
        }
        Ok(meta.ino())
    }

    /// Who names a directory may think that only what the user has there is bounded.
    fn refuse_inner(&self, mountpoint: &Path, user: &str) -> anyhow::Result<()> {
        let path = self.path.canonicalize().with_context(|| format!("cannot look at {}", self.path.display()))?;
        if path != mountpoint {
            bail!(
                "the limit of a user is on the whole space: name {} for that of {user}; or leave out --user, and {} is limited, whoever \
                 writes there",
                mountpoint.display(),
                path.display()
            );
        }
        Ok(())
    }
}

/// A daemon of before an upgrade, which runs on until its space is down, was never told whose are wanted.
fn only_of(subject: Option<LimitSubject>, limits: &mut Vec<LimitReport>) {
    limits.retain(|limit| subject.is_none_or(|subject| limit.subject == subject));
}

fn print(limits: &[LimitReport]) {
    let mut table = output::table(&["USED", "LIMIT", "FILES", "LIMIT", "ON"], &[0, 1, 2, 3]);
    let none = || "none".to_owned();
    let names = Names::of(limits.iter().filter_map(|limit| match limit.subject {
        LimitSubject::User(uid) => Some(uid),
        LimitSubject::Directory(_) => None,
    }));
    for limit in limits {
        let on = match (&limit.subject, &limit.path) {
            (LimitSubject::User(uid), _) => format!("user {}", names.show(*uid)),
            (LimitSubject::Directory(_), Some(path)) => output::shown(path),
            (LimitSubject::Directory(ino), None) => format!("directory {ino}"),
        };
        table.add_row([
            limit.used.to_string(),
            limit.limit.map_or_else(none, |most| most.to_string()),
            limit.inodes.to_string(),
            limit.limit_inodes.map_or_else(none, |most| most.to_string()),
            on,
        ]);
    }
    say!("{table}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A daemon of version 0.2 knows no such question, and answers with all.
    #[test]
    fn of_all_limits_only_those_of_who_was_asked_for_are_shown() {
        let report = |subject| LimitReport {
            subject,
            path: None,
            used: Bytes(0),
            limit: None,
            held: Bytes(0),
            inodes: 0,
            limit_inodes: None,
        };
        let all: Vec<_> = [LimitSubject::User(7), LimitSubject::User(8), LimitSubject::Directory(7)].map(report).into();
        let shown = |subject| {
            let mut limits = all.clone();
            only_of(subject, &mut limits);
            limits.into_iter().map(|limit| limit.subject).collect::<Vec<_>>()
        };
        assert_eq!(shown(Some(LimitSubject::User(7))), [LimitSubject::User(7)]);
        assert_eq!(shown(None).len(), 3);
    }
}
