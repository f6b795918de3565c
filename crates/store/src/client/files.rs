//! Whole files: what all operations on them share, rm and ls.

use super::chunks::{ChunkError, Chunks};
use super::layout::{Manifest, expected_allocation, file_name, home_order, manifest_chunk};
use super::stop::Stop;
use super::transfer::in_parallel;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use ullage_voucher::Node;

/// Stripes moved at a time.
pub(super) const WIDTH: usize = 4;

/// How often an operation on a name begins anew because others changed what has it.
pub(super) const TRIES: u32 = 32;

/// How long the end of the work waits for a bank: what is not given back comes back by itself.
const FINISH: Duration = Duration::from_secs(2);

/// Why a file was not moved.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A chunk of it.
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    /// The local file.
    #[error("{what} {path}: {source}")]
    Local {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The local file, while it was read.
    #[error("{0} changed while it was read, and was not put: do it again when nobody writes to it")]
    Changed(PathBuf),
    /// A store took the new version and did not answer, or never got it.
    #[error(
        "whether {name} is the new or the old version is not known ({source}): `ullage ls` says when the store answers"
    )]
    Unknown {
        /// The file.
        name: String,
        /// What the last attempt met.
        source: ChunkError,
    },
    /// No such file at any store.
    #[error("there is no file {0}")]
    NotFound(String),
    /// Its manifest makes no sense.
    #[error("the manifest of {0} is damaged")]
    Manifest(String),
    /// It was to end, and nothing of it is kept.
    #[error("stopped before it was done; nothing of it is kept")]
    Stopped,
    /// There are no stores to put it on, or it cannot be put so.
    #[error("{0}")]
    Usage(String),
}

pub(super) fn no_stores() -> FileError {
    FileError::Usage(
        "no stores are known: the configuration names them under [[stores]], each with node and address".into(),
    )
}

/// A file, as listed.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Its manifest; nothing if it is damaged.
    pub manifest: Option<Manifest>,
}

/// What a removal freed.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub struct Removed {
    /// Chunks removed, the manifest included.
    pub chunks: u64,
}

/// What has a name.
pub(super) struct Found {
    /// The store of its manifest.
    pub(super) node: Node,
    /// Which version the manifest's chunk is; nothing if the store does not say.
    pub(super) generation: Option<u64>,
    pub(super) manifest: Result<Manifest, FileError>,
}

impl Found {
    /// Whether it is this version.
    pub(super) fn is_of(&self, version: &Manifest) -> bool {
        self.manifest.as_ref().is_ok_and(|found| found.id == version.id)
    }
}

/// A user's files over all stores.
#[derive(Debug, Clone)]
pub struct Files {
    chunks: Chunks,
    /// To how many stores a new file goes; all by default.
    width: Option<usize>,
    pub(super) stop: Stop,
}

impl Files {
    /// Files made of these chunks.
    pub fn new(chunks: Chunks) -> Self {
        Self { chunks, width: None, stop: Stop::default() }
    }

    /// New files go to so many of the stores, each to others.
    #[must_use]
    pub fn with_width(mut self, width: Option<usize>) -> Self {
        self.width = width;
        self
    }

    /// Transfers end when this is given.
    #[must_use]
    pub fn with_stop(mut self, stop: Stop) -> Self {
        self.stop = stop;
        self
    }

    /// The stores of a new file. Each file begins at another one, so that many small ones spread too.
    pub(super) fn stores_of_new(&self, id: &str) -> Result<Vec<Node>, FileError> {
        let mut stores = home_order(id, &self.chunks.nodes());
        let width = self.width.unwrap_or(stores.len());
        if stores.is_empty() {
            return Err(no_stores());
        }
        if !(1..=stores.len()).contains(&width) {
            let most = stores.len();
            return Err(FileError::Usage(format!(
                "a file cannot be on {width} stores: choose 1 to {most}, all that the configuration names"
            )));
        }
        stores.truncate(width);
        Ok(stores)
    }

    /// Ends the work: settles what became of requests that failed, and gives unused vouchers back to the bank.
    pub async fn finish(&self) {
        self.chunks.cancel().await;
        self.chunks.purse().give_back(FINISH).await;
    }

    /// The chunk operations below.
    pub fn chunks(&self) -> &Chunks {
        &self.chunks
    }

    pub(super) fn user(&self) -> &str {
        self.chunks.purse().user()
    }

    pub(super) fn homes(&self, name: &str) -> Vec<Node> {
        home_order(&manifest_chunk(self.user(), name), &self.chunks.nodes())
    }

    /// Where the manifest is, and what it says. A store that does not answer is an error: the file could be there.
    pub(super) async fn find(&self, name: &str) -> Result<Option<Found>, FileError> {
        let chunk = manifest_chunk(self.user(), name);
        for node in self.homes(name) {
            let Some((manifest, generation)) = self.manifest(node, &chunk).await? else { continue };
            let manifest = manifest.ok_or_else(|| FileError::Manifest(name.to_owned()));
            return Ok(Some(Found { node, generation, manifest }));
        }
        Ok(None)
    }

