//! Whole files: put, get, rm, ls.

use super::chunks::{ChunkError, Chunks};
use super::layout::{Manifest, check_new, expected_allocation, file_name, home_order, manifest_chunk, new_id};
use super::local::{Source, Target};
use super::transfer::{Progress, Transferred, in_parallel};
use bytes::Bytes;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use ullage_net::{clock, keyfile};
use ullage_voucher::Node;

/// Stripes moved at a time.
const WIDTH: usize = 4;

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
    /// There are no stores to put it on, or it cannot be put so.
    #[error("{0}")]
    Usage(String),
}

/// A file, as listed.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Its manifest; nothing if it cannot be read.
    pub manifest: Option<Manifest>,
}

/// What a removal freed.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub struct Removed {
    /// Chunks removed, the manifest included.
    pub chunks: u64,
}

/// A user's files over all stores.
#[derive(Debug, Clone)]
pub struct Files {
    chunks: Chunks,
}

impl Files {
    /// Files made of these chunks.
    pub fn new(chunks: Chunks) -> Self {
        Self { chunks }
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

    /// Copies a local file to the stores under `name`, replacing what has that name. Until all of it is there the old version
    /// is what others see; a failure on the way removes what was written, unless it may be the new version already.
    ///
    /// # Errors
    /// When the file cannot be read, paid, or written.
    pub async fn put(
        &self,
        path: &Path,
        name: &str,
        stripe_bytes: u64,
        progress: Progress,
    ) -> Result<Transferred, FileError> {
        let source = Arc::new(Source::open(path)?);
        let size_bytes = source.size_bytes();
        check_new(self.user(), name, size_bytes, stripe_bytes).map_err(FileError::Usage)?;
        let id = new_id(clock::now_ms(), keyfile::random_u64());
        // Each file begins at another store, so that many small ones spread too.
        let stores = home_order(&id, &self.chunks.nodes());
        if stores.is_empty() {
            return Err(FileError::Usage("no stores are known".into()));
        }
        let manifest = Manifest { version: 1, size_bytes, stripe_bytes, id, stores, written_ms: clock::now_ms() };
        let done = Arc::new(AtomicU64::new(0));
        let written = in_parallel(manifest.stripes(), WIDTH, |index| {
            let (this, manifest, source) = (self.clone(), manifest.clone(), Arc::clone(&source));
            let (done, progress) = (Arc::clone(&done), Arc::clone(&progress));
            async move {
                let length = stripe_bytes.min(size_bytes - index * stripe_bytes);
                let bytes = source.read(index * stripe_bytes, length).await?;
                let node = manifest.store_of(index).ok_or_else(|| FileError::Usage("no stores are known".into()))?;
                let chunk = manifest.chunk_of(this.user(), index);
                let view = this.chunks.put(node, &chunk, bytes.into(), true).await?;
                progress(done.fetch_add(length, Ordering::Relaxed) + length, size_bytes);
                Ok::<_, FileError>(view.map_or(0, |view| view.allocated_bytes))
            }
        })
        .await;
        let placed = match written {
            Ok(allocated) => self.place(name, &source, &manifest).await.map(|(old, own)| (old, allocated + own)),
            Err(error) => Err(error),
        };
        let (old, allocated_bytes) = match placed {
            Ok(placed) => placed,
            // What a manifest may name must stay; a sweep finds it where none does.
            Err(error @ FileError::Unknown { .. }) => return Err(error),
            Err(error) => {
                self.remove_stripes(&manifest).await;
                return Err(error);
            }
        };
        if let Some(old) = old {
            self.remove_stripes(&old).await;
        }
        Ok(Transferred { size_bytes, stripes: manifest.stripes(), allocated_bytes })
    }

    /// Gives a name to stripes that are all there, and back the version before and what the manifest is charged.
    async fn place(
        &self,
        name: &str,
        from: &Source,
        manifest: &Manifest,
    ) -> Result<(Option<Manifest>, u64), FileError> {
        from.unchanged()?;
        let old = self.find(name).await?;
        let body = serde_json::to_vec(manifest).map_err(|error| FileError::Usage(error.to_string()))?;
        let home = old.as_ref().map(|(node, _)| *node).or_else(|| self.homes(name).first().copied());
        let home = home.ok_or_else(|| FileError::Usage("no stores are known".into()))?;
        let chunk = manifest_chunk(self.user(), name);
        let charged = match self.chunks.put(home, &chunk, Bytes::from(body), true).await {
            Ok(view) => view.map_or(0, |view| view.allocated_bytes),
            Err(error) if error.leaves_open() => {
                // Its answer may be all that was lost.
                match self.find(name).await {
                    Ok(Some((_, Ok(found)))) if found.id == manifest.id => {
                        self.chunks.stat(home, &chunk).await.map_or(0, |view| view.allocated_bytes)
                    }
                    _ => return Err(FileError::Unknown { name: name.to_owned(), source: error }),
                }
            }
            Err(error) => return Err(error.into()),
        };
        Ok((old.and_then(|(_, manifest)| manifest.ok()), charged))
    }

    fn homes(&self, name: &str) -> Vec<Node> {
        home_order(&manifest_chunk(self.user(), name), &self.chunks.nodes())
    }

    /// Where the manifest is, and what it says. A store that does not answer is an error: the file could be there.
    async fn find(&self, name: &str) -> Result<Option<(Node, Result<Manifest, FileError>)>, FileError> {
        let chunk = manifest_chunk(self.user(), name);
        for node in self.homes(name) {
            match self.chunks.read(node, &chunk, 0, u64::MAX).await {
                Ok(bytes) => {
                    let manifest = serde_json::from_slice::<Manifest>(&bytes).ok().filter(Manifest::is_sound);
                    return Ok(Some((node, manifest.ok_or_else(|| FileError::Manifest(name.to_owned())))));
                }
                Err(error) if error.is_not_found() => {}
                // It can still be replaced or removed, whatever it said.
                Err(error) if error.is_damaged_there() => {
                    return Ok(Some((node, Err(FileError::Manifest(name.to_owned())))));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// What is left behind by a failure here is listed under `USER/d/` and belongs to no manifest.
    async fn remove_stripes(&self, manifest: &Manifest) -> u64 {
        let removed = in_parallel(manifest.stripes(), WIDTH, |index| {
            let (this, manifest) = (self.clone(), manifest.clone());
            async move {
                let Some(node) = manifest.store_of(index) else { return Ok(0) };
                match this.chunks.delete(node, &manifest.chunk_of(this.user(), index)).await {
                    Ok(()) => Ok(1),
                    Err(error) if error.is_not_found() => Ok(0),
                    Err(error) => {
                        tracing::warn!(%error, "a stripe is left behind");
                        Ok::<u64, ChunkError>(0)
                    }
                }
            }
        });
        removed.await.unwrap_or(0)
    }

    /// Copies a file from the stores to a local path, which gets its name only when everything has come whole.
    ///
    /// # Errors
    /// When there is no such file, a part is missing or damaged, or the local file cannot be written.
    pub async fn get(&self, name: &str, path: &Path, progress: Progress) -> Result<Transferred, FileError> {
        let (_, manifest) = self.find(name).await?.ok_or_else(|| FileError::NotFound(name.to_owned()))?;
        let manifest = manifest?;
        let target = Arc::new(Target::create(path, manifest.size_bytes)?);
        let done = Arc::new(AtomicU64::new(0));
        let came = in_parallel(manifest.stripes(), WIDTH, |index| {
            let (this, manifest, target) = (self.clone(), manifest.clone(), Arc::clone(&target));
            let (done, progress) = (Arc::clone(&done), Arc::clone(&progress));
            async move {
                let offset = index * manifest.stripe_bytes;
                let length = manifest.stripe_bytes.min(manifest.size_bytes - offset);
                let node = manifest.store_of(index).ok_or_else(|| FileError::Manifest(this.user().to_owned()))?;
                let bytes = this.chunks.read(node, &manifest.chunk_of(this.user(), index), 0, length).await?;
                if bytes.len() as u64 != length {
                    return Err(ChunkError::Damaged(node).into());
                }
                target.write(bytes, offset).await?;
                progress(done.fetch_add(length, Ordering::Relaxed) + length, manifest.size_bytes);
                Ok::<_, FileError>(0)
            }
        })
        .await;
        if let Err(error) = came {
            target.discard();
            return Err(error);
        }
        // Every stripe's work has ended.
        let target =
            Arc::into_inner(target).ok_or_else(|| FileError::Usage("a stripe is still being written".into()))?;
        target.finish()?;
        Ok(Transferred { size_bytes: manifest.size_bytes, stripes: manifest.stripes(), allocated_bytes: 0 })
    }

    /// Removes a file: its name first, then its stripes.
    ///
    /// # Errors
    /// When there is no such file or a store refuses.
    pub async fn remove(&self, name: &str) -> Result<Removed, FileError> {
        let (node, manifest) = self.find(name).await?.ok_or_else(|| FileError::NotFound(name.to_owned()))?;
        self.chunks.delete(node, &manifest_chunk(self.user(), name)).await?;
        let stripes = match manifest {
            Ok(manifest) => self.remove_stripes(&manifest).await,
            Err(_) => 0,
        };
        Ok(Removed { chunks: stripes + 1 })
    }

    /// All files whose names start with `prefix`, by name.
    ///
    /// # Errors
    /// When a store does not answer: what it has cannot be told.
    pub async fn list(&self, prefix: &str) -> Result<Vec<Listed>, FileError> {
        let mut files = Vec::new();
        for node in self.chunks.nodes() {
            for chunk in self.chunks.list(node, &manifest_chunk(self.user(), prefix)).await? {
                let Some(name) = file_name(self.user(), &chunk.name) else { continue };
                let bytes = self.chunks.read(node, &chunk.name, 0, u64::MAX).await.ok();
                let manifest = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
                files.push(Listed { name, manifest });
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
