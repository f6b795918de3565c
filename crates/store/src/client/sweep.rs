//! Stripes that belong to no file: what a client leaves behind that dies while it writes or removes one.

use super::chunks::ChunkError;
use super::files::{FileError, Files};
use super::layout::{Manifest, file_name, manifest_chunk, stripe_id};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use ullage_net::clock;
use ullage_voucher::Node;

/// What a sweep found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Swept {
    /// Stripes that were removed.
    pub removed: u64,
    /// What they had been charged, in bytes.
    pub freed_bytes: u64,
    /// Stripes that belong to no file but are too young: somebody may be writing it.
    pub young: u64,
}

impl Files {
    /// Removes stripes that no manifest names and whose file was begun more than `age` ago. Nothing is removed unless all stores that
    /// count at the bank are known here, every one answers, and every manifest can be read: a stripe that a manifest out of sight names
    /// must stay.
    ///
    /// Stripes are listed before manifests, so a file that is finished meanwhile is seen. One whose writing takes longer
    /// than `age` could lose stripes: choose an age beyond the longest transfer.
    ///
    /// # Errors
    /// When a store does not answer or is not known here, or a manifest cannot be read.
    pub async fn sweep(&self, age: Duration) -> Result<Swept, FileError> {
        self.check_all_known().await?;
        let begun_before = clock::now_ms().saturating_sub(age.as_millis() as u64);
        let mut stripes: BTreeMap<(Node, String), u64> = BTreeMap::new();
        for node in self.chunks().nodes() {
            for chunk in self.chunks().list(node, &format!("{}/d/", self.user())).await? {
                stripes.insert((node, chunk.name), chunk.allocated_bytes);
            }
        }
        let files = self.file_ids().await?;
        let mut swept = Swept::default();
        for ((node, chunk), bytes) in stripes {
            let Some((id, begun)) = stripe_id(self.user(), &chunk) else { continue };
            if files.contains(id) {
                continue;
            }
            if begun >= begun_before {
                swept.young += 1;
                continue;
            }
            match self.chunks().delete(node, &chunk).await {
                Ok(()) => {
                    swept.removed += 1;
                    swept.freed_bytes += bytes;
                }
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(swept)
    }

    /// Refuses where a store may have manifests that nobody would look at.
    async fn check_all_known(&self) -> Result<(), FileError> {
        let known = self.chunks().nodes();
        let mut counting = self.chunks().purse().stores().await.map_err(ChunkError::from)?;
        counting.retain(|node| !known.contains(node));
        let Some(unknown) = counting.first() else { return Ok(()) };
        Err(FileError::Usage(format!(
            "store {unknown} counts at the bank and is not in the configuration: what seems to belong to no file may be of one whose name is \
             there; add it under [[stores]], or have it given up (`ullage bank exclude {unknown}`) if it is gone for good"
        )))
    }

    /// The ids of all files.
    async fn file_ids(&self) -> Result<BTreeSet<String>, FileError> {
        let mut ids = BTreeSet::new();
        for node in self.chunks().nodes() {
            for chunk in self.chunks().list(node, &manifest_chunk(self.user(), "")).await? {
                let bytes = match self.chunks().read(node, &chunk.name, 0, u64::MAX).await {
                    Err(error) if ChunkError::is_not_found(&error) => continue,
                    other => other?,
                };
                let name = file_name(self.user(), &chunk.name).unwrap_or_else(|| chunk.name.clone());
                let manifest: Manifest = serde_json::from_slice(&bytes).map_err(|_| FileError::Manifest(name))?;
                ids.insert(manifest.id);
            }
        }
        Ok(ids)
    }
}
