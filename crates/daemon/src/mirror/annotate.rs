//! Class and owner on backing files, for the day when the catalog is lost: written some time after the file was, by a
//! thread that nobody waits for.

use std::collections::BTreeSet;
use ullage_catalog::Inode;
use ullage_fs::Space;
use ullage_pool::{Annotation, Binding, Locator};
use ullage_types::{FileId, PoolId};

/// Annotates the backing files of these files.
pub(super) fn annotate(space: &Space, changed: BTreeSet<FileId>) {
    for id in changed {
        let Ok(inode) = space.catalog().get(id) else { continue };
        let Some((pool, binding, owner)) = to_note(&inode) else { continue };
        let Some(member) = space.pools().member(pool) else { continue };
        let outcome = member.pool.annotation(&binding).and_then(|now| match now {
            Some(now) if now == owner => Ok(()),
            _ => member.pool.annotate(&binding, owner),
        });
        if let Err(error) = outcome {
            tracing::debug!("the owner of inode {id} is not recorded on its backing file: {error}");
        }
    }
}

/// Where the data of a file with a name lies, and what is to be noted there. The file's lock is not kept: the pool may not answer, and who
/// waits for the lock keeps everybody from committing. So what is noted may be old: whoever changes an owner meanwhile has it noted in the
/// next turn. And the backing file may be on its way to another file: its pool gives it to none while it is open here, and finds it under
/// the old name and numbers no more afterwards.
fn to_note(inode: &Inode) -> Option<(PoolId, Binding, Annotation)> {
    let state = inode.lock();
    let record = &state.record;
    let backing = record.backing.as_ref().filter(|_| record.nlink > 0)?;
    let binding = Binding { file: inode.id, generation: backing.generation, locator: Locator(backing.locator.clone()) };
    Some((backing.pool, binding, Annotation { class: record.class, uid: record.uid, gid: record.gid }))
}
