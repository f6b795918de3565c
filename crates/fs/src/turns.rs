//! Turns at things that one at a time may have, for who can do something else meanwhile.

use parking_lot::Mutex;

/// Which of them are taken.
#[derive(Debug)]
pub(crate) struct Turns<K>(Mutex<Vec<K>>);

/// One of them is taken, until this is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a, K: PartialEq> {
    turns: &'a Turns<K>,
    of: K,
}

impl<K> Default for Turns<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: PartialEq + Copy> Turns<K> {
    /// Takes one that nobody has.
    pub(crate) fn take(&self, of: K) -> Option<Turn<'_, K>> {
        let mut taken = self.0.lock();
        if taken.contains(&of) {
            return None;
        }
        taken.push(of);
        Some(Turn { turns: self, of })
    }
}

impl<K: PartialEq> Drop for Turn<'_, K> {
    fn drop(&mut self) {
        self.turns.0.lock().retain(|taken| *taken != self.of);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_it_until_he_gives_it_back() {
        let turns = Turns::default();
        let first = turns.take(1);
        assert!(first.is_some() && turns.take(1).is_none() && turns.take(2).is_some());
        drop(first);
        assert!(turns.take(1).is_some());
    }
}
