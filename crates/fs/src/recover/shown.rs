//! Backing files that are missing in a `mirror` pool, and that its plain tree still shows, as where fsck(8) had to give a leaf directory up.
//! To make such a file again, empty, would take the last name of its data.

use super::{Gone, Recovered};
use crate::{Outcome, Space};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use ullage_catalog::Inode;
use ullage_pool::{Binding, Suspect};
use ullage_types::PoolId;

impl Space {
    /// Gives those their names in the pool again, and measures them. Takes them out of what is `gone`, and what cannot be looked for, which is
    /// given back.
    pub(super) fn bring_back(
        &self,
        gone: &mut Vec<Gone>,
        done: &mut Recovered,
        busy: &mut Vec<Arc<Inode>>,
    ) -> Outcome<Vec<(PoolId, Binding)>> {
        let mut waiting = Vec::new();
        for member in self.pools.members() {
            let Some(tree) = &member.tree else { continue };
            let of_pool = gone.iter().filter(|gone| gone.pool == member.id);
            let wanted: HashMap<_, _> = of_pool.map(|it| (it.numbers(), it.binding.locator.clone())).collect();
            if wanted.is_empty() {
                continue;
            }
            let mut back = HashSet::new();
            let looked = tree.bring_back_here(&mut |file, generation| {
                let lost = wanted.get(&(file, generation)).cloned();
                back.extend(lost.as_ref().map(|_| (file, generation)));
                lost
            });
            let damaged = match looked {
                Err(error) if error.is_damage() => {
                    tracing::warn!(
                        "{error}: what is missing in the pool may be there, and stays as it is; take the space down and run fsck on the pool's disk"
                    );
                    true
                }
                looked => {
                    looked?;
                    false
                }
            };
            for found in
                gone.extract_if(.., |gone| gone.pool == member.id && (damaged || back.contains(&gone.numbers())))
            {
                let is_back = back.contains(&found.numbers());
                let binding = found.binding;
                if !is_back {
                    waiting.push((member.id, binding));
                    continue;
                }
                tracing::warn!(
                    "the backing file of inode {} was missing, and is there again: the plain tree had it",
                    binding.file
                );
                let locator = binding.locator.clone();
                self.compare(member.id, Suspect { binding: Some(binding), unreadable: false, locator }, done, busy)?;
                done.brought_back += 1;
            }
        }
        Ok(waiting)
    }
}
