//! A bank's rows: how its state survives a restart or moves to another leader.

use super::account::AccountRow;
use super::grant::Grant;
use super::returns::Recorded;
use super::stores::{StoreRow, StoreState};
use super::{BankAction, BankConfig, BankCore, BankOutput, Finding, Head};
use crate::message::Report;
use crate::rows::{Key, LoadError, Row};
use crate::{Client, Epoch, Incarnation, Issuer, Keyring, Node, Op, Params, Piece, User, VoucherId, Write};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const HEAD: u8 = b'm';
const RECOVERY: u8 = b'x';
const ACCOUNT: u8 = b'a';
/// Of older versions: all of a user's pool.
const POOL: u8 = b'p';
const POOLED: u8 = b'q';
const GRANT: u8 = b'g';
const RETURN: u8 = b't';
const MOVED: u8 = b'c';
const STORE: u8 = b'd';
const SETTLED: u8 = b's';
const REPORT: u8 = b'r';
const FINDING: u8 = b'n';
const PARAMS: u8 = b'k';

pub(super) fn recovery_key() -> Key {
    Key::new(RECOVERY)
}

/// X and K, which never change: under others, what was issued before would be counted too short, or not be there.
pub(super) fn params_row(params: Params) -> Write {
    Key::new(PARAMS).put(&(params.expiry(), params.reconcile()))
}

pub(super) fn account_key(user: User) -> Key {
    Key::new(ACCOUNT).u64(user.0)
}

/// A row for each: a user may have as many as the bank remembers, and each that comes or goes would else write all of them.
pub(super) fn pooled_key(user: User, piece: &Piece) -> Key {
    let (epoch, id) = (piece.voucher.terms.epoch, piece.id());
    let key = Key::new(POOLED).u64(user.0).u64(epoch.0);
    key.u32(id.issuer.node.0).u32(id.issuer.incarnation.0).u64(id.serial)
}

pub(super) fn grant_key(epoch: Epoch, client: Client, op: Op) -> Key {
    Key::new(GRANT).u64(epoch.0).u64(client.0).u64(op.0)
}

pub(super) fn return_key(epoch: Epoch, client: Client, op: Op) -> Key {
    Key::new(RETURN).u64(epoch.0).u64(client.0).u64(op.0)
}

pub(super) fn moved_key(epoch: Epoch, voucher: VoucherId) -> Key {
    let issuer = voucher.issuer;
    Key::new(MOVED).u64(epoch.0).u32(issuer.node.0).u32(issuer.incarnation.0).u64(voucher.serial)
}

pub(super) fn store_key((node, incarnation): (Node, Incarnation)) -> Key {
    Key::new(STORE).u32(node.0).u32(incarnation.0)
}

pub(super) fn settled_key((node, incarnation): (Node, Incarnation), user: User) -> Key {
    Key::new(SETTLED).u32(node.0).u32(incarnation.0).u64(user.0)
}

pub(super) fn report_key((node, incarnation): (Node, Incarnation), epoch: Epoch) -> Key {
    Key::new(REPORT).u32(node.0).u32(incarnation.0).u64(epoch.0)
}

pub(super) fn finding_key((epoch, number): (Epoch, u64)) -> Key {
    Key::new(FINDING).u64(epoch.0).u64(number)
}

