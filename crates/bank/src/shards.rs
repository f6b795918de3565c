//! Over how many shards users are spread, kept in a row of each: an account would not be found under another number, and be
//! opened a second time.

use crate::config::{BankSettings, EngineChoice};
use crate::engine::EngineError;
use crate::history::Memory;
use crate::identity::shard_of;
use crate::rows::Rows;
use ullage_voucher::{RowBytes, Write};

const KEY: &[u8] = b"~S";

/// The row.
pub(crate) fn row(shards: u32) -> Write {
    Write { key: RowBytes::from_slice(KEY), value: Some(RowBytes::from_slice(&shards.to_be_bytes())) }
}

/// Refuses another number than the rows were begun with; gives the row if there is none yet.
pub(crate) fn check(
    settings: &BankSettings,
    shard: u32,
    rows: &Rows,
    memory: &Memory,
) -> Result<Option<Write>, EngineError> {
    let given = settings.shards.max(1);
    let refuse = |kept: &str| Err(EngineError::Shards { kept: kept.to_owned(), given });
    let misfit = |shards: u32| memory.users().any(|user| shard_of(user, shards) != shard);
    match rows.get(KEY).map(|value| <[u8; 4]>::try_from(value.as_slice()).map(u32::from_be_bytes)) {
        Some(Ok(kept)) if kept == given => Ok(None),
        Some(Ok(kept)) => refuse(&kept.to_string()),
        Some(Err(_)) => Err(ullage_voucher::LoadError::Row(KEY.to_vec()).into()),
        // Of older versions: what else there is tells.
        None if misfit(given) => refuse("another number of"),
        // Directories that a wrong number once made: the users say that it was not it.
        None if misfit(begun(settings)) => Ok(Some(row(given))),
        None if !rows.is_empty() && ![0, given].contains(&begun(settings)) => refuse(&begun(settings).to_string()),
        None if begun(settings) > given => refuse(&begun(settings).to_string()),
        None => Ok(Some(row(given))),
    }
}

/// How many shards there are in the directory.
fn begun(settings: &BankSettings) -> u32 {
    match &settings.engine {
        EngineChoice::Embedded { directory, .. } => {
            (0..u32::MAX).take_while(|shard| directory.join(shard.to_string()).is_dir()).count() as u32
        }
        EngineChoice::Etcd(_) => 0,
    }
}
