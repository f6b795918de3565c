//! `mount.fuse.ullage`: what mount(8) runs for a line in fstab(5), and to remount. The same program by another name.

use super::Command;
use super::up::Up;
use anyhow::bail;
use clap::Parser;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use ullage_daemon::{Answer, Client, Flags, Request, State};

/// What mount(8) takes for "nothing was mounted".
const FAILED: u8 = 32;
/// And for a wrong call.
const MISUSED: u8 = 1;

/// mount(8)'s own, and what it finds in the table of mounts when it remounts: nothing to do.
const IGNORED: [&str; 21] = [
    "defaults",
    "auto",
    "noauto",
    "nofail",
    "_netdev",
    "user",
    "nouser",
    "users",
    "nousers",
    "owner",
    "noowner",
    "group",
    "nogroup",
    "iversion",
    "noiversion",
    "mand",
    "nomand",
    "silent",
    "loud",
    "default_permissions",
    "allow_other",
];
const IGNORED_WITH_VALUE: [&str; 13] = [
    "x-",
    "X-",
    "comment=",
    "user=",
    "uhelper=",
    "helper=",
    "user_id=",
    "group_id=",
    "rootmode=",
    "fd=",
    "max_read=",
    "blksize=",
    "fsname=",
];

/// Start a space and mount it, for mount(8).
#[allow(clippy::struct_excessive_bools, reason = "switches that mount(8) has")]
#[derive(Debug, Parser)]
#[command(
    name = "mount.fuse.ullage",
    version,
    disable_help_flag = true,
    after_help = "\
In /etc/fstab:
  /srv/space.ullage  /srv/space  fuse.ullage  defaults,nofail  0  0
Options are those of mount(8) but sync and dirsync, and of `ullage up`: transport=, enable_uring, no_passthrough, size=, reserve=, without=
systemd ends a mount that takes longer than 90 seconds: x-systemd.mount-timeout=1h has it wait
A remount changes those of mount(8) and size=, and names those of the others that differ"
)]
pub struct MountHelper {
    /// The space's state directory; `none` is MOUNTPOINT.ullage.
    state: PathBuf,
    /// Where to mount.
    mountpoint: PathBuf,
    /// Options, separated by commas.
    #[arg(short = 'o', value_name = "OPTIONS", value_delimiter = ',')]
    options: Vec<String>,
    /// Read the options, and do nothing.
    #[arg(short = 'f')]
    fake: bool,
    /// Another mount namespace; refused.
    #[arg(short = 'N', value_name = "NAMESPACE", hide = true)]
    namespace: Option<OsString>,
    /// Pass over options that are not known.
    #[arg(short = 's')]
    sloppy: bool,
    /// For other helpers.
    #[arg(short = 'n', hide = true)]
    no_table: bool,
    /// For other helpers.
    #[arg(short = 'v', hide = true)]
    verbose: bool,
    /// For other helpers.
    #[arg(short = 't', hide = true)]
    kind: Option<String>,
}

/// What the options come to.
#[derive(Debug, Default)]
struct Wanted {
    flags: Flags,
    remount: bool,
    /// Arguments of `ullage up`.
    arguments: Vec<String>,
}

impl MountHelper {
    /// Whether this program was called by that name.
    pub fn is_meant(name: Option<&OsString>) -> bool {
        let name = name.and_then(|name| Path::new(name).file_name());
        name.is_some_and(|name| name.as_encoded_bytes().starts_with(b"mount."))
    }

    /// Does what mount(8) asks for; the exit codes are those it knows.
    pub fn start() -> ExitCode {
        let helper = match Self::try_parse() {
            Ok(helper) => helper,
            Err(error) => {
                let _ = error.print();
                return ExitCode::from(if error.use_stderr() { MISUSED } else { 0 });
            }
        };
        match helper.act() {
            Ok(code) if code == ExitCode::SUCCESS => code,
            Ok(_) => ExitCode::from(FAILED),
            Err(error) => {
                whisper!("mount.fuse.ullage: {}", crate::output::error(&error));
                ExitCode::from(FAILED)
            }
        }
    }

    fn act(&self) -> anyhow::Result<ExitCode> {
        if let Some(namespace) = &self.namespace {
            bail!(
                "nothing is mounted in another mount namespace than that of who mounts: enter {} first, with nsenter(1), and mount it there",
                namespace.display()
            );
        }
        let wanted = wanted(&self.options, self.sloppy)?;
        let mut arguments: Vec<OsString> = ["ullage".into(), "up".into(), self.mountpoint.clone().into()].into();
        if self.state.as_os_str() != "none" {
            arguments.extend(["--state".into(), self.state.clone().into()]);
        }
        arguments.extend(["--options".into(), wanted.flags.to_string().into()]);
        arguments.extend(wanted.arguments.into_iter().map(OsString::from));
        let Command::Up(up) = crate::Arguments::try_parse_from(arguments)?.command else {
            bail!("a line mounts a space, and nothing else");
        };
        if self.fake {
            Ok(ExitCode::SUCCESS)
        } else if wanted.remount {
            self.remount(&up, wanted.flags)
        } else if self.is_mounted()? {
            Ok(ExitCode::SUCCESS)
        } else {
            up.run()
        }
    }

