//! What the server remembers beside the core: names, each user's past, findings. Rows of its own, marked by a leading `~`.

use crate::rows::Rows;
use crate::wire::{FindingView, HistoryEntry};
use std::collections::{BTreeMap, HashMap, VecDeque};
use ullage_voucher::bank::Finding;
use ullage_voucher::message::BankToClient;
use ullage_voucher::{Epoch, RowBytes, User, Write};

/// Epochs kept of each user.
const EPOCHS_MAX: usize = 1000;
/// Findings kept.
const FINDINGS_MAX: usize = 10_000;

/// Whether a row is the server's and not the core's.
pub(crate) fn is_own(key: &[u8]) -> bool {
    key.first() == Some(&b'~')
}

pub(crate) fn key(tag: u8, numbers: &[u64]) -> RowBytes {
    let mut key = RowBytes::from_slice(&[b'~', tag]);
    for number in numbers {
        key.extend_from_slice(&number.to_be_bytes());
    }
    key
}

pub(crate) fn number(key: &[u8], position: usize) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(2 + position * 8..10 + position * 8)?.try_into().ok()?))
}

/// Names, past and findings of one shard.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    names: HashMap<User, String>,
    past: HashMap<User, VecDeque<HistoryEntry>>,
    findings: BTreeMap<u64, FindingView>,
    next_finding: u64,
}

impl Memory {
    /// From rows; what does not decode is left out, since it decides nothing.
    pub(crate) fn load(rows: &Rows) -> Self {
        let mut memory = Self::default();
        for (key, value) in rows.iter().filter(|(key, _)| is_own(key)) {
            let Some(first) = number(key, 0) else { continue };
            match key.get(1) {
                Some(b'N') => {
                    memory.names.insert(User(first), String::from_utf8_lossy(value).into_owned());
                }
                Some(b'H') => {
                    if let Ok(entry) = serde_json::from_slice(value) {
                        memory.past.entry(User(first)).or_default().push_back(entry);
                    }
                }
                Some(b'F') => {
                    if let Ok(finding) = serde_json::from_slice(value) {
                        memory.findings.insert(first, finding);
                        memory.next_finding = first + 1;
                    }
                }
                _ => {}
            }
        }
        memory
    }

    pub(crate) fn name(&self, user: User) -> Option<&str> {
        self.names.get(&user).map(String::as_str)
    }

    /// All that have a name.
    pub(crate) fn users(&self) -> impl Iterator<Item = User> + '_ {
        self.names.keys().copied()
    }

    pub(crate) fn set_name(&mut self, user: User, name: &str, writes: &mut Vec<Write>) {
        if self.names.insert(user, name.to_owned()).as_deref() != Some(name) {
            writes.push(Write { key: key(b'N', &[user.0]), value: Some(name.as_bytes().into()) });
        }
    }

    pub(crate) fn past(&self, user: User) -> Vec<HistoryEntry> {
        self.past.get(&user).map(|past| past.iter().cloned().collect()).unwrap_or_default()
    }

    pub(crate) fn findings(&self) -> Vec<FindingView> {
        self.findings.values().cloned().collect()
    }

    /// Counts an answer to a client.
    pub(crate) fn answered(&mut self, message: &BankToClient, now: Epoch, writes: &mut Vec<Write>) {
        match message {
            BankToClient::Granted { user, pieces, .. } => {
                let value: u64 = pieces.iter().map(|piece| piece.amount).sum();
                self.count(*user, now, writes, |entry| {
                    entry.grants += 1;
                    entry.granted_bytes += value;
                });
            }
            // Strangers leave no trace: they could fill the memory.
            BankToClient::Denied { user, .. } if self.names.contains_key(user) => {
                self.count(*user, now, writes, |entry| entry.denials += 1);
            }
            BankToClient::Returned { user, accepted, .. } if *accepted > 0 => {
                self.count(*user, now, writes, |entry| entry.returned_bytes += accepted);
            }
            BankToClient::Denied { .. } | BankToClient::Returned { .. } | BankToClient::Revoke { .. } => {}
        }
    }

    /// A finding as it was kept last.
    pub(crate) fn finding(&self, finding: &Finding) -> Option<&FindingView> {
        self.findings.values().rev().find(|kept| kept.finding == *finding)
    }

    /// Keeps a finding.
    pub(crate) fn found(&mut self, finding: FindingView, user: Option<User>, now: Epoch, writes: &mut Vec<Write>) {
        if let Some(user) = user {
            self.count(user, now, writes, |entry| entry.findings += 1);
        }
        let number = self.next_finding;
        self.next_finding += 1;
        writes.push(Write { key: key(b'F', &[number]), value: serde_json::to_vec(&finding).ok().map(RowBytes::from) });
        self.findings.insert(number, finding);
        if self.findings.len() > FINDINGS_MAX
            && let Some((oldest, _)) = self.findings.pop_first()
        {
            writes.push(Write { key: key(b'F', &[oldest]), value: None });
        }
    }

    fn count(&mut self, user: User, now: Epoch, writes: &mut Vec<Write>, change: impl FnOnce(&mut HistoryEntry)) {
        let past = self.past.entry(user).or_default();
        if past.back().is_none_or(|entry| entry.epoch != now) {
            past.push_back(HistoryEntry { epoch: now, ..HistoryEntry::default() });
        }
        if past.len() > EPOCHS_MAX
            && let Some(oldest) = past.pop_front()
        {
            writes.push(Write { key: key(b'H', &[user.0, oldest.epoch.0]), value: None });
        }
        if let Some(entry) = past.back_mut() {
            change(entry);
            writes.push(Write {
                key: key(b'H', &[user.0, now.0]),
                value: serde_json::to_vec(entry).ok().map(RowBytes::from),
            });
        }
    }
}
