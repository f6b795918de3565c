//! Which CPUs there are, and binding a thread to one.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// CPUs the calling thread may run on.
pub(crate) fn allowed() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return vec![0] };
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

/// Binds the calling thread to a CPU if its affinity mask has it; tells whether it did.
pub(crate) fn pin(cpu: usize) -> bool {
    Mask::of_this_thread().bind(cpu)
}

fn bind(cpu: usize) -> bool {
    let mut one = CpuSet::new();
    one.set(cpu);
    // A CPU that is possible but not online refuses; the thread then runs where the mask lets it.
    sched_setaffinity(None, &one).is_ok()
}

/// CPUs that a thread may be bound to, as they were at first: to be bound takes the others out of its mask.
pub(crate) struct Mask(Vec<usize>);

impl Mask {
    /// Of the calling thread.
    pub fn of_this_thread() -> Self {
        Self(allowed())
    }

    /// Binds the calling thread to one of them; tells whether it did.
    pub fn bind(&self, cpu: usize) -> bool {
        self.0.contains(&cpu) && bind(cpu)
    }
}

/// How many CPUs the kernel may ever have: the highest possible one plus one.
pub(crate) fn possible() -> usize {
    std::fs::read_to_string("/sys/devices/system/cpu/possible").ok().and_then(|list| parse(&list)).unwrap_or(1)
}

/// `0-3,8-11` is 12.
fn parse(list: &str) -> Option<usize> {
    let last = list.trim().rsplit([',', '-']).next()?;
    Some(last.parse::<usize>().ok()? + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_possible_cpus() {
        for (list, count) in [("0", 1), ("0-1\n", 2), ("0-3,8-11\n", 12), ("0,2", 3)] {
            assert_eq!(parse(list), Some(count), "{list}");
        }
        assert_eq!(parse(""), None);
    }
}