    /// What a manifest says, or nothing of one that is damaged; and which version it is.
    async fn manifest(&self, node: Node, chunk: &str) -> Result<Option<(Option<Manifest>, Option<u64>)>, ChunkError> {
        match self.chunks.read_version(node, chunk).await {
            Ok((bytes, generation)) => {
                Ok(Some((serde_json::from_slice(&bytes).ok().filter(Manifest::is_sound), generation)))
            }
            Err(error) if error.is_not_found() => Ok(None),
            // It can still be replaced or removed, whatever it said.
            Err(error) if error.is_damaged_there() => Ok(Some((None, None))),
            Err(error) => Err(error),
        }
    }

    /// Removes the first `stripes` of a version. What is left behind by a failure here is listed under `USER/d/` and belongs to no
    /// manifest.
    pub(super) async fn remove_stripes(&self, manifest: &Manifest, stripes: u64) -> u64 {
        let purse = self.chunks.purse();
        if stripes == 0 || !purse.had_capability() {
            return 0;
        }
        // Each stripe would else wait for the bank as long as it is waited for at all.
        if let Err(error) = purse.capability(&format!("{}/", self.user())).await {
            tracing::warn!(%error, stripes, "stripes are left behind");
            return 0;
        }
        // Stores that fell silent, and how many stripes each is left with: who is silent once is not waited for again at every stripe.
        let silent: Arc<Mutex<BTreeMap<Node, u64>>> = Arc::default();
        // Who was stopped removes what there is all the same.
        let unstopped = Stop::default();
        let removed = in_parallel(stripes, WIDTH, &unstopped, |index| {
            let (this, manifest, silent) = (self.clone(), manifest.clone(), Arc::clone(&silent));
            async move {
                let Some(node) = manifest.store_of(index) else { return Ok(0) };
                if let Some(left) = silent.lock().get_mut(&node) {
                    *left += 1;
                    return Ok(0);
                }
                match this.chunks.delete(node, &manifest.chunk_of(this.user(), index)).await {
                    Ok(()) => Ok(1),
                    Err(error) if error.is_not_found() => Ok(0),
                    Err(error) => {
                        tracing::warn!(%error, "a stripe is left behind");
                        if error.leaves_open() {
                            *silent.lock().entry(node).or_default() += 1;
                        }
                        Ok::<u64, FileError>(0)
                    }
                }
            }
        });
        let removed = removed.await.unwrap_or(0);
        for (store, stripes) in silent.lock().iter() {
            tracing::warn!(%store, stripes, "does not answer and is left with them: `ullage rm --orphans` removes them when it does");
        }
        removed
    }

    /// Removes a file: its name first, then its stripes.
    ///
    /// # Errors
    /// When there is no such file or a store refuses.
    pub async fn remove(&self, name: &str) -> Result<Removed, FileError> {
        let chunk = manifest_chunk(self.user(), name);
        let mut tries = 0;
        let found = loop {
            let found = self.find(name).await?.ok_or_else(|| FileError::NotFound(name.to_owned()))?;
            tries += 1;
            match self.chunks.delete_version(found.node, &chunk, found.generation).await {
                Ok(()) => break found,
                // The stripes that go must be those of the version that goes.
                Err(error) if error.is_changed() && tries < TRIES => {}
                Err(error) => return Err(error.into()),
            }
        };
        let stripes = match found.manifest {
            Ok(manifest) => self.remove_stripes(&manifest, manifest.stripes()).await,
            Err(_) => 0,
        };
        Ok(Removed { chunks: stripes + 1 })
    }

    /// All files whose names start with `prefix`, by name.
    ///
    /// # Errors
    /// When no stores are known, or one does not say what it has.
    pub async fn list(&self, prefix: &str) -> Result<Vec<Listed>, FileError> {
        let mut files = Vec::new();
        let nodes = self.chunks.nodes();
        if nodes.is_empty() {
            return Err(no_stores());
        }
        for node in nodes {
            for chunk in self.chunks.list(node, &manifest_chunk(self.user(), prefix)).await? {
                let Some(name) = file_name(self.user(), &chunk.name) else { continue };
                if let Some((manifest, _)) = self.manifest(node, &chunk.name).await? {
                    files.push(Listed { name, manifest });
                }
            }
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(files)
    }

    /// Bytes that a file of this size will be charged, as a rule.
    pub fn expected_charge(size_bytes: u64, stripe_bytes: u64) -> u64 {
        let whole = size_bytes / stripe_bytes;
        let rest = size_bytes % stripe_bytes;
        whole * expected_allocation(stripe_bytes) + if rest > 0 { expected_allocation(rest) } else { 0 } + 2 * 4096
    }
}
