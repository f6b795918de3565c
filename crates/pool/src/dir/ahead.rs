//! Marks set ahead: the leaf that a series fills, and those it begins next, are marked before anybody makes a file there, many
//! with one flush. After an unclean end the newest leaf of each series is looked through anyway.

use super::core::Core;
use super::leaf::{self, Leaf};
use crate::Error;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Leaves marked beyond the one that a series fills: always, and while files are made in it.
const ALWAYS: u32 = 1;
const IN_DEMAND: u32 = 8;

impl Core {
    /// Marks what is not marked yet of the leaves that the series fill and begin next.
    pub fn mark_ahead(&self) -> Result<(), Error> {
        self.begun.store(false, Ordering::Relaxed);
        let mut leaves: Vec<Arc<Leaf>> = Vec::new();
        for (index, series) in self.series.iter().enumerate() {
            let filling = match series.filling() {
                Some(number) => number,
                None => series.fill(self.count_leaves(index)?.saturating_sub(1)),
            };
            let ahead = if series.is_in_demand() { IN_DEMAND } else { ALWAYS };
            leaves.extend(
                (filling..=filling + ahead).map(|number| self.leaves.get(&self.config.sparse.leaf(index, number))),
            );
        }
        leaf::mark_all(&leaves, &*self.marks)
    }

    /// Whether a leaf stays marked although nothing is made or written in it.
    pub fn is_ahead(&self, leaf: &Leaf) -> bool {
        leaf.place.is_some_and(|(index, number)| {
            let filling = self.series.get(index).and_then(super::series::Series::filling);
            filling.is_some_and(|filling| (filling..=filling + ALWAYS).contains(&number))
        })
    }
}