    /// `mount -a` leaves alone what is mounted, and knows that by its source: not where the line says `none`.
    fn is_mounted(&self) -> anyhow::Result<bool> {
        let point = super::settled(&self.mountpoint)?;
        let state =
            if self.state.as_os_str() == "none" { State::of_mountpoint(&point) } else { State::at(self.state.clone()) };
        let Ok((found, own)) = ullage_daemon::find_mount(&point) else { return Ok(false) };
        if found != point || ullage_daemon::settled(own.dir())? != ullage_daemon::settled(state.dir())? {
            return Ok(false);
        }
        let Some(mut client) = Client::connect(&own)? else { return Ok(false) };
        client.patience(Some(super::PATIENCE));
        // One that is just ending `up` waits for.
        let answer = client.ask(&Request::Status);
        Ok(matches!(answer, Ok(Answer::Status(now)) if now.mountpoint == point && !now.detached))
    }

    fn remount(&self, up: &Up, flags: Flags) -> anyhow::Result<ExitCode> {
        let left = up.change()?;
        ullage_daemon::remount(&self.mountpoint, flags)?;
        if !left.is_empty() {
            whisper!(
                "mount.fuse.ullage: a remount leaves as they are: {}; to change them, unmount {} and mount it again",
                left.join(", "),
                self.mountpoint.display()
            );
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Wanted {
    /// An option may stand in the table and on the command line: the last one counts.
    fn ask(&mut self, argument: String) {
        let name = |argument: &str| argument.split('=').next().map(str::to_owned);
        self.arguments.retain(|known| name(known) != name(&argument));
        self.arguments.push(argument);
    }
}

fn wanted(options: &[String], sloppy: bool) -> anyhow::Result<Wanted> {
    let mut wanted = Wanted::default();
    for option in options.iter().filter(|option| !option.is_empty()) {
        let (name, value) = option.split_once('=').map_or((option.as_str(), None), |(name, value)| (name, Some(value)));
        match (name, value) {
            ("remount", None) => wanted.remount = true,
            ("enable_uring" | "no_passthrough", None) => wanted.ask(format!("--{}", name.replace('_', "-"))),
            // It may stand there for each of several.
            ("without", Some(value)) => wanted.arguments.push(format!("--without={value}")),
            ("transport" | "size" | "reserve", Some(value)) => wanted.ask(format!("--{name}={value}")),
            _ if wanted.flags.apply(option) || IGNORED.contains(&option.as_str()) || sloppy => {}
            _ if IGNORED_WITH_VALUE.iter().any(|known| option.starts_with(known)) => {}
            _ => bail!("the option '{option}' is not known: nothing was mounted"),
        }
    }
    wanted.flags = wanted.flags.if_done().map_err(anyhow::Error::msg)?;
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> anyhow::Result<Wanted> {
        wanted(&text.split(',').map(str::to_owned).collect::<Vec<_>>(), false)
    }

    #[test]
    fn options_of_fstab_become_arguments_of_up() {
        let wanted =
            of("rw,silent,mand,nofail,nousers,noowner,nogroup,x-systemd.after=a,nosuid,size=1G,without=a,size=10G,enable_uring,transport=device,without=b,_netdev")
                .unwrap();
        assert_eq!(wanted.flags.to_string(), "nosuid");
        assert_eq!(
            wanted.arguments,
            ["--without=a", "--size=10G", "--enable-uring", "--transport=device", "--without=b"]
        );
        assert!(!wanted.remount);
    }

    #[test]
    fn what_the_table_of_mounts_says_is_no_obstacle_to_a_remount() {
        let wanted = of("rw,nosuid,relatime,user_id=0,group_id=0,default_permissions,allow_other,remount,ro").unwrap();
        assert!(wanted.remount);
        assert_eq!(wanted.flags.to_string(), "ro,nosuid,relatime");
    }

    #[test]
    fn options_that_are_not_known_are_refused() {
        for option in ["quota", "size", "remount=1", "transport"] {
            assert!(of(option).unwrap_err().to_string().contains(option), "{option}");
        }
    }

    /// Regression: a line of fstab(5) with `sync`, and a remount with it, were accepted and did nothing.
    #[test]
    fn options_that_would_do_nothing_are_refused() {
        for options in ["rw,sync", "dirsync", "rw,remount,sync"] {
            assert!(of(options).unwrap_err().to_string().contains("fsync(2)"), "{options}");
        }
        assert!(of("sync,remount,async").unwrap().remount, "the last one counts");
    }
}
