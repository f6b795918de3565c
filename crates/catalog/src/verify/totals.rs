//! Totals against a recount.

use super::Seen;
use crate::ledger::{TotalsNow, decode_charges};
use crate::{Result, keys};
use rustc_hash::FxHashMap;
use ullage_kv::Kv;
use ullage_types::{ByClass, Charge, FileId, ROOT};

/// The totals of every directory and user equal a recount.
pub(super) fn verify(kv: &dyn Kv, seen: &Seen, wrong: &mut dyn FnMut(String)) -> Result<()> {
    let mut totals: FxHashMap<FileId, TotalsNow> = FxHashMap::default();
    let mut users: FxHashMap<u32, ByClass<Charge>> = FxHashMap::default();
    for (&id, known) in &seen.files {
        let charge = known.charge;
        users.entry(known.uid).or_default()[known.class] += charge;
        let mut at = if known.is_directory() { id } else { known.parent };
        for step in 0.. {
            if step > seen.files.len() {
                wrong(format!("the ancestors of inode {id} form a ring"));
                break;
            }
            totals.entry(at).or_default().actual[known.class] += charge;
            match seen.files.get(&at) {
                Some(above) if at != ROOT => at = above.parent,
                Some(_) => break,
                None => {
                    wrong(format!("inode {id} is charged to directory {at}, which does not exist"));
                    break;
                }
            }
        }
    }
    kv.scan(&[keys::NAME], &[], &mut |key, _| {
        let Some(bytes) = key.get(9..17) else { return true };
        let mut at = FileId(u64::from_be_bytes(bytes.try_into().expect("eight bytes")));
        for _ in 0..=seen.files.len() {
            totals.entry(at).or_default().linked += 1;
            match seen.files.get(&at) {
                Some(above) if at != ROOT => at = above.parent,
                _ => break,
            }
        }
        true
    })?;
    kv.scan(&[keys::TOTALS], &[], &mut |key, value| {
        let Some(id) = keys::id_in(key) else { return true };
        let counted = totals.remove(&id).unwrap_or_default();
        match TotalsNow::decode(value) {
            Some(stored) if stored == counted => {}
            Some(stored) => wrong(format!("the totals of directory {id} are {stored:?}, a recount gives {counted:?}")),
            None => wrong(format!("the totals of directory {id} cannot be read")),
        }
        true
    })?;
    for (id, _) in totals {
        wrong(format!("directory {id} has no totals"));
    }
    kv.scan(&[keys::USER], &[], &mut |key, value| {
        let Some(uid) = key.get(1..5).and_then(|b| b.try_into().ok()).map(u32::from_be_bytes) else { return true };
        let counted = users.remove(&uid).unwrap_or_default();
        match decode_charges(value) {
            Some(stored) if stored == counted => {}
            Some(stored) => wrong(format!("user {uid} is charged {stored:?}, a recount gives {counted:?}")),
            None => wrong(format!("the totals of user {uid} cannot be read")),
        }
        true
    })?;
    for (uid, _) in users {
        wrong(format!("user {uid} has files but no totals"));
    }
    Ok(())
}
