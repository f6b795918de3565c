//! Putting a file: its stripes first, then its name.

use super::files::{FileError, Files, TRIES, WIDTH, no_stores};
use super::layout::{Manifest, check_new, manifest_chunk, new_id};
use super::local::Source;
use super::transfer::{Progress, Transferred, in_parallel};
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use ullage_net::{clock, keyfile};
use ullage_voucher::Node;

impl Files {
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
        let stores = self.stores_of_new(&id)?;
        let manifest = Manifest { version: 1, size_bytes, stripe_bytes, id, stores, written_ms: clock::now_ms() };
        let (done, begun) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let written = in_parallel(manifest.stripes(), WIDTH, &self.stop, |index| {
            let (this, manifest, source) = (self.clone(), manifest.clone(), Arc::clone(&source));
            let (done, progress) = (Arc::clone(&done), Arc::clone(&progress));
            let begun = Arc::clone(&begun);
            async move {
                let length = stripe_bytes.min(size_bytes - index * stripe_bytes);
                let bytes = source.read(index * stripe_bytes, length).await?;
                let node = manifest.store_of(index).ok_or_else(no_stores)?;
                let chunk = manifest.chunk_of(this.user(), index);
                begun.fetch_max(index + 1, Ordering::Relaxed);
                let view = this.chunks().put_unseen(node, &chunk, bytes.into()).await?;
                progress(done.fetch_add(length, Ordering::Relaxed) + length, size_bytes);
                Ok::<_, FileError>(view.map_or(0, |view| view.allocated_bytes))
            }
        });
        let written = written.await;
        let placed = match written {
            Ok(allocated) => self.place(name, &source, &manifest).await.map(|(old, own)| (old, allocated + own)),
            Err(error) => Err(error),
        };
        let (old, allocated_bytes) = match placed {
            Ok(placed) => placed,
            // What a manifest may name must stay; a sweep finds it where none does.
            Err(error @ FileError::Unknown { .. }) => return Err(error),
            Err(error) => {
                // What was given up may still be under way: what is removed before that is told would be made again.
                self.chunks().cancel().await;
                // Those after it were never sent: to look for them took as long as a silent store was waited for, each.
                self.remove_stripes(&manifest, begun.load(Ordering::Relaxed)).await;
                return Err(error);
            }
        };
        if let Some(old) = old {
            self.remove_stripes(&old, old.stripes()).await;
        }
        Ok(Transferred { size_bytes, stripes: manifest.stripes(), allocated_bytes })
    }

    /// Gives a name to stripes that are all there, and back the version before and what the manifest is charged. Of several
    /// at a time each replaces the one before it, and knows which that was: whose stripes nobody removes stay charged. What is found may be
    /// this version itself: of a request that was refused, or whose outcome was not told, a copy may have been carried out since.
    async fn place(
        &self,
        name: &str,
        from: &Source,
        manifest: &Manifest,
    ) -> Result<(Option<Manifest>, u64), FileError> {
        from.unchanged()?;
        let body = serde_json::to_vec(manifest).map_err(|error| FileError::Usage(error.to_string()))?;
        let body = Bytes::from(body);
        let chunk = manifest_chunk(self.user(), name);
        let unknown = |source| FileError::Unknown { name: name.to_owned(), source };
        let (mut tries, mut before) = (0, None);
        loop {
            let old = match self.find(name).await {
                Err(FileError::Chunk(error)) if tries > 0 => return Err(unknown(error)),
                found => found?,
            };
            if let Some(found) = old.as_ref().filter(|found| found.is_of(manifest)) {
                return Ok((before, self.charged(found.node, &chunk).await));
            }
            let home = old.as_ref().map(|old| old.node).or_else(|| self.homes(name).first().copied());
            let home = home.ok_or_else(no_stores)?;
            let replaced = old.as_ref().map_or(Some(0), |old| old.generation);
            tries += 1;
            let charged = match self.chunks().put_over(home, &chunk, body.clone(), replaced).await {
                Ok(view) => view.map_or(0, |view| view.allocated_bytes),
                Err(error) if error.is_changed() && tries < TRIES => {
                    before = old.and_then(|old| old.manifest.ok());
                    continue;
                }
                Err(error) => match self.find(name).await {
                    Ok(Some(found)) if found.is_of(manifest) => self.charged(home, &chunk).await,
                    Ok(_) if !error.leaves_open() => return Err(error.into()),
                    _ => return Err(unknown(error)),
                },
            };
            return Ok((old.and_then(|old| old.manifest.ok()), charged));
        }
    }

    /// What a manifest takes at a store, as far as it says so.
    async fn charged(&self, node: Node, manifest: &str) -> u64 {
        self.chunks().stat(node, manifest).await.map_or(0, |view| view.allocated_bytes)
    }
}
