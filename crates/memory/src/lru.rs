//! An exact LRU queue with stack distances in O(log n): the measure for every estimate.

use std::collections::HashMap;
use std::hash::Hash;

/// Exact LRU queue of virtual pages; the position of an access is the number of distinct pages
/// accessed since the same page was (Bennett and Kruskal's algorithm over a Fenwick tree of times).
#[derive(Clone, Debug)]
pub struct LruQueue<K> {
    last: HashMap<K, usize>,
    /// Fenwick tree: 1 at each time that is some page's latest.
    marks: Vec<u64>,
    now: usize,
}

impl<K: Eq + Hash + Clone> Default for LruQueue<K> {
    fn default() -> Self {
        Self { last: HashMap::new(), marks: vec![0; 1025], now: 0 }
    }
}

impl<K: Eq + Hash + Clone> LruQueue<K> {
    /// Moves a page to the front. Gives its position before, or `None` for a page never seen.
    pub fn access(&mut self, page: K) -> Option<u64> {
        if self.now + 1 >= self.marks.len() {
            self.renumber();
        }
        let now = self.now;
        self.now += 1;
        let position = self.last.insert(page, now).map(|before| {
            let position = self.last.len() as u64 - self.prefix(before);
            self.update(before, false);
            position
        });
        self.update(now, true);
        position
    }

    /// Distinct pages in the queue.
    pub fn len(&self) -> usize {
        self.last.len()
    }

    /// Whether nothing was accessed yet.
    pub fn is_empty(&self) -> bool {
        self.last.is_empty()
    }

    /// Forgets a page that was freed.
    pub fn remove(&mut self, page: &K) {
        if let Some(at) = self.last.remove(page) {
            self.update(at, false);
        }
    }

    /// Forgets all pages but those that `keep` is true of.
    pub fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        let gone: Vec<K> = self.last.keys().filter(|page| !keep(page)).cloned().collect();
        for page in &gone {
            self.remove(page);
        }
    }

    /// All pages, most recently used first.
    pub fn order(&self) -> Vec<K> {
        let mut pages: Vec<_> = self.last.iter().collect();
        pages.sort_unstable_by_key(|(_, at)| std::cmp::Reverse(**at));
        pages.into_iter().map(|(page, _)| page.clone()).collect()
    }

    /// Times run out: give the pages new ones, densely, with room for as many accesses again.
    fn renumber(&mut self) {
        let mut times: Vec<_> = self.last.values_mut().collect();
        times.sort_unstable();
        let count = times.len();
        for (new, time) in times.into_iter().enumerate() {
            *time = new;
        }
        self.now = count;
        self.marks = vec![0; (2 * count).max(1024) + 1];
        for time in 0..count {
            self.update(time, true);
        }
    }

    fn update(&mut self, time: usize, set: bool) {
        let mut index = time + 1;
        while let Some(mark) = self.marks.get_mut(index) {
            *mark = if set { *mark + 1 } else { *mark - 1 };
            index += index & index.wrapping_neg();
        }
    }

    /// Marks at times up to and including `time`.
    fn prefix(&self, time: usize) -> u64 {
        let mut index = time + 1;
        let mut sum = 0;
        while index > 0 {
            sum += self.marks.get(index).copied().unwrap_or(0);
            index &= index - 1;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Regression: pages of processes that had ended stayed in the idle-page sampler's queue and pushed all others back.
    #[test]
    fn forgotten_pages_leave_no_gap() {
        let mut queue = LruQueue::default();
        for page in 0..10 {
            queue.access(page);
        }
        queue.retain(|page| page % 2 == 0);
        assert_eq!((queue.len(), queue.access(0)), (5, Some(4)));
        assert_eq!(queue.access(1), None);
    }

    proptest! {
        #[test]
        fn positions_are_those_of_a_plain_list(trace in prop::collection::vec(0u16..300, 1..4000)) {
            let mut queue = LruQueue::default();
            let mut list: Vec<u16> = Vec::new();
            for page in trace {
                let expected = list.iter().position(|&other| other == page);
                if let Some(at) = expected {
                    list.remove(at);
                }
                list.insert(0, page);
                prop_assert_eq!(queue.access(page), expected.map(|at| at as u64));
            }
            prop_assert_eq!(queue.order(), list);
        }
    }
}
