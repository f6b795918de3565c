//! `ullage pki`.

use super::remote::{audience_stem, numbered_key, print_json, voucher_keys};
use crate::output::shown;
use anyhow::Context;
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use ullage_net::token::Bearer;
use ullage_net::{Role, clock, keyfile, pki, revoked, tls};
use ullage_voucher::{KeyId, Keyring, Node};

/// Make the authority, certificates, keys and tokens of a site. Keys go to files with mode 0600, never to the terminal.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  ullage pki init /etc/ullage/pki\n  ullage pki issue /etc/ullage/pki bank-a --role bank --host 10.0.0.1\n  \
ullage pki issue /etc/ullage/pki store-1 --role store --host 10.0.0.2\n  ullage pki issue /etc/ullage/pki alice --role user\n  \
ullage pki issue /etc/ullage/pki etcd-1 --role etcd --host 10.0.0.3 --host etcd.ullage\n  \
ullage pki token /etc/ullage/pki alice --days 7\n\nA bank needs all keys. A store needs its certificate, capability.key, token.key where users show tokens, and all voucher keys:\n\
voucher.key and voucher.N.key, of which old ones may be gone. With only voucher-N.key (ullage pki audience; after a rotation\n\
voucher-N.2.key and so on) it accepts and makes vouchers addressed to it alone; clients say `addressed = true` beside its address in\n\
their configuration to be given such. That limits vouchers only: with capability.key, which it still has, who runs it can give any\n\
user the right to any chunk of any store, which then only its mode keeps from others than its owner; and with token.key, where\n\
servers are plain or with the certificate of a node, be any user, and an administrator."
)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

/// Some hundred years: no date is beyond those that a certificate can say.
const DAYS_MAX: i64 = 36_500;

