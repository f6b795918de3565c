//! Emptying a pool that is to leave a space: asked for and told of over the control socket.

use super::remove;
use crate::control::limit::{may_set, path_of};
use crate::control::messages::{Answer, DrainReport, FilesUse};
use crate::control::report::refuse;
use crate::open::OpenSpace;
use crate::{Error, Kind, Result, command};
use std::path::Path;
use ullage_fs::Space;
use ullage_types::{Bytes, PoolId};

pub(crate) fn set(open: &OpenSpace, pool: &str, drains: bool, peer: u32) -> Answer {
    if !may_set(peer) {
        return refuse("only root and who mounted the space may take pools away");
    }
    match change(open, pool, drains) {
        Ok(()) => Answer::Done,
        Err(error) => refuse(error),
    }
}

/// In the settings first: the next start goes on with it.
fn change(open: &OpenSpace, name: &str, drains: bool) -> Result<()> {
    let state = &open.state;
    let _turn = open.changes.begin()?;
    let mut settings = open.settings_now()?;
    let pool = settings.pool_called(name)?;
    let (id, before, place, space) = (pool.id, pool.draining, pool.path.clone(), &open.space);
    if drains {
        if pool.kind == Kind::Null {
            return Err(Error::Refused("a null pool has kept nothing that could go to another one".into()));
        }
        if pool.absent {
            let gives_up = command(&format!("check --repair --without {name}"), state, &settings.mountpoint);
            return Err(Error::Refused(format!(
                "the space was started without the pool '{name}': start it with it, and have it emptied then; or, if its files are gone for \
                 good, give them up with `{gives_up}` while the space is down"
            )));
        }
        remove::refuse_last(&settings, pool)?;
    }
    settings.set_draining(id, drains);
    state.store(&settings)?;
    if drains {
        space.drain(PoolId(id)).map_err(|error| {
            // Who was refused is not to find it emptied after the next start.
            settings.set_draining(id, before);
            if let Err(error) = state.store(&settings) {
                tracing::warn!(pool = name, "the next start empties it, though this one could not: {error}");
            }
            crate::error::io_error("start a thread that empties", place)(error)
        })
    } else {
        space.stop_draining(PoolId(id));
        Ok(())
    }
}

/// Names of files are for root and who mounted the space.
pub(crate) fn report(space: &Space, pool: PoolId, peer: u32) -> Option<DrainReport> {
    let mut drained = space.drained(pool)?;
    if !may_set(peer) {
        drained.in_use_first.clear();
    }
    let files_use = |(files, bytes): (u64, Bytes)| FilesUse { files, bytes };
    let path = |file| {
        let path = path_of(space.catalog(), Path::new(""), file).to_string_lossy().into_owned();
        let removed = space.catalog().get(file).is_ok_and(|inode| inode.lock().record.nlink == 0);
        if removed { format!("{path} (deleted)") } else { path }
    };
    Some(DrainReport {
        moved: files_use(drained.moved),
        left: drained.left.map(files_use),
        in_use: drained.in_use,
        in_use_paths: drained.in_use_first.into_iter().map(path).collect(),
        failed: drained.failed.0,
        failure: drained.failed.1,
        lacks_room: drained.lacks_room,
    })
}
