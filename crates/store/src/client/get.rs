//! Getting a file: one version of it, wholly.

use super::chunks::ChunkError;
use super::files::{FileError, Files, TRIES, WIDTH};
use super::layout::Manifest;
use super::local::Target;
use super::transfer::{Progress, Transferred, in_parallel};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

impl Files {
    /// Copies a file from the stores to a local path, which gets its name only when everything has come whole.
    ///
    /// # Errors
    /// When there is no such file, a part is missing or damaged, or the local file cannot be written.
    pub async fn get(&self, name: &str, path: &Path, progress: Progress) -> Result<Transferred, FileError> {
        let mut gone: Option<(String, FileError)> = None;
        let mut tries = 0;
        loop {
            let found = self.find(name).await?.ok_or_else(|| FileError::NotFound(name.to_owned()))?;
            let manifest = found.manifest?;
            // A part that is missing is of a version that was replaced meanwhile, or of a damaged file.
            if let Some((_, error)) = gone.take_if(|(id, _)| *id == manifest.id) {
                return Err(error);
            }
            tries += 1;
            match self.get_version(&manifest, path, Arc::clone(&progress)).await {
                Err(FileError::Chunk(error)) if error.is_not_found() && tries < TRIES => {
                    gone = Some((manifest.id, error.into()));
                }
                other => return other,
            }
        }
    }

    async fn get_version(
        &self,
        manifest: &Manifest,
        path: &Path,
        progress: Progress,
    ) -> Result<Transferred, FileError> {
        let target = Arc::new(Target::create(path, manifest.size_bytes)?);
        let done = Arc::new(AtomicU64::new(0));
        let came = in_parallel(manifest.stripes(), WIDTH, &self.stop, |index| {
            let (this, manifest, target) = (self.clone(), manifest.clone(), Arc::clone(&target));
            let (done, progress) = (Arc::clone(&done), Arc::clone(&progress));
            async move {
                let offset = index * manifest.stripe_bytes;
                let length = manifest.stripe_bytes.min(manifest.size_bytes - offset);
                let node = manifest.store_of(index).ok_or_else(|| FileError::Manifest(this.user().to_owned()))?;
                let bytes = this.chunks().read(node, &manifest.chunk_of(this.user(), index), 0, length).await?;
                if bytes.len() as u64 != length {
                    return Err(ChunkError::Damaged(node).into());
                }
                target.write(bytes, offset).await?;
                progress(done.fetch_add(length, Ordering::Relaxed) + length, manifest.size_bytes);
                Ok::<_, FileError>(0)
            }
        });
        if let Err(error) = came.await {
            target.discard();
            return Err(error);
        }
        // Every stripe's work has ended.
        let target =
            Arc::into_inner(target).ok_or_else(|| FileError::Usage("a stripe is still being written".into()))?;
        target.finish()?;
        Ok(Transferred { size_bytes: manifest.size_bytes, stripes: manifest.stripes(), allocated_bytes: 0 })
    }
}