fn days() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=DAYS_MAX)
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make the authority and the keys of vouchers, capabilities and tokens
    #[command(after_help = "Examples:\n  ullage pki init /etc/ullage/pki\n  ullage pki init pki --days 365")]
    Init {
        /// The directory
        directory: PathBuf,
        /// How long the authority is good
        #[arg(long, default_value_t = 3650, value_parser = days())]
        days: u32,
    },
    /// Make a certificate and its key
    #[command(
        after_help = "Examples:\n  ullage pki issue /etc/ullage/pki store-1 --role store --host 10.0.0.2 --host store-1.example.org\n  \
ullage pki issue /etc/ullage/pki alice --role user\n  \
ullage pki issue /etc/ullage/pki alice --role user --renew       before it ends, or after"
    )]
    Issue {
        /// The directory
        directory: PathBuf,
        /// The party: a user's name, store-NUMBER, or any other name
        name: String,
        /// What it may do: user, node, store, bank, admin or etcd (a member of the etcd that banks share)
        #[arg(long)]
        role: Role,
        /// Names and addresses a server is reached under
        #[arg(long)]
        host: Vec<String>,
        /// How long it is good
        #[arg(long, default_value_t = 365, value_parser = days())]
        days: u32,
        /// In place of those that are there; a server takes them when it is started again
        #[arg(long)]
        renew: bool,
    },
    /// Make a token, which a node shows for a user
    #[command(
        after_help = "Examples:\n  ullage pki token /etc/ullage/pki alice --days 7\n  ullage pki token /etc/ullage/pki alice --renew"
    )]
    Token {
        /// The directory
        directory: PathBuf,
        /// Whose
        name: String,
        /// What it entitles to
        #[arg(long, default_value = "user")]
        role: Role,
        /// How long it is good
        #[arg(long, default_value_t = 30, value_parser = days())]
        days: u32,
        /// In place of the one that is there
        #[arg(long)]
        renew: bool,
    },
    /// Call a certificate back before it ends, as one whose key is in wrong hands: it goes to the list ca.crl, which servers read beside
    /// ca.pem when they are started
    #[command(
        after_help = "Examples:\n  ullage pki revoke /etc/ullage/pki /etc/ullage/pki/alice.pem\n  ullage pki issue /etc/ullage/pki alice --role user --renew"
    )]
    Revoke {
        /// The directory
        directory: PathBuf,
        /// The certificate
        file: PathBuf,
    },
    /// Make the voucher keys of one store, which then accepts and makes only vouchers addressed to it; after a rotation, the new one
    #[command(after_help = "Examples:\n  ullage pki audience /etc/ullage/pki 1")]
    Audience {
        /// The directory
        directory: PathBuf,
        /// The store's number
        node: u32,
    },
    /// Make the next voucher key: give it (or what `audience` makes of it) to all stores first, then restart the banks; remove the old one K epochs later, from all
    #[command(after_help = "Examples:\n  ullage pki rotate /etc/ullage/pki")]
    Rotate {
        /// The directory
        directory: PathBuf,
    },
    /// Show whose a certificate is, and until when it is good
    #[command(after_help = "Examples:\n  ullage pki show /etc/ullage/pki/alice.pem")]
    Show {
        /// The certificate
        file: PathBuf,
    },
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let made: Vec<PathBuf> = match arguments.action {
        Action::Init { directory, days } => {
            std::fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
            pki::create_site(&directory, days)?
        }
        Action::Issue { directory, name, role, host, days, renew } => {
            if role == Role::Store && ullage_bank::identity::node_of(&name).is_none() {
                anyhow::bail!("a store is called NAME-NUMBER: its number is the node it may speak for");
            }
            let make = if renew { pki::renew } else { pki::issue };
            make(&directory, &name, role, &host, days)?;
            vec![directory.join(format!("{name}.pem")), directory.join(format!("{name}.key"))]
        }
        Action::Token { directory, name, role, days, renew } => {
            anyhow::ensure!(pki::is_name(&name), "{name:?} is no name");
            let key = keyfile::read_key(&directory.join("token.key"))?;
            let expires = clock::now_secs() + u64::from(days) * 86_400;
            let path = directory.join(format!("{name}.token"));
            let token = Bearer { name, role, expires }.sign(&key);
            let token = format!("{token}\n");
            if renew {
                keyfile::replace(&path, token.as_bytes())?;
            } else {
                keyfile::write(&path, token.as_bytes()).context("--renew makes a token anew")?;
            }
            vec![path]
        }
        Action::Revoke { directory, file } => vec![revoked::revoke(&directory, &file)?],
        Action::Audience { directory, node } => audience(&directory, Node(node))?,
        Action::Rotate { directory } => {
            let newest = voucher_keys(&directory)?.into_keys().next_back();
            let newest = newest.with_context(|| no_key(&directory))?;
            let next = newest
                .checked_add(1)
                .context("key number 255 is the last: make a new directory with `ullage pki init`")?;
            let path = numbered_key(&directory, "voucher", next);
            keyfile::new_key(&path)?;
            vec![path]
        }
        Action::Show { file } => {
            let shows = tls::certificate_in_file(&file)?.context("this certificate is not of ullage's making")?;
            let (peer, has_ended) = (shows.peer, shows.until_secs < clock::now_secs().cast_signed());
            if arguments.json {
                print_json(&serde_json::json!({
                    "version": 1,
                    "name": peer.name,
                    "role": peer.role,
                    "from_secs": shows.from_secs,
                    "until_secs": shows.until_secs,
                    "ended": has_ended,
                }))?;
            } else {
                let good = if has_ended { "was good until" } else { "good until" };
                say!("{} ({}), {good} {}", shown(&peer.name), peer.role, shows.until);
            }
            return Ok(ExitCode::SUCCESS);
        }
    };
    if arguments.json {
        print_json(&serde_json::json!({"version": 1, "made": made}))?;
    } else {
        for path in made {
            say!("{}", shown(&path));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn no_key(directory: &Path) -> String {
    format!("there is no voucher key in {}: `ullage pki init` makes the first", directory.display())
}

/// What a store that is limited to itself gets of each voucher key: after a rotation, of the one that is new.
fn audience(directory: &Path, node: Node) -> anyhow::Result<Vec<PathBuf>> {
    let mut made = Vec::new();
    let mut there = None;
    for (id, root) in voucher_keys(directory)? {
        let path = numbered_key(directory, &audience_stem(node), id);
        if path.symlink_metadata().is_ok() {
            there = Some(path);
            continue;
        }
        let root = Keyring::with_root(KeyId(id), keyfile::read_key(&root)?);
        let secret = root.audience_secret(KeyId(id), node).context("the root key gives every audience's")?;
        keyfile::write_key(&path, &secret)?;
        made.push(path);
    }
    match there {
        _ if !made.is_empty() => Ok(made),
        Some(path) => Err(keyfile::KeyFileError::Exists(path).into()),
        None => Err(anyhow::Error::msg(no_key(directory))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        pki: Arguments,
    }

    fn pki(directory: &Path, words: &str) -> anyhow::Result<ExitCode> {
        let words = words.replace("DIR", directory.to_str().unwrap());
        run(Line::try_parse_from(["ullage"].into_iter().chain(words.split(' ')))?.pki)
    }

    /// Such a number of days ended the program with a panic, and such a host was put into a certificate.
    #[test]
    fn days_and_hosts_are_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        for days in ["0", "36501", "4294967295"] {
            for command in ["init DIR", "issue DIR a --role user", "token DIR a"] {
                let error = pki(at, &format!("{command} --days {days}")).unwrap_err().to_string();
                assert!(error.contains("1..=36500"), "{error}");
            }
        }
        pki(at, "init DIR --days 36500").unwrap();
        let line = ["ullage", "issue", at.to_str().unwrap(), "s-1", "--role", "store", "--host"];
        let issue = |host| run(Line::parse_from(line.into_iter().chain([host])).pki);
        for host in ["a b", "", "10.0.0.1:7000", "a/b"] {
            let error = issue(host).unwrap_err().to_string();
            assert!(error.contains("neither a host's name nor an address"), "{error}");
        }
        assert!(!at.join("s-1.key").exists());
        issue("*.example.org").unwrap();
    }

    /// A name could be given a certificate once.
    #[test]
    fn what_is_there_is_renewed_on_demand_only() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let read = |name: &str| std::fs::read(at.join(name)).unwrap();
        pki(at, "init DIR").unwrap();
        for (command, files) in
            [("issue DIR alice --role user", vec!["alice.key", "alice.pem"]), ("token DIR alice", vec!["alice.token"])]
        {
            pki(at, command).unwrap();
            let before: Vec<_> = files.iter().map(|file| read(file)).collect();
            let error = format!("{:#}", pki(at, &format!("{command} --days 2")).unwrap_err());
            assert!(error.contains("--renew") && error.contains(files[0]), "{error}");
            assert_eq!(files.iter().map(|file| read(file)).collect::<Vec<_>>(), before);
            pki(at, &format!("{command} --days 2 --renew")).unwrap();
            assert!(files.iter().zip(before).all(|(file, before)| read(file) != before));
        }
        // A key whose certificate found no room does not stand in the way.
        std::fs::remove_file(at.join("alice.pem")).unwrap();
        assert!(pki(at, "issue DIR alice --role user").is_err());
        pki(at, "issue DIR alice --role user --renew").unwrap();
        tls::client(&tls::Files::in_directory(at, "alice")).unwrap();
        assert!(!std::fs::read_dir(at).unwrap().any(|entry| entry.unwrap().path().extension() == Some("new".as_ref())));
    }
}
