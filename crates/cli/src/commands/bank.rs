//! `ullage bank`.

use super::remote::{
    GateArguments, Remote, block_on, bytes, end_signal, keep_private, log, print_json, shards, versioned,
};
use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use ullage_bank::config::EngineChoice;
use ullage_bank::engine::EtcdSettings;
use ullage_bank::rebuild::Remembered;
use ullage_bank::wire::{AccountChange, AccountView};
use ullage_bank::{Bank, BankSettings};
use ullage_journal::Durability;
use ullage_net::tls;
use ullage_voucher::bank::{Answer, Policy, Waits};
use ullage_voucher::{EpochLength, Micros, Params};

/// Ten times what 200 processes of one user on two cores, each of which puts a file, were measured to ask for; and in two minutes no more than
/// is remembered of one user.
const RATE: u32 = 2000;

/// What is given and waited for where nobody says: told apart from what somebody says, which is for one policy alone.
const FLOOR: u64 = 64 << 10;
const REVOCATION_MS: u64 = 5000;

/// Run a bank, or ask one.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  ullage bank serve --pki /etc/ullage/pki --name bank-a --listen 10.0.0.1:7000 --directory /var/lib/ullage/bank\n  \
ullage bank serve --pki pki --name bank-a --listen 10.0.0.1:7000 --engine etcds://10.0.0.1:2379,10.0.0.2:2379\n  \
ullage bank quota alice 10GiB --config admin.toml\n  ullage bank quota alice\n  ullage bank history alice --json\n  ullage bank findings"
)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Run a bank
    Serve(Box<Serve>),
    /// Write the accounts of a bank of which everything was lost but the limits; then serve them as usual
    Rebuild(Rebuild),
    /// Show or set quotas
    #[command(
        after_help = "Examples:\n  ullage bank quota\n  ullage bank quota alice 10GiB\n  ullage bank quota alice --block true\n  ullage bank quota alice --remove"
    )]
    Quota {
        /// Whose; all by default, for a user the own
        user: Option<String>,
        /// The new quota
        #[arg(value_parser = bytes)]
        quota: Option<u64>,
        /// Refuse the user further vouchers (true) or allow them again (false)
        #[arg(long, requires = "user")]
        block: Option<bool>,
        /// Remove the account: no more vouchers, and nothing is left of it once nothing of the user's is stored
        #[arg(long, requires = "user", conflicts_with_all = ["quota", "block"])]
        remove: bool,
        #[command(flatten)]
        remote: Remote,
    },
    /// Show what a user was given, by epoch
    #[command(after_help = "Example:\n  ullage bank history alice")]
    History {
        /// Whose
        user: String,
        #[command(flatten)]
        remote: Remote,
    },
    /// Show who cheated
    #[command(after_help = "Example:\n  ullage bank findings | jq .findings")]
    Findings {
        #[command(flatten)]
        remote: Remote,
    },
    /// Show who leads, which stores count, and which a rebuilt bank waits for; fails when no bank answers
    #[command(after_help = "Example:\n  ullage bank status | jq .banks")]
    Status {
        #[command(flatten)]
        remote: Remote,
    },
    /// Give a store up: what was on it is lost and no longer counts; fails while it has a lease
    #[command(after_help = "Example:\n  ullage bank exclude 3")]
    Exclude {
        /// The store's number
        node: u32,
        #[command(flatten)]
        remote: Remote,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum PolicyName {
    Limiting,
    Revocation,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum WaitsName {
    Answers,
    Enough,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum AnswerName {
    Notify,
    Refuse,
    Hook,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The file, as TOML:\n  stores = [1, 2, 3]          # all there are; nothing is issued before each has said what it holds\n  \
epoch_at_least = 0          # the newest epoch anybody remembers\n  issue_permille = 0          # issue so much of each quota meanwhile, at the risk of exceeding it by that\n  \
[limits]\n  alice = \"10GiB\"\n\nExamples:\n  ullage bank rebuild remembered.toml --directory /var/lib/ullage/bank\n  \
ullage bank rebuild remembered.toml --engine etcds://10.0.0.1:2379/second --pki pki --name bank-a"
)]
struct Rebuild {
    /// What is still known: limits and stores
    #[arg(value_name = "FILE")]
    remembered: PathBuf,
    /// Where the accounts are to be kept: an empty directory
    #[arg(long, default_value = "/var/lib/ullage/bank", value_name = "DIR")]
    directory: PathBuf,
    /// Keep the accounts in etcd instead, as `bank serve` would find them; where others are there already, under another NAME
    #[arg(long, value_name = "URL", conflicts_with = "directory")]
    engine: Option<String>,
    /// Let a plain etcd:// be on another machine
    #[arg(long)]
    plain_etcd: bool,
    /// With etcds://, the directory of the certificate that is shown
    #[arg(long, value_name = "DIR", requires = "name")]
    pki: Option<PathBuf>,
    /// With etcds://, the bank whose certificate that is
    #[arg(long, requires = "pki")]
    name: Option<String>,
    /// Over how many shards users are spread; as in the lost bank
    #[arg(long, default_value_t = 1, value_parser = shards())]
    shards: u32,
    /// Epochs for which a voucher is valid (X); as in the lost bank
    #[arg(long, default_value_t = 2)]
    expiry_epochs: u64,
    /// Epochs after which vouchers are reconciled (K); as in the lost bank
    #[arg(long, default_value_t = 3)]
    reconcile_epochs: u64,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  ullage bank serve --pki /etc/ullage/pki --name bank-a --listen 10.0.0.1:7000 --directory /var/lib/ullage/bank\n  \
ullage bank serve --pki pki --name bank-a --listen 10.0.0.1:7000 --policy revocation --lease-ms 600000"
)]
struct Serve {
    #[command(flatten)]
    gate: GateArguments,
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1:7000")]
    listen: String,
    /// Where other banks send clients, if not to that address: each bank's own, also where all listen on 0.0.0.0
    #[arg(long)]
    advertise: Option<String>,
    /// Where the accounts are kept
    #[arg(long, default_value = "/var/lib/ullage/bank", value_name = "DIR")]
    directory: PathBuf,
    /// Keep the accounts in etcd instead: etcds://HOST:PORT,...[/NAME], with this server's certificate; or etcd://..., which
    /// is plain
    #[arg(long, value_name = "URL", conflicts_with_all = ["directory", "no_flush"])]
    engine: Option<String>,
    /// Let a plain etcd:// be on another machine
    #[arg(long)]
    plain_etcd: bool,
    /// Over how many shards users are spread; never changes
    #[arg(long, default_value_t = 1, value_parser = shards())]
    shards: u32,
    /// Length of an epoch, in milliseconds, while a tenth of the stores' space is free; less makes it shorter in proportion
    #[arg(long, default_value_t = 600_000, value_parser = clap::value_parser!(u64).range(1..))]
    epoch_ms: u64,
    /// Shortest epoch, when space runs low and while a rebuilt bank learns what there is; 10 s by default, or the full length where that is less
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    shortest_epoch_ms: Option<u64>,
    /// Epochs for which a voucher is valid (X)
    #[arg(long, default_value_t = 2)]
    expiry_epochs: u64,
    /// Epochs after which vouchers are reconciled (K, at least X + 1)
    #[arg(long, default_value_t = 3)]
    reconcile_epochs: u64,
    /// What happens when quota runs low: each client is given a share of what is left, or others are asked to give back
    /// (clients of such a bank listen for that while they run)
    #[arg(long, value_enum, default_value = "limiting")]
    policy: PolicyName,
    /// Least that limiting gives [default: 64KiB]
    #[arg(long, value_parser = bytes)]
    floor: Option<u64>,
    /// How long a request waits under revocation, in milliseconds: for clients that hold vouchers, once for each that does not answer [default: 5000]
    #[arg(long)]
    revocation_ms: Option<u64>,
    /// What it waits for: the answers of all clients that were asked to give back, or enough of what they give back and
    /// others free [default: answers]
    #[arg(long, value_enum)]
    revocation_waits: Option<WaitsName>,
    /// Length of a store's lease, in milliseconds: so long stores take vouchers while no bank answers, and so long it takes until one can be given up
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    lease_ms: u64,
    /// What is done about a cheater
    #[arg(long, value_enum, default_value = "refuse")]
    answer: AnswerName,
    /// Program told of every finding, as JSON on its input; words separated by spaces (docs/bank-and-store.md, Cheaters)
    #[arg(long, value_name = "COMMAND")]
    notify_command: Option<String>,
    /// Program asked to make a cheater's data smaller, with --answer hook: user, user_number and excess_bytes as JSON on its input
    #[arg(long, value_name = "COMMAND")]
    hook_command: Option<String>,
    /// Answer before the accounts are on the medium: survives kill -9, not a power cut
    #[arg(long)]
    no_flush: bool,
    /// Requests a second of one party (a user with all clients, a store), and messages in them; 0 is no limit
    #[arg(long, default_value_t = RATE)]
    rate: u32,
    /// Grants, returns and clients remembered of one user (each `ullage put` is one, about 1 KB); more are denied until epochs pass
    #[arg(long, default_value_t = 262_144, value_parser = clap::value_parser!(u32).range(1..))]
    user_max: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Serve {
    /// Refuses what no bank can mean.
    fn check(&self) -> anyhow::Result<()> {
        self.gate.check_listen(&self.listen)?;
        if let Some(shortest) = self.shortest_epoch_ms {
            anyhow::ensure!(
                shortest <= self.epoch_ms,
                "the shortest epoch ({shortest} ms) is longer than an epoch ({} ms): lower --shortest-epoch-ms or raise --epoch-ms",
                self.epoch_ms
            );
        }
        anyhow::ensure!(
            !matches!(self.answer, AnswerName::Hook) || self.hook_command.is_some(),
            "--answer hook runs a program: name it with --hook-command"
        );
        anyhow::ensure!(
            matches!(self.answer, AnswerName::Hook) || self.hook_command.is_none(),
            "--hook-command is run with --answer hook only"
        );
        match self.policy {
            PolicyName::Limiting => anyhow::ensure!(
                self.revocation_ms.is_none() && self.revocation_waits.is_none(),
                "--revocation-ms and --revocation-waits are for --policy revocation"
            ),
            PolicyName::Revocation => {
                anyhow::ensure!(
                    self.floor.is_none(),
                    "--floor is for --policy limiting: revocation gives what it finds"
                );
            }
        }
        Ok(())
    }

    /// Shorter as space runs low, unless that is ruled out by a shortest one of the full length.
    fn epoch_length(&self) -> EpochLength {
        let default = EpochLength::default();
        let normal = Micros::from_millis(self.epoch_ms);
        let shortest = self.shortest_epoch_ms.map_or(default.shortest.min(normal), Micros::from_millis);
        EpochLength { normal, shortest, ..default }
    }

    /// Where etcd is, and with which certificate; what would expose the accounts is refused, and an address that names no bank: those on
    /// other machines would have it too, and be taken for this one.
    fn etcd(&self, url: &str) -> anyhow::Result<EtcdSettings> {
        let anywhere = |address: SocketAddr| address.ip().is_unspecified();
        anyhow::ensure!(
            self.advertise.is_some() || !self.listen.parse().is_ok_and(anywhere),
            "{} names no bank among several: say with --advertise HOST:PORT where clients reach this one",
            self.listen
        );
        let files = tls::Files::in_directory(&self.gate.pki, &self.gate.name);
        let trusted = self.gate.plain || self.plain_etcd;
        etcd(url, self.advertise.as_deref().unwrap_or_default(), &files, trusted)
    }
}

/// Where etcd is; what would expose the accounts is refused, unless the network is trusted.
fn etcd(url: &str, address: &str, files: &tls::Files, trusted: bool) -> anyhow::Result<EtcdSettings> {
    let etcd = EtcdSettings::parse(url, address, files)
        .with_context(|| format!("{url:?} is neither etcds://HOST:PORT,... nor etcd://HOST:PORT,..."))?;
    if let Some(member) = etcd.exposed().filter(|_| !trusted) {
        anyhow::bail!(
            "etcd at {member} would be reached without TLS, and whoever is on the way could change every account: \
             use etcds:// (docs/bank-and-store.md says how etcd is started for it), or --plain-etcd where that network is trusted"
        );
    }
    if etcd.tls.is_some() {
        // Says at once what is wrong with them.
        tls::client(files)?;
    }
    Ok(etcd)
}

fn words(command: Option<String>) -> Vec<String> {
    command.map(|command| command.split_whitespace().map(str::to_owned).collect()).unwrap_or_default()
}

fn serve(serve: Serve) -> anyhow::Result<ExitCode> {
    log();
    serve.check()?;
    ullage_daemon::raise_rlimits();
    let durability = if serve.no_flush { Durability::Process } else { Durability::Disk };
    let engine = match &serve.engine {
        None => EngineChoice::Embedded { directory: serve.directory.clone(), durability },
        Some(url) => EngineChoice::Etcd(serve.etcd(url)?),
    };
    let mut settings = BankSettings::new(engine, serve.gate.keyring(None)?, serve.gate.capability_key()?);
    settings.shards = serve.shards;
    settings.params = Params::new(serve.expiry_epochs, serve.reconcile_epochs)?;
    settings.epoch_length = serve.epoch_length();
    settings.policy = match serve.policy {
        PolicyName::Limiting => Policy::Limiting { floor: serve.floor.unwrap_or(FLOOR) },
        PolicyName::Revocation => Policy::Revocation {
            timeout: Micros::from_millis(serve.revocation_ms.unwrap_or(REVOCATION_MS)),
            waits: match serve.revocation_waits {
                None | Some(WaitsName::Answers) => Waits::Answers,
                Some(WaitsName::Enough) => Waits::Enough,
            },
        },
    };
    settings.lease = Micros::from_millis(serve.lease_ms);
    settings.answer = match serve.answer {
        AnswerName::Notify => Answer::Notify,
        AnswerName::Refuse => Answer::Refuse,
        AnswerName::Hook => Answer::Hook,
    };
    settings.notify_command = words(serve.notify_command);
    settings.hook_command = words(serve.hook_command);
    settings.gate = serve.gate.gate()?;
    settings.limits.requests_per_second = serve.rate;
    settings.user_max = serve.user_max as usize;
    keep_private(match &settings.engine {
        EngineChoice::Embedded { directory, .. } => Some(directory),
        EngineChoice::Etcd(_) => None,
    })?;
    block_on(async {
        let bank = Bank::bind(&serve.listen, settings).await?;
        serve.gate.warn_of_end()?;
        let end = end_signal();
        if serve.json {
            say!("{}", serde_json::json!({"listen": bank.address()}));
        } else {
            say!("bank listens on {}", bank.address());
        }
        bank.serve(end).await?;
        anyhow::Ok(ExitCode::SUCCESS)
    })?
}

#[cfg(feature = "etcd")]
fn rebuild_in(remembered: &Remembered, etcd: &EtcdSettings, shards: u32, params: Params) -> anyhow::Result<()> {
    Ok(block_on(remembered.rebuild_in(etcd, shards, params))??)
}

#[cfg(not(feature = "etcd"))]
fn rebuild_in(_: &Remembered, _: &EtcdSettings, _: u32, _: Params) -> anyhow::Result<()> {
    anyhow::bail!("this ullage is built without etcd; build with protoc installed, or keep the accounts in a directory")
}

fn rebuild(arguments: &Rebuild) -> anyhow::Result<ExitCode> {
    let file = &arguments.remembered;
    let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    let remembered = Remembered::parse(&text).with_context(|| format!("read {}", file.display()))?;
    let params = Params::new(arguments.expiry_epochs, arguments.reconcile_epochs)?;
    let place = match &arguments.engine {
        None => {
            keep_private(Some(&arguments.directory))?;
            remembered.rebuild(&arguments.directory, arguments.shards, params)?;
            arguments.directory.display().to_string()
        }
        Some(url) => {
            let files = match (&arguments.pki, &arguments.name) {
                (Some(pki), Some(name)) => tls::Files::in_directory(pki, name),
                _ if url.starts_with("etcds:") => anyhow::bail!("etcds:// takes a certificate: --pki DIR --name BANK"),
                _ => tls::Files::in_directory(Path::new(""), ""),
            };
            rebuild_in(&remembered, &etcd(url, "rebuild", &files, arguments.plain_etcd)?, arguments.shards, params)?;
            url.clone()
        }
    };
    say!(
        "{} accounts written to {place}; run `ullage bank serve` on it: it issues vouchers in full once all stores have \
         reported and {} epochs have passed",
        remembered.limits.len(),
        arguments.reconcile_epochs
    );
    Ok(ExitCode::SUCCESS)
}

fn show(accounts: &[AccountView], json: bool) -> anyhow::Result<()> {
    if json {
        return print_json(&serde_json::json!({"version": 1, "accounts": accounts}));
    }
    say!("{:<20} {:>16} {:>16} {:>16} {:>8}", "USER", "RECONCILED", "ISSUED", "QUOTA", "BLOCKED");
    for account in accounts {
        let blocked = if account.blocked { "yes" } else { "no" };
        say!(
            "{:<20} {:>16} {:>16} {:>16} {:>8}",
            account.user,
            account.settled_bytes,
            account.issued_bytes,
            account.quota_bytes,
            blocked
        );
    }
    Ok(())
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let connect = |remote: &Remote| -> anyhow::Result<_> {
        let mut config = remote.read()?;
        config.patience_secs.get_or_insert(Duration::from_secs(10).as_secs());
        let http = config.http()?;
        Ok(config.bank(http))
    };
    match arguments.action {
        Action::Serve(arguments) => return serve(*arguments),
        Action::Rebuild(arguments) => return rebuild(&arguments),
        Action::Quota { user, quota, block, remove, remote } => {
            let bank = connect(&remote)?;
            let own = remote.read()?.user;
            let accounts = block_on(async {
                anyhow::Ok(match user {
                    None => match bank.accounts().await {
                        Err(error) if error.code() == Some("forbidden") => vec![bank.account(&own).await?],
                        accounts => accounts?,
                    },
                    Some(user) if remove => vec![bank.remove(&user).await?],
                    Some(user) if quota.is_none() && block.is_none() => vec![bank.account(&user).await?],
                    Some(user) => {
                        vec![bank.change(&user, &AccountChange { quota_bytes: quota, blocked: block }).await?]
                    }
                })
            })??;
            show(&accounts, remote.json)?;
        }
        Action::History { user, remote } => {
            let bank = connect(&remote)?;
            let history = block_on(async { bank.history(&user).await })??;
            if remote.json {
                print_json(&versioned(&history)?)?;
            } else {
                say!(
                    "{:>10} {:>10} {:>16} {:>10} {:>16} {:>9}",
                    "EPOCH",
                    "GRANTS",
                    "GRANTED",
                    "DENIALS",
                    "RETURNED",
                    "FINDINGS"
                );
                for entry in history.entries {
                    say!(
                        "{:>10} {:>10} {:>16} {:>10} {:>16} {:>9}",
                        entry.epoch.0,
                        entry.grants,
                        entry.granted_bytes,
                        entry.denials,
                        entry.returned_bytes,
                        entry.findings
                    );
                }
            }
        }
        Action::Findings { remote } => {
            let bank = connect(&remote)?;
            let findings = block_on(async { bank.findings().await })??;
            print_json(&serde_json::json!({"version": 1, "findings": findings}))?;
        }
        Action::Status { remote } => {
            let bank = connect(&remote)?;
            let (all, answered) = block_on(async {
                let (mut all, mut answered) = (serde_json::Map::new(), false);
                for address in bank.banks() {
                    let status = match bank.status(address).await {
                        Ok(status) => {
                            answered = true;
                            serde_json::to_value(status)?
                        }
                        Err(error) => serde_json::json!({"error": error.to_string()}),
                    };
                    all.insert(address.clone(), status);
                }
                anyhow::Ok((all, answered))
            })??;
            print_json(&serde_json::json!({"version": 1, "banks": all}))?;
            anyhow::ensure!(answered, "no bank answers; `banks` in {} says where they are", remote.config.display());
        }
        Action::Exclude { node, remote } => {
            let bank = connect(&remote)?;
            let status = block_on(async { bank.exclude(node).await })??;
            print_json(&versioned(&status)?)?;
            let still_counts =
                status.shards.iter().flat_map(|shard| &shard.stores).any(|s| s.node == node && !s.given_up);
            anyhow::ensure!(
                !still_counts,
                "store {node} is not given up: it has a lease, or may still have one. End it, wait for as long as the bank's --lease-ms says, \
                 and ask again"
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        bank: Arguments,
    }

    /// All accounts were shown, and nobody was blocked.
    #[test]
    fn nobody_in_particular_cannot_be_blocked() {
        let error = Line::try_parse_from(["bank", "quota", "--block", "true"]).unwrap_err();
        assert_eq!(error.kind(), clap::error::ErrorKind::MissingRequiredArgument);
        assert!(Line::try_parse_from(["bank", "quota", "alice", "--block", "true"]).is_ok());
    }

    /// A bank ran with each: read by anybody, asking a program that was not there, or with epochs of no length.
    #[test]
    fn what_no_bank_can_mean_is_refused_at_the_start() {
        let start = |words: &str| {
            let line = format!("bank serve --pki /nowhere --name bank {words}");
            Line::try_parse_from(line.split_whitespace()).map_err(anyhow::Error::from).and_then(|line| run(line.bank))
        };
        for (words, says) in [
            ("--plain --listen 0.0.0.0:7000", "127.0.0.1"),
            ("--plain --listen [::]:7000", "127.0.0.1"),
            ("--answer hook", "--hook-command"),
            ("--epoch-ms 0", "--epoch-ms"),
            ("--lease-ms 0", "--lease-ms"),
            ("--shards 0", "--shards"),
            ("--shards 65537", "1..=65536"),
            ("--shortest-epoch-ms 0", "--shortest-epoch-ms"),
            // These were passed over.
            ("--hook-command true", "--answer hook"),
            ("--answer notify --hook-command true", "--answer hook"),
            ("--engine etcd://127.0.0.1:1 --directory /nowhere", "--directory"),
            ("--engine etcd://127.0.0.1:1 --no-flush", "--no-flush"),
            ("--policy revocation --floor 4KiB", "--floor"),
            ("--revocation-ms 100", "--policy revocation"),
            ("--policy limiting --revocation-waits enough", "--policy revocation"),
            ("--epoch-ms 100 --shortest-epoch-ms 101", "lower --shortest-epoch-ms"),
            // Nothing is wrong but that there is no such directory.
            ("--plain --listen 127.0.0.1:7000", "/nowhere"),
            ("--answer hook --hook-command true --epoch-ms 100 --shortest-epoch-ms 100", "/nowhere"),
            ("--floor 4KiB --no-flush --directory /none", "/nowhere"),
            ("--policy revocation --revocation-ms 100 --revocation-waits enough", "/nowhere"),
        ] {
            let error = format!("{:#}", start(words).unwrap_err());
            assert!(error.contains(says), "{words}: {error}");
        }
    }

    /// Epochs never shrank, and a rebuilt bank took hours, unless an option said otherwise.
    #[test]
    fn epochs_shrink_by_default() {
        let length = |words: &str| {
            let line = format!("bank serve --pki none --name bank {words}");
            match Line::try_parse_from(line.split_whitespace()).unwrap().bank.action {
                Action::Serve(serve) => serve.epoch_length(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(length(""), EpochLength::default());
        assert_eq!(length("").length(50, 1000), Micros::from_secs(300));
        assert_eq!(length("--epoch-ms 2000").length(0, 1000), Micros::from_secs(2));
        let fixed = length("--epoch-ms 60000 --shortest-epoch-ms 60000");
        assert_eq!((fixed.length(0, 1000), fixed.shortest), (Micros::from_secs(60), Micros::from_secs(60)));
    }

    #[test]
    fn the_status_of_banks_that_do_not_answer_is_a_failure() {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("root.toml");
        // Nobody listens on port 1.
        std::fs::write(&config, "user = \"root\"\nbanks = [\"127.0.0.1:1\"]\n").unwrap();
        let line = ["bank".as_ref(), "status".as_ref(), "--config".as_ref(), config.as_os_str()];
        let error = run(Line::try_parse_from(line).unwrap().bank).unwrap_err().to_string();
        assert!(error.contains("no bank answers"), "{error}");
    }

    /// Accounts went over any network in the clear.
    #[test]
    fn a_plain_etcd_elsewhere_takes_a_word() {
        let serve = |words: &str| {
            let line = format!("bank serve --name bank-a --pki none {words}");
            run(Line::try_parse_from(line.split(' ')).unwrap().bank).unwrap_err()
        };
        let error = serve("--engine etcd://127.0.0.1:1,10.0.0.1:2379").to_string();
        assert!(
            error.contains("etcds://") && error.contains("--plain-etcd") && error.contains("10.0.0.1:2379"),
            "{error}"
        );
        let error = serve("--engine etcds://10.0.0.1:2379").to_string();
        assert!(error.contains("none/"), "{error}");
        // Regression: banks on several machines had one name in etcd, so that no lead was ever handed to another.
        for listen in ["0.0.0.0:7000", "[::]:7000"] {
            let error = serve(&format!("--engine etcds://10.0.0.1:2379 --listen {listen}")).to_string();
            assert!(error.contains(listen) && error.contains("--advertise"), "{error}");
            let error = serve(&format!("--engine etcds://10.0.0.1:2379 --listen {listen} --advertise 10.0.0.2:7000"))
                .to_string();
            assert!(error.contains("none/"), "{error}");
        }
        let error = serve("--engine etcd://https://10.0.0.1:2379").to_string();
        assert!(error.contains("is neither etcds://"), "{error}");
    }
}