impl BankCore {
    /// A bank as its writes left it, in a new life: `at_least` is raised above the one that was saved, and
    /// serials begin anew in it. With several banks pass the leader's term. Total: damaged rows are an error.
    pub fn load<'a>(
        config: BankConfig,
        keys: Arc<Keyring>,
        at_least: Incarnation,
        rows: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
        out: &mut BankOutput,
    ) -> Result<Self, LoadError> {
        let mut found: Option<Head> = None;
        let mut kept: Option<(u64, u64)> = None;
        let nothing = Head { incarnation: at_least, epoch: Epoch(0), horizon: Epoch(0), known_since: Incarnation(0) };
        let mut core = Self::assemble(config, keys, nothing);
        for (key, value) in rows {
            let mut row = Row::new(key, value);
            match row.tag() {
                HEAD => found = Some(row.value()?),
                PARAMS => kept = Some(row.value()?),
                RECOVERY => core.load_recovery(row.value()?),
                ACCOUNT => {
                    let user = User(row.u64()?);
                    let saved: AccountRow = row.value()?;
                    let account = core.accounts.entry(user).or_default();
                    account.quota = saved.quota;
                    account.blocked = saved.blocked;
                    account.removed = saved.removed;
                }
                POOL => {
                    let user = User(row.u64()?);
                    let pool: Vec<Piece> = row.value()?;
                    let account = core.accounts.entry(user).or_default();
                    out.writes.push(Key::new(POOL).u64(user.0).remove());
                    for piece in pool {
                        let pooled = account.pool_put(piece);
                        out.writes.push(pooled_key(user, &pooled).put(&pooled));
                    }
                }
                POOLED => {
                    let user = User(row.u64()?);
                    // Which it is the piece says itself.
                    let _ = (row.u64()?, row.u32()?, row.u32()?, row.u64()?);
                    core.accounts.entry(user).or_default().pool_put(row.value()?);
                }
                GRANT => core.load_grant(row)?,
                RETURN => {
                    let (epoch, client, op) = (Epoch(row.u64()?), Client(row.u64()?), Op(row.u64()?));
                    // Rows of older versions do not say whose.
                    let (accepted, user) = match row.value::<(u64, User)>() {
                        Ok((accepted, user)) => (accepted, Some(user)),
                        Err(_) => (row.value()?, None),
                    };
                    core.record_return(client, op, Recorded { epoch, accepted, user });
                }
                MOVED => {
                    let epoch = Epoch(row.u64()?);
                    let issuer = Issuer { node: Node(row.u32()?), incarnation: Incarnation(row.u32()?) };
                    let voucher = VoucherId { issuer, serial: row.u64()? };
                    let claims: BTreeMap<Client, i64> = row.value()?;
                    core.moved.entry(epoch).or_default().insert(voucher, claims);
                }
                STORE => core.load_store(row)?,
                SETTLED => {
                    let key = (Node(row.u32()?), Incarnation(row.u32()?));
                    let user = User(row.u64()?);
                    let used: i64 = row.value()?;
                    core.stores.entry(key).or_default().settled.insert(user, used);
                }
                REPORT => {
                    let key = (Node(row.u32()?), Incarnation(row.u32()?));
                    let epoch = Epoch(row.u64()?);
                    let report: Report = row.value()?;
                    core.stores.entry(key).or_default().pending.insert(epoch, report);
                }
                FINDING => {
                    let key = (Epoch(row.u64()?), row.u64()?);
                    let finding: Finding = row.value()?;
                    core.next_finding = core.next_finding.max(key.1.saturating_add(1));
                    core.findings.insert(key, finding);
                }
                _ => return Err(LoadError::Later(key.to_vec())),
            }
        }
        core.head = found.ok_or(LoadError::NoHead)?;
        core.check_params(kept, out)?;
        core.head.incarnation = at_least.max(Incarnation(core.head.incarnation.0.saturating_add(1)));
        core.derive_rest(out);
        core.write_head(out);
        Ok(core)
    }

    /// Older versions did not keep them: then they are those that are given, unless these cannot have been in force.
    fn check_params(&self, kept: Option<(u64, u64)>, out: &mut BankOutput) -> Result<(), LoadError> {
        let params = self.config.params;
        let given = (params.expiry(), params.reconcile());
        match kept {
            Some(kept) if kept != given => {
                Err(LoadError::Params { expiry: kept.0, reconcile: kept.1, given: given.1, given_expiry: given.0 })
            }
            Some(_) => Ok(()),
            None if self.keeps_k() => {
                out.writes.push(params_row(params));
                Ok(())
            }
            None => Err(LoadError::Reconcile {
                given: given.1,
                most: self.head.epoch.0.saturating_sub(self.head.horizon.0),
            }),
        }
    }

    fn load_grant(&mut self, mut row: Row<'_>) -> Result<(), LoadError> {
        let (epoch, client, op) = (Epoch(row.u64()?), Client(row.u64()?), Op(row.u64()?));
        let grant: Grant = row.value()?;
        let before = self.accounts.get(&grant.user).map_or(0, |account| account.issued_total);
        let fits = before.checked_add(grant.minted.map_or(0, |piece| piece.amount)).is_some();
        if grant.epoch != epoch || !fits {
            return Err(row.damaged());
        }
        self.record_grant(client, op, grant);
        Ok(())
    }

    fn load_store(&mut self, mut row: Row<'_>) -> Result<(), LoadError> {
        let key = (Node(row.u32()?), Incarnation(row.u32()?));
        let saved: StoreRow = row.value()?;
        let store: &mut StoreState = self.stores.entry(key).or_default();
        store.reported = saved.reported;
        store.accept_from = saved.accept_from;
        store.lost = saved.lost;
        store.beat = saved.beat;
        store.boot = saved.boot;
        Ok(())
    }

    /// What follows from the rows: sums, the newest `S` of each store, tallies, who is active.
    fn derive_rest(&mut self, out: &mut BankOutput) {
        for store in self.stores.values_mut() {
            store.latest = store.settled.clone();
            for report in store.pending.values() {
                store.latest.extend(report.used.iter().copied());
            }
        }
        let settled: Vec<(User, i64)> =
            self.stores.values().flat_map(|store| store.settled.iter().map(|(u, s)| (*u, *s))).collect();
        for (user, used) in settled {
            let account = self
                .accounts
                .entry(user)
                .or_insert_with(|| super::account::Account { removed: true, ..Default::default() });
            account.settled += i128::from(used);
        }
        for ((client, _), grant) in &self.grants {
            if let Some(account) = self.accounts.get_mut(&grant.user) {
                let last = account.active.entry(*client).or_default();
                *last = (*last).max(grant.epoch);
            }
        }
        let reports: Vec<Report> = self.stores.values().flat_map(|store| store.pending.values().cloned()).collect();
        // What was found before the restart is told once more, and not found once more.
        for finding in self.findings.values() {
            if let Some(overspending) = finding.overspending() {
                self.told.entry((overspending.epoch, overspending.voucher)).or_default().add(finding);
            }
            out.actions.push(BankAction::Found(finding.clone()));
        }
        for report in reports {
            self.tally(&report, out);
        }
    }
}
