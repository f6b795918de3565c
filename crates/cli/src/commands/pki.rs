//! `ullage pki`.

use super::remote::{print_json, voucher_keys};
use anyhow::Context;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use ullage_net::token::Bearer;
use ullage_net::{Role, clock, keyfile, pki, tls};
use ullage_voucher::{KeyId, Keyring, Node};

/// Make the authority, certificates, keys and tokens of a site. Keys go to files with mode 0600, never to the terminal.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  ullage pki init /etc/ullage/pki\n  ullage pki issue /etc/ullage/pki bank-a --role bank --host 10.0.0.1\n  \
ullage pki issue /etc/ullage/pki store-1 --role store --host 10.0.0.2\n  ullage pki issue /etc/ullage/pki alice --role user\n  \
ullage pki token /etc/ullage/pki alice --days 7\n\nA bank needs all keys. A store needs its certificate, capability.key, token.key, and all voucher keys: voucher.key and\n\
voucher.N.key, of which old ones may be gone. With only voucher-N.key (ullage pki audience) it accepts and makes vouchers\n\
addressed to it alone; banks make none such so far, so it takes nothing but its own refunds."
)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make the authority and the keys of vouchers, capabilities and tokens
    Init {
        /// The directory
        directory: PathBuf,
        /// How long the authority is good
        #[arg(long, default_value_t = 3650)]
        days: u32,
    },
    /// Make a certificate and its key
    Issue {
        /// The directory
        directory: PathBuf,
        /// The party: a user's name, store-NUMBER, or any other name
        name: String,
        /// What it may do: user, node, store, bank or admin
        #[arg(long)]
        role: Role,
        /// Names and addresses a server is reached under
        #[arg(long)]
        host: Vec<String>,
        /// How long it is good
        #[arg(long, default_value_t = 365)]
        days: u32,
    },
    /// Make a token, which a node shows for a user
    Token {
        /// The directory
        directory: PathBuf,
        /// Whose
        name: String,
        /// What it entitles to
        #[arg(long, default_value = "user")]
        role: Role,
        /// How long it is good
        #[arg(long, default_value_t = 30)]
        days: u32,
    },
    /// Make the voucher key of one store, which then accepts and makes only vouchers addressed to it: its own refunds, since banks
    /// address none so far
    Audience {
        /// The directory
        directory: PathBuf,
        /// The store's number
        node: u32,
    },
    /// Make the next voucher key: give it to all stores first, then restart the banks; remove the old one K epochs later, from all
    Rotate {
        /// The directory
        directory: PathBuf,
    },
    /// Show whose a certificate is
    Show {
        /// The certificate
        file: PathBuf,
    },
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let made: Vec<PathBuf> = match arguments.action {
        Action::Init { directory, days } => {
            std::fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
            pki::create_authority(&directory, days)?;
            for key in ["voucher.key", "capability.key", "token.key"] {
                keyfile::new_key(&directory.join(key))?;
            }
            ["ca.pem", "ca.key", "voucher.key", "capability.key", "token.key"].map(|file| directory.join(file)).into()
        }
        Action::Issue { directory, name, role, host, days } => {
            if role == Role::Store && ullage_bank::identity::node_of(&name).is_none() {
                anyhow::bail!("a store is called NAME-NUMBER: its number is the node it may speak for");
            }
            pki::issue(&directory, &name, role, &host, days)?;
            vec![directory.join(format!("{name}.pem")), directory.join(format!("{name}.key"))]
        }
        Action::Token { directory, name, role, days } => {
            anyhow::ensure!(pki::is_name(&name), "{name:?} is no name");
            let key = keyfile::read_key(&directory.join("token.key"))?;
            let expires = clock::now_secs() + u64::from(days) * 86_400;
            let path = directory.join(format!("{name}.token"));
            let token = Bearer { name, role, expires }.sign(&key);
            keyfile::write(&path, format!("{token}\n").as_bytes())?;
            vec![path]
        }
        Action::Audience { directory, node } => {
            let root = keyfile::read_key(&directory.join("voucher.key"))?;
            let secret = Keyring::with_root(KeyId(1), root).audience_secret(KeyId(1), Node(node));
            let path = directory.join(format!("voucher-{node}.key"));
            keyfile::write_key(&path, &secret.context("the root key gives every audience's")?)?;
            vec![path]
        }
        Action::Rotate { directory } => {
            let newest = voucher_keys(&directory)?.into_keys().next_back();
            let newest = newest.with_context(|| {
                format!("there is no voucher key in {}: `ullage pki init` makes the first", directory.display())
            })?;
            let next = newest
                .checked_add(1)
                .context("key number 255 is the last: make a new directory with `ullage pki init`")?;
            let path = directory.join(format!("voucher.{next}.key"));
            keyfile::new_key(&path)?;
            vec![path]
        }
        Action::Show { file } => {
            let peer = tls::peer_in_file(&file)?.context("this certificate is not of ullage's making")?;
            if arguments.json {
                print_json(&serde_json::json!({"name": peer.name, "role": peer.role}))?;
            } else {
                say!("{} ({})", peer.name, peer.role);
            }
            return Ok(ExitCode::SUCCESS);
        }
    };
    if arguments.json {
        print_json(&serde_json::json!({"made": made}))?;
    } else {
        for path in made {
            say!("{}", path.display());
        }
    }
    Ok(ExitCode::SUCCESS)
}
