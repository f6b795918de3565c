//! A shard that this process leads: the core, its rows, and what happened; all under one lock.

use crate::config::BankSettings;
use crate::engine::EngineError;
use crate::history::{Memory, is_own};
use crate::owed::Owed;
use crate::rows::{Rows, apply};
use crate::shards;
use crate::wire::FindingView;
use std::sync::Arc;
use ullage_net::clock;
use ullage_voucher::bank::{BankAction, BankCore, BankEvent, BankOutput, Finding};
use ullage_voucher::{Incarnation, Micros, User, Write};

/// The state of a leader.
pub(crate) struct Live {
    pub(crate) core: BankCore,
    pub(crate) memory: Memory,
    owed: Owed,
    pub(crate) rows: Rows,
}

/// What one or more steps came to: writes to make durable, then actions to carry out.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) writes: Vec<Write>,
    pub(crate) actions: Vec<BankAction>,
}

impl Live {
    /// From rows, or anew if there are none. What comes out must be durable before anything else happens.
    pub(crate) fn load(settings: &BankSettings, shard: u32, rows: Rows) -> Result<(Self, Outcome), EngineError> {
        let mut out = BankOutput::default();
        let keys = Arc::clone(&settings.keys);
        let config = settings.core(shard);
        let mut own = rows.iter().filter(|(key, _)| !is_own(key)).peekable();
        let core = if own.peek().is_none() {
            BankCore::new(config, keys, Incarnation(1), &mut out)
        } else {
            let core_rows = own.map(|(key, value)| (key.as_slice(), value.as_slice()));
            BankCore::load(config, keys, Incarnation(1), core_rows, &mut out)?
        };
        let (memory, mut owed) = (Memory::load(&rows), Owed::load(&rows));
        let kept = shards::check(settings, shard, &rows, &memory)?;
        if kept.is_some() && !rows.is_empty() {
            let (shards, expiry, reconcile) =
                (settings.shards.max(1), settings.params.expiry(), settings.params.reconcile());
            tracing::warn!(
                "an older version did not keep --shards {shards} --expiry-epochs {expiry} --reconcile-epochs {reconcile}: this \
                 bank takes no others from now on; where these are not what it had, go back to the copy from before the upgrade"
            );
        }
        out.writes.extend(kept);
        for action in &out.actions {
            if let BankAction::Hook { user, excess } = action {
                owed.add(*user, *excess, &mut out.writes);
            }
        }
        // With what whoever led before had found, and not seen to any more.
        out.actions.retain(|action| !matches!(action, BankAction::Hook { .. }));
        out.actions.extend(owed.all().map(|(user, excess)| BankAction::Hook { user, excess }));
        let mut live = Self { core, memory, owed, rows };
        apply(&mut live.rows, &out.writes);
        Ok((live, Outcome { writes: out.writes, actions: out.actions }))
    }

    /// One step; its outcome is added to `outcome`.
    pub(crate) fn step(&mut self, event: BankEvent, now: Micros, outcome: &mut Outcome) {
        let mut out = BankOutput::default();
        let repeated =
            matches!(&event, BankEvent::FromClient(client, message) if self.core.has_answered(*client, message));
        self.core.step(event, now, &mut out);
        let epoch = self.core.epoch();
        for action in &out.actions {
            match action {
                // It was counted when it was given.
                BankAction::ToClient(..) if repeated => {}
                BankAction::ToClient(_, message) => self.memory.answered(message, epoch, &mut out.writes),
                BankAction::Found(finding) => {
                    let user = accused(finding);
                    let view = self.view(finding);
                    self.memory.found(view, user, epoch, &mut out.writes);
                }
                BankAction::Hook { user, excess } => self.owed.add(*user, *excess, &mut out.writes),
                _ => {}
            }
        }
        apply(&mut self.rows, &out.writes);
        outcome.writes.append(&mut out.writes);
        outcome.actions.append(&mut out.actions);
    }

    /// Remembers a user's name.
    pub(crate) fn set_name(&mut self, user: User, name: &str, outcome: &mut Outcome) {
        let from = outcome.writes.len();
        self.memory.set_name(user, name, &mut outcome.writes);
        apply(&mut self.rows, &outcome.writes[from..]);
    }

    /// The site's program has seen to so much of what a user is over.
    pub(crate) fn settled(&mut self, user: User, bytes: u64) -> Vec<Write> {
        let mut writes = Vec::new();
        self.owed.settle(user, bytes, &mut writes);
        apply(&mut self.rows, &writes);
        writes
    }

    /// A finding as it is kept: with the time at which it was made, also when it is told again after a restart.
    pub(crate) fn kept(&self, finding: &Finding) -> FindingView {
        self.memory.finding(finding).cloned().unwrap_or_else(|| self.view(finding))
    }

    fn view(&self, finding: &Finding) -> FindingView {
        let user = accused(finding).and_then(|user| self.memory.name(user)).map(str::to_owned);
        FindingView { at_ms: clock::now_ms(), user, finding: finding.clone() }
    }
}

fn accused(finding: &Finding) -> Option<User> {
    match finding {
        Finding::Overspent { user, .. } | Finding::Forged { user, .. } => Some(*user),
        Finding::StoreLied { .. } => None,
    }
}
