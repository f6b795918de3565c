//! A store's rows: how its state survives a restart.

use super::book::Book;
use super::{Answer, Head, StoreConfig, StoreCore};
use crate::message::RefundLine;
use crate::rows::{Key, LoadError, Row};
use crate::{Client, Epoch, Incarnation, Issuer, Keyring, Node, Op, User, VoucherId, Write};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const HEAD: u8 = b'm';
const BASE: u8 = b'b';
const SEEN: u8 = b'v';
const REFUND: u8 = b'f';
const ANSWER: u8 = b'o';
const BEFORE: u8 = b'p';
const SETTLED: u8 = b's';

/// What is stored of one voucher and client.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct SeenRow {
    pub(super) user: User,
    pub(super) value: u64,
    pub(super) amount: u64,
}

pub(super) fn before_key() -> Key {
    Key::new(BEFORE)
}

pub(super) fn base_key(user: User) -> Key {
    Key::new(BASE).u64(user.0)
}

pub(super) fn seen_key(epoch: Epoch, voucher: VoucherId, client: Client) -> Key {
    Key::new(SEEN)
        .u64(epoch.0)
        .u32(voucher.issuer.node.0)
        .u32(voucher.issuer.incarnation.0)
        .u64(voucher.serial)
        .u64(client.0)
}

pub(super) fn refund_key(epoch: Epoch, serial: u64) -> Key {
    Key::new(REFUND).u64(epoch.0).u64(serial)
}

pub(super) fn answer_key(epoch: Epoch, client: Client, op: Op) -> Key {
    Key::new(ANSWER).u64(epoch.0).u64(client.0).u64(op.0)
}

pub(super) fn settled_key(client: Client) -> Key {
    Key::new(SETTLED).u64(client.0)
}

impl StoreCore {
    /// A store as its writes left it, for a new process with a new `boot`. Total: damaged rows are an error.
    pub fn load<'a>(
        config: StoreConfig,
        keys: Arc<Keyring>,
        boot: u64,
        rows: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<Self, LoadError> {
        let mut head: Option<Head> = None;
        let mut core = Self::assemble(config, keys, boot, Head::nothing(), BTreeMap::new());
        for (key, value) in rows {
            let mut row = Row::new(key, value);
            match row.tag() {
                HEAD => head = Some(row.value()?),
                BEFORE => core.before = row.value()?,
                BASE => {
                    let user = User(row.u64()?);
                    core.base.insert(user, row.value()?);
                }
                SEEN => core.load_seen(row)?,
                REFUND => {
                    let (epoch, serial) = (Epoch(row.u64()?), row.u64()?);
                    let line: RefundLine = row.value()?;
                    let book = core.books.entry(epoch).or_default();
                    add(&mut book.delta, line.user, -(line.value as i128), &row)?;
                    book.refund(serial, line);
                }
                ANSWER => {
                    let (epoch, client, op) = (Epoch(row.u64()?), Client(row.u64()?), Op(row.u64()?));
                    let answer: Answer = row.value()?;
                    core.record_answer(client, op, epoch, answer);
                }
                SETTLED => {
                    let client = Client(row.u64()?);
                    let (epoch, below) = row.value()?;
                    core.record_settled(client, epoch, below);
                }
                _ => return Err(row.damaged()),
            }
        }
        let head = head.ok_or(LoadError::NoHead)?;
        core.total = core.base.clone();
        for book in core.books.values() {
            for (user, delta) in &book.delta {
                let total = core.total.entry(*user).or_default();
                *total = total.saturating_add(*delta);
            }
        }
        core.total.retain(|_, total| *total != 0);
        core.next_serial = head.serials;
        core.acked = head.folded;
        core.send_base = head.fresh;
        core.head = head;
        Ok(core)
    }

    /// The whole state as rows, in no order: what all writes so far add up to.
    pub fn rows(&self) -> impl Iterator<Item = Write> + '_ {
        let head = std::iter::once_with(|| Key::new(HEAD).put(&self.head));
        let before = (!self.before.is_empty()).then(|| before_key().put(&self.before));
        let base = self.base.iter().map(|(user, used)| base_key(*user).put(used));
        let books = self.books.iter().flat_map(|(epoch, book)| book.rows(*epoch));
        let answers = self.answers.iter().flat_map(|(client, answers)| {
            answers.iter().map(|(op, (epoch, answer))| answer_key(*epoch, *client, *op).put(answer))
        });
        let settled = self.settled.iter().map(|(client, row)| settled_key(*client).put(row));
        head.chain(before).chain(base).chain(books).chain(answers).chain(settled)
    }

    fn load_seen(&mut self, mut row: Row<'_>) -> Result<(), LoadError> {
        let epoch = Epoch(row.u64()?);
        let issuer = Issuer { node: Node(row.u32()?), incarnation: Incarnation(row.u32()?) };
        let voucher = VoucherId { issuer, serial: row.u64()? };
        let client = Client(row.u64()?);
        let line: SeenRow = row.value()?;
        let book = self.books.entry(epoch).or_default();
        book.spend(voucher, (line.user, line.value), client, line.amount);
        add(&mut book.delta, line.user, line.amount.into(), &row)
    }
}

impl Book {
    fn rows(&self, epoch: Epoch) -> impl Iterator<Item = Write> + '_ {
        let lines = self.lines(epoch).map(move |line| {
            let row = SeenRow { user: line.user, value: line.value, amount: line.amount };
            seen_key(epoch, line.voucher, line.client).put(&row)
        });
        lines.chain(self.refunds.iter().map(move |(serial, line)| refund_key(epoch, *serial).put(line)))
    }
}

fn add(delta: &mut BTreeMap<User, i64>, user: User, amount: i128, row: &Row<'_>) -> Result<(), LoadError> {
    let entry = delta.entry(user).or_default();
    *entry = i64::try_from(i128::from(*entry) + amount).map_err(|_| row.damaged())?;
    Ok(())
}

impl Head {
    const fn nothing() -> Self {
        Self {
            incarnation: Incarnation(0),
            fresh: true,
            epoch: Epoch(0),
            reported: Epoch(0),
            folded: Epoch(0),
            accept_from: Epoch(u64::MAX),
            boot: 0,
            beat: 0,
            serials: 0,
        }
    }
}
