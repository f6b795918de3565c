//! Marks set ahead: the leaf that a series fills, and those it begins next, are marked before anybody makes a file there, many
//! with one flush. After an unclean end the newest leaf of each series is looked through anyway.

use super::core::Core;
use super::leaf::{self, Leaf};
use crate::Error;
use std::sync::Arc;

/// Leaves marked beyond the one that a series fills: always.
const ALWAYS: u32 = 1;
/// While files are made in it: at least, and how many once they are fewer. Between the two many leaves are filled for one
/// flush; the least are what is filled while that flush takes its time.
const LEAST: u32 = 8;
const MOST: u32 = 24;

impl Core {
    /// Marks leaves that the series fill and begin next, where those that are marked run out.
    pub fn mark_ahead(&self) -> Result<(), Error> {
        let mut leaves: Vec<Arc<Leaf>> = Vec::new();
        for (index, series) in self.series.iter().enumerate() {
            let filling = match series.filling() {
                Some(number) => number,
                None => series.fill(self.count_leaves(index)?.saturating_sub(1)),
            };
            let leaf = |number| self.leaves.get(&self.config.sparse.leaf(index, number));
            let (least, most) = if series.is_in_demand() { (LEAST, MOST) } else { (ALWAYS, ALWAYS) };
            if (filling..=filling + least).any(|number| leaf(number).lacks_mark()) {
                leaves.extend((filling..=filling + most).map(leaf));
            }
        }
        leaf::mark_all(&leaves, &self.marks)
    }

    /// Whether a leaf stays marked although nothing is made or written in it.
    fn is_ahead(&self, leaf: &Leaf) -> bool {
        leaf.place.is_some_and(|(index, number)| {
            let filling = self.series.get(index).and_then(super::series::Series::filling);
            filling.is_some_and(|filling| (filling..=filling + ALWAYS).contains(&number))
        })
    }

    /// Clears the marks of leaves at rest, and forgets those that nobody uses.
    pub fn clear_idle(&self) {
        let kept = |leaf: &Leaf| self.is_ahead(leaf);
        self.leaves
            .clear_idle(self.config.clear_after, kept, &self.marks, || self.sync().is_ok() && self.written.all());
        self.leaves.trim();
    }
}
