//! `ullage store`.

use super::remote::{GateArguments, block_on, bytes, end_signal, keep_private, log, shards};
use anyhow::Context;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use ullage_bank::client::BankClient;
use ullage_bank::identity;
use ullage_journal::Durability;
use ullage_store::server::{StoreServer, StoreSettings};
use ullage_voucher::{ChargeBy, Micros, Params};

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Charge {
    Owner,
    Writer,
}

/// Half as much again as all writes of 4 KiB that a store of two cores was measured to take (12,900): who works with small chunks is not held
/// up, and where there are more cores others keep a part.
const RATE: u32 = 20_000;

/// Run a storage server over a directory. Writes are paid for with vouchers of the banks; nothing is asked of a bank per write.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  ullage store /srv/ullage --pki /etc/ullage/pki --name store-1 --listen 10.0.0.2:7101 --bank 10.0.0.1:7000\n  \
ullage store /srv/ullage --pki pki --name store-1 --listen 127.0.0.1:0 --bank 127.0.0.1:7000 --only-addressed"
)]
#[expect(clippy::struct_excessive_bools, reason = "each is one flag")]
pub struct Arguments {
    /// Where the chunks are kept
    directory: PathBuf,
    #[command(flatten)]
    gate: GateArguments,
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1:7101")]
    listen: String,
    /// A bank, host:port; repeat for all of them
    #[arg(long = "bank")]
    banks: Vec<String>,
    /// Take writes without vouchers, from anybody with a capability: to measure what checking costs
    #[arg(long, conflicts_with = "banks")]
    unchecked: bool,
    /// Accept only vouchers addressed to this store; clients say `addressed = true` beside its address to be given such
    #[arg(long)]
    only_addressed: bool,
    /// Who is charged for a write
    #[arg(long, value_enum, default_value = "owner")]
    charge_by: Charge,
    /// Epochs for which a voucher is valid (X); the same as at the bank
    #[arg(long, default_value_t = 2)]
    expiry_epochs: u64,
    /// Epochs after which vouchers are reconciled (K, at least X + 1); the same as at the bank
    #[arg(long, default_value_t = 3)]
    reconcile_epochs: u64,
    /// Over how many shards the banks spread users
    #[arg(long, default_value_t = 1, value_parser = shards())]
    shards: u32,
    /// Answer before data are on the medium: survives kill -9, not a power cut
    #[arg(long)]
    no_flush: bool,
    /// Milliseconds between lease renewals
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..))]
    renew_ms: u64,
    /// Requests a second of one party (a user with all clients); 0 is no limit
    #[arg(long, default_value_t = RATE)]
    rate: u32,
    /// Journal size at which a snapshot is written
    #[arg(long, value_parser = bytes, default_value = "256MiB")]
    snapshot_after: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    log();
    arguments.gate.check_listen(&arguments.listen)?;
    ullage_daemon::raise_rlimits();
    let node = identity::node_of(&arguments.gate.name).context("a store is called NAME-NUMBER, like store-1")?;
    anyhow::ensure!(arguments.unchecked || !arguments.banks.is_empty(), "name at least one --bank");
    let keys = arguments.gate.keyring(Some(node))?;
    let mut settings = StoreSettings::new(arguments.directory, node, keys, arguments.gate.capability_key()?);
    settings.shards = arguments.shards;
    settings.only_addressed = arguments.only_addressed;
    settings.charge_by = match arguments.charge_by {
        Charge::Owner => ChargeBy::Owner,
        Charge::Writer => ChargeBy::Writer,
    };
    settings.params = Params::new(arguments.expiry_epochs, arguments.reconcile_epochs)?;
    settings.durability = if arguments.no_flush { Durability::Process } else { Durability::Disk };
    settings.snapshot_after_bytes = arguments.snapshot_after;
    settings.renew_every = Micros::from_millis(arguments.renew_ms);
    settings.gate = arguments.gate.gate()?;
    settings.limits.requests_per_second = arguments.rate;
    if !arguments.unchecked {
        // A renewal is worth a few seconds; after that the cores ask again.
        settings.bank = Some(BankClient::new(arguments.gate.http()?, arguments.banks, Duration::from_secs(3)));
    }
    keep_private(Some(&settings.directory))?;
    block_on(async {
        let server = StoreServer::bind(&arguments.listen, settings).await?;
        let (address, recount) = (server.address(), server.recount().clone());
        arguments.gate.warn_of_end()?;
        let end = end_signal();
        if arguments.json {
            say!("{}", serde_json::json!({"listen": address, "recount": recount}));
        } else {
            say!("store {node} listens on {address}; {} chunks, {} bytes", recount.chunks, recount.allocated_bytes);
        }
        server.serve(end).await;
        anyhow::Ok(ExitCode::SUCCESS)
    })?
}
