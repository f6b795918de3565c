//! Superblock, counter, and the form of keys.

use crate::catalog::check_format;
use crate::{Result, keys};
use ullage_kv::Kv;

/// The first number that was not given out yet; none when that is not known.
pub(super) fn bound(kv: &dyn Kv) -> Result<Option<u64>> {
    Ok(kv.get(keys::NUMBERS)?.and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes))
}

/// Checks what stands alone. A catalog of a later version is an error.
pub(super) fn verify(kv: &dyn Kv, wrong: &mut dyn FnMut(String)) -> Result<()> {
    match kv.get(keys::SUPER)?.map(|bytes| check_format(&bytes)) {
        Some(Ok(())) => {}
        Some(Err(crate::Error::Kv(newer))) => return Err(newer.into()),
        Some(Err(error)) => wrong(error.to_string()),
        None => wrong("there is no superblock".into()),
    }
    match kv.get(keys::NUMBERS)? {
        Some(bytes) if bytes.len() == 8 => {}
        Some(_) => wrong("the counter of numbers cannot be read".into()),
        None if crate::numbers::are_used(kv)? => wrong("the counter of numbers is missing".into()),
        // A new catalog has given out none.
        None => {}
    }
    let mut at = Some(Vec::new());
    while let Some(from) = at.take() {
        // One look at each kind of record that is none of ours.
        kv.scan(&[], &from, &mut |key, _| {
            let Some(&prefix) = key.first() else { return true };
            if keys::is_known(prefix) {
                at = prefix.checked_add(1).map(|next| vec![next]);
                return false;
            }
            wrong(format!("there is {}", crate::describe_key(key)));
            true
        })?;
    }
    for prefix in keys::KNOWN {
        kv.scan(&[prefix], &[], &mut |key, value| {
            if !keys::is_formed(key, value) {
                wrong(format!("the key of {} is malformed", crate::describe_key(key)));
            }
            true
        })?;
    }
    Ok(())
}
