//! Pages that each list of a group lost to eviction, and that came back: no accesses among those resident.
//!
//! The kernel counts a group together with all below it, and over all memory nodes. So what groups below lost is taken off
//! what a group did, or it would hide accesses at every level, and the rest divided among its lists by their size.

use super::vectors::Vector;
use crate::system::{keyed, read, stat};
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// The counters of all groups when they were last looked at, by path: evicted, and fetched back.
#[derive(Debug, Default)]
pub struct Losses {
    before: HashMap<String, [u64; 2]>,
}

impl Losses {
    /// What each list lost, and what came back to it, since the previous call; of a group seen for the first time nothing.
    /// `without` is a group whose lists are not among them, and that others contain.
    pub fn since(&mut self, hierarchy: &Path, vectors: &[Vector], without: &str) -> Vec<(u64, u64)> {
        let paths: HashSet<&str> = vectors.iter().map(Vector::group).chain([without]).collect();
        let now: HashMap<String, [u64; 2]> =
            paths.iter().map(|path| ((*path).to_owned(), counters(hierarchy, path))).collect();
        let grown = |path: &str| -> [u64; 2] {
            let (new, old) = (now.get(path).copied().unwrap_or_default(), self.before.get(path));
            old.map_or([0; 2], |old| [0, 1].map(|n| new[n].saturating_sub(old[n])))
        };
        let mut own: HashMap<&str, [u64; 2]> = paths.iter().map(|path| (*path, grown(path))).collect();
        for path in &paths {
            // Its parent, or who contains that where its parent has no lists.
            let above = std::iter::successors(parent(path), |path| parent(path)).find(|above| paths.contains(above));
            if let Some(above) = above.and_then(|above| own.get_mut(above)) {
                *above = [0, 1].map(|n| above[n].saturating_sub(grown(path)[n]));
            }
        }
        let mut sizes: HashMap<&str, u64> = HashMap::new();
        for vector in vectors {
            *sizes.entry(vector.group()).or_default() += vector.pages();
        }
        let share = |vector: &Vector| {
            let (all, own) = (sizes[vector.group()].max(1), own[vector.group()]);
            let [lost, revived] =
                own.map(|pages| (u128::from(pages) * u128::from(vector.pages()) / u128::from(all)) as u64);
            (lost, revived)
        };
        let shares = vectors.iter().map(share).collect();
        self.before = now;
        shares
    }
}

/// The group above one; the top is the empty path.
fn parent(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(above, _)| above)
}

fn counters(hierarchy: &Path, group: &str) -> [u64; 2] {
    let file = hierarchy.join(group.trim_start_matches('/')).join("memory.stat");
    let text = read(file).or_else(|_| read("/proc/vmstat")).unwrap_or_default();
    let [all, daemon, direct] = ["pgsteal ", "pgsteal_kswapd ", "pgsteal_direct "].map(|key| keyed(&text, key));
    [if all > 0 { all } else { daemon + direct }, stat::refaults(&text, "")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generations::Generation;
    use std::fs;

    /// Regression: what one group lost counted at each node, and at each group above it again.
    #[test]
    fn what_a_group_lost_counts_once() {
        let hierarchy = tempfile::tempdir().unwrap();
        let vector = |path: &str, node, pages| Vector {
            memcg: path.len() as u64,
            path: path.to_owned(),
            node,
            generations: vec![Generation { sequence: 1, age_ms: 0, pages }],
        };
        let vectors = [
            vector("/", 0, 50),
            vector("/user", 0, 0),
            vector("/user/a", 0, 300),
            vector("/user/a", 1, 100),
            vector("/user/b", 0, 40),
        ];
        let set = |counts: [(&str, u64, u64); 5]| {
            for (group, lost, back) in counts {
                fs::create_dir_all(hierarchy.path().join(group)).unwrap();
                let text = format!("pgsteal {lost}\nworkingset_refault_anon {back}\nworkingset_refault_file 0\n");
                fs::write(hierarchy.path().join(group).join("memory.stat"), text).unwrap();
            }
        };
        let mut losses = Losses::default();
        set([("", 5000, 100), ("user", 4000, 100), ("user/a", 3000, 50), ("user/b", 1000, 50), ("lent", 900, 0)]);
        assert_eq!(losses.since(hierarchy.path(), &vectors, "/lent"), [(0, 0); 5]);
        set([("", 5705, 140), ("user", 4500, 140), ("user/a", 3400, 90), ("user/b", 1100, 50), ("lent", 1100, 0)]);
        let expected = [(5, 0), (0, 0), (300, 30), (100, 10), (100, 0)];
        assert_eq!(losses.since(hierarchy.path(), &vectors, "/lent"), expected);
    }
}
