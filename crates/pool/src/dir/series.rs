//! One series of leaves: its ready files, how many there should be, and how full its leaves are.

use crate::{Binding, Fresh};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use ullage_policy::place::Leaves;
use ullage_policy::ready::{self, Demand, Held, Pace};

/// Seconds without a create before a series holds half as many ready files.
const PATIENCE: u32 = 5;

/// Seconds without a create before a series parts with its stock where there is little room for others', and how many
/// files a second then.
const PARTING: u32 = 60;
const PARTED: usize = 64;

/// A series.
#[derive(Default)]
pub struct Series {
    ready: Mutex<VecDeque<Fresh>>,
    /// Files given back and not looked at yet.
    released: Mutex<VecDeque<Binding>>,
    /// Emptied files, closed, under their old names.
    stock: Mutex<Vec<Binding>>,
    /// How full its leaves are; `None` until the first file is made. Locked while a file is made or removed.
    pub leaves: Mutex<Option<Leaves>>,
    /// The leaf that is filled, plus one; 0 until that is known.
    filling: AtomicU32,
    target: AtomicU32,
    /// Of the worker only: files are being made ready; files taken in the last round, and rounds since one was taken.
    refilling: AtomicBool,
    pace: AtomicU32,
    calm: AtomicU32,
    taken: AtomicU32,
    missed: AtomicU32,
    /// Of the worker only: seconds without a create, and creates seen at the last whole second.
    idle: AtomicU32,
    total: AtomicU32,
    total_before: AtomicU32,
}

impl Series {
    /// A ready file, and whether they run low.
    pub fn take(&self) -> (Option<Fresh>, bool) {
        if let Some((fresh, low)) = self.take_ready() {
            return (Some(fresh), low);
        }
        self.taken.fetch_add(1, Ordering::Relaxed);
        self.missed.fetch_add(1, Ordering::Relaxed);
        (None, true)
    }

    /// The same for who does not miss one that is not there.
    pub fn take_ready(&self) -> Option<(Fresh, bool)> {
        let mut ready = self.ready.lock();
        let taken = ready.pop_front()?;
        let left = ready.len() as u32;
        drop(ready);
        self.taken.fetch_add(1, Ordering::Relaxed);
        Some((taken, left <= self.target.load(Ordering::Relaxed) / 4))
    }

    /// A ready file, without counting it as demand.
    pub fn pop(&self) -> Option<Fresh> {
        self.ready.lock().pop_front()
    }

    /// How many ready files another series can have.
    pub fn spare(&self) -> u32 {
        ready::spare(self.ready(), self.target(), self.calm.load(Ordering::Relaxed))
    }

    /// A ready file for another series. Who holds more than others need of him is not given new ones for those.
    pub fn give(&self) -> Option<Fresh> {
        let mut ready = self.ready.lock();
        let given = ready.pop_front()?;
        self.target.fetch_min(ready.len() as u32, Ordering::Relaxed);
        Some(given)
    }

    /// One more ready file.
    pub fn put(&self, fresh: Fresh) {
        self.ready.lock().push_back(fresh);
    }

    /// How many are ready.
    pub fn ready(&self) -> u32 {
        self.ready.lock().len() as u32
    }

    /// How many there should be.
    pub fn target(&self) -> u32 {
        self.target.load(Ordering::Relaxed)
    }

    /// A file was given back. Gives back how many wait.
    pub fn release(&self, binding: Binding) -> usize {
        let mut released = self.released.lock();
        released.push_back(binding);
        released.len()
    }

    /// The file given back first of those that wait.
    pub fn has_released(&self) -> bool {
        !self.released.lock().is_empty()
    }

    pub fn next_released(&self) -> Option<Binding> {
        self.released.lock().pop_front()
    }

    /// Keeps an emptied file.
    pub fn stock(&self, binding: Binding) {
        self.stock.lock().push(binding);
    }

    /// The emptied file kept last.
    pub fn unstock(&self) -> Option<Binding> {
        self.stock.lock().pop()
    }

    /// Takes out what a series that nobody creates files in should not keep any longer. Called every second.
    pub fn part(&self, all: bool) -> Vec<Binding> {
        let mut stock = self.stock.lock();
        let count = if all {
            stock.len()
        } else if self.idle.load(Ordering::Relaxed) >= PARTING {
            stock.len().min(PARTED)
        } else {
            0
        };
        let kept = stock.len() - count;
        stock.split_off(kept)
    }

    /// Takes out `count` ready files, to be removed.
    pub fn drain(&self, count: u32) -> Vec<Fresh> {
        let mut ready = self.ready.lock();
        let count = ready.len().min(count as usize);
        ready.drain(..count).collect()
    }

    /// Whether files are to be made ready now: once it began, until none is missing. For the worker only.
    pub fn refills(&self, held: Held) -> bool {
        let pace = Pace { taken: self.pace.load(Ordering::Relaxed), calm: self.calm.load(Ordering::Relaxed) };
        let refills = held.is_low() && (self.refilling.load(Ordering::Relaxed) || held.begins(pace));
        self.refilling.store(refills, Ordering::Relaxed);
        refills
    }

    /// Raises the target where files run low. Called every round of the worker.
    pub fn grow(&self) {
        let taken = self.taken.swap(0, Ordering::Relaxed);
        let calm = if taken > 0 { 0 } else { self.calm.load(Ordering::Relaxed).saturating_add(1) };
        self.calm.store(calm, Ordering::Relaxed);
        self.pace.store(taken, Ordering::Relaxed);
        let missed = self.missed.swap(0, Ordering::Relaxed);
        if taken > 0 {
            self.total.fetch_add(taken, Ordering::Relaxed);
            let now = self.target.load(Ordering::Relaxed);
            self.target.store(ready::target(now, Demand { taken, missed, idle: 0 }, PATIENCE), Ordering::Relaxed);
        }
    }

    /// Lowers the target of an idle series. Called every second; gives back how many files are too many now.
    pub fn shrink(&self) -> u32 {
        let total = self.total.load(Ordering::Relaxed);
        if self.total_before.swap(total, Ordering::Relaxed) == total {
            let idle = self.idle.fetch_add(1, Ordering::Relaxed) + 1;
            let now = self.target.load(Ordering::Relaxed);
            let demand = Demand { taken: 0, missed: 0, idle };
            self.target.store(ready::target(now, demand, PATIENCE), Ordering::Relaxed);
        } else {
            self.idle.store(0, Ordering::Relaxed);
        }
        let idle = self.idle.load(Ordering::Relaxed) > 0;
        if idle { self.ready().saturating_sub(self.target.load(Ordering::Relaxed)) } else { 0 }
    }

    /// The number of the leaf that is filled, as far as it is known.
    pub fn filling(&self) -> Option<u32> {
        self.filling.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Leaf `number` is filled from here on.
    pub fn fill(&self, number: u32) -> u32 {
        self.filling.store(number + 1, Ordering::Relaxed);
        number
    }

    /// Whether files are made here all the time.
    pub fn is_in_demand(&self) -> bool {
        self.target.load(Ordering::Relaxed) > 0
    }

    /// Holds no more ready files until there is demand again.
    pub fn stop(&self) {
        self.target.store(0, Ordering::Relaxed);
    }
}
