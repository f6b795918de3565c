//! Bringing damaged records into agreement again (`ullage check --repair`, `ullage rebuild`).
//!
//! All records are read into one [`Model`]; steps mend it, from what is worth most to what can be counted anew: inodes
//! (from their backing files, from their entries), entries (from the inodes' own words), names, the tree, counts,
//! totals. Then every record is derived from the model, and where the store holds anything else it is set right, all in
//! one commit. Nothing is asked, and a second run finds nothing to do.

mod counts;
mod entries;
mod facts;
mod inodes;
mod model;
mod records;
mod tree;

pub use facts::{Facts, Found, Mode};

use crate::limits::Subject;
use crate::{Result, keys};
use model::Model;
use ullage_kv::{Batch, Kv};
use ullage_types::{PoolId, Timestamp};

/// What a repair did.
#[derive(Clone, Debug, Default)]
pub struct Repaired {
    /// What was set right, in words.
    pub done: Vec<String>,
    /// What could not be restored, in words.
    pub lost: Vec<String>,
    /// Files that were dropped: with their data, or since they were removed after the snapshot that is being rebuilt.
    pub dropped: u64,
    /// Files that came to `lost+found`.
    pub adopted: u64,
    /// Records changed, added or removed.
    pub changes: u64,
}

/// Brings the records in `kv` into agreement with each other and with the backing files of `facts`. `owner` gets the
/// directories that must be made again, `now` is their time. The catalog must not be open.
///
/// # Errors
/// Those of the store, and [`ullage_kv::Error::Newer`] for a catalog of a later version. Nothing is changed then.
pub fn repair(kv: &dyn Kv, facts: &Facts, owner: (u32, u32), now: Timestamp) -> Result<Repaired> {
    let mut model = Model::load(kv, owner, now)?;
    model.marks.retain(|(pool, _)| !facts.gone.contains(&PoolId(*pool)));
    inodes::mend(&mut model, facts);
    entries::mend(&mut model);
    tree::mend(&mut model, facts);
    inodes::adopt(&mut model, facts);
    inodes::mark_bare(&mut model, facts);
    counts::mend(&mut model);
    let batch = records::changes(kv, &mut model)?;
    let mut repaired = Repaired {
        done: model.done,
        lost: model.lost,
        dropped: model.gone.len() as u64,
        adopted: model.adopted,
        changes: batch.len() as u64,
    };
    if batch.is_empty() {
        return Ok(Repaired { done: Vec::new(), ..repaired });
    }
    if repaired.done.is_empty() && repaired.lost.is_empty() {
        repaired.done.push("records were brought into the form that they must have".into());
    }
    let mut commit = Batch::new();
    for (key, value) in batch {
        match value {
            Some(value) => commit.put(key, value),
            None => commit.del(key),
        }
    }
    kv.sync(kv.commit(commit)?)?;
    Ok(repaired)
}

/// Of a repair that was interrupted between its two commits: what it has to tell.
pub fn is_under_way(kv: &dyn Kv) -> Result<Option<Vec<String>>> {
    let told = kv.get(keys::REPAIR)?;
    Ok(told.map(|told| String::from_utf8_lossy(&told).lines().map(str::to_owned).collect()))
}

/// Adds to what is taken out of the catalog's way that a repair is under way, which has to tell this. [`repair`] ends it.
pub fn begin(batch: &mut Batch, lost: &[String]) {
    let told: Vec<String> = lost.iter().map(|text| text.replace('\n', " ")).collect();
    batch.put(keys::REPAIR.to_vec(), told.join("\n").into_bytes());
}

/// Whether a record that is dropped is lost: no other says what it said, and nothing in the pools does.
pub fn is_told_once(key: &[u8]) -> bool {
    matches!(key.first(), Some(&keys::XATTR | &keys::LIMIT))
}

/// What a key is about, for people.
pub fn describe_key(key: &[u8]) -> String {
    let id = keys::id_in(key).map_or_else(|| "?".to_owned(), |id| id.to_string());
    match key.first() {
        Some(b'S') => "the superblock".into(),
        Some(b'N') => "the counter of numbers".into(),
        Some(b'R') => "the word of a repair that is not over".into(),
        Some(&keys::INODE) => format!("the record of inode {id}"),
        Some(&keys::ENTRY) => {
            format!("the entry '{}' of directory {id}", String::from_utf8_lossy(key.get(9..).unwrap_or_default()))
        }
        Some(&keys::TOTALS) => format!("the totals of directory {id}"),
        Some(&keys::USER) => "the totals of a user".into(),
        Some(&keys::XATTR) => {
            let name = String::from_utf8_lossy(key.get(9..).unwrap_or_default()).into_owned();
            format!("the extended attribute '{name}' of inode {id}")
        }
        Some(&keys::NAME) => format!("a name record of inode {id}"),
        Some(&keys::ORPHAN) => format!("the record of inode {id} among the files without a name"),
        Some(&keys::LIMIT) => match keys::subject_in(key) {
            Some(Subject::User(uid)) => format!("the limit of user {uid}"),
            Some(Subject::Directory(id)) => format!("the limit of directory {id}"),
            None => "a limit".into(),
        },
        Some(&keys::MARK) => "the mark of a leaf directory".into(),
        _ => "a record of no known kind".into(),
    }
}
