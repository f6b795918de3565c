//! Class and owner on backing files, for the day when the catalog is lost: written some time after the file was, by a
//! thread that nobody waits for.

use std::collections::BTreeSet;
use ullage_fs::Space;
use ullage_pool::{Annotation, Binding, Locator};
use ullage_types::FileId;

/// Annotates the backing files of these files.
pub(super) fn annotate(space: &Space, changed: BTreeSet<FileId>) {
    for id in changed {
        let Ok(inode) = space.catalog().get(id) else { continue };
        // With the file's lock held and a name counted, nobody can be giving its backing file to another one.
        let state = inode.lock();
        let record = &state.record;
        let Some(backing) = record.backing.as_ref().filter(|_| record.nlink > 0) else { continue };
        let Some(member) = space.pools().member(backing.pool) else { continue };
        let binding = Binding { file: id, generation: backing.generation, locator: Locator(backing.locator.clone()) };
        let owner = Annotation { class: record.class, uid: record.uid, gid: record.gid };
        let outcome = member.pool.annotation(&binding).and_then(|now| match now {
            Some(now) if now == owner => Ok(()),
            _ => member.pool.annotate(&binding, owner),
        });
        if let Err(error) = outcome {
            tracing::debug!("the owner of inode {id} is not recorded on its backing file: {error}");
        }
    }
}
