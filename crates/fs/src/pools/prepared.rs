//! What is done with a backing file ahead of time, while nobody waits: measuring and registering it.

use crate::open_file::Measure;
use crate::{Kernel, Space};
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use ullage_pool::{Prepare, Prepared};

/// Prepares the files of a pool.
pub(crate) struct Preparer {
    pub space: Weak<Space>,
    /// Whether data of the pool can move in the kernel.
    pub in_kernel: bool,
}

/// A file that nobody has written to since it was measured.
pub(crate) struct Ahead {
    pub measure: Measure,
    registered: Option<(u32, Arc<dyn Kernel>)>,
}

impl Prepare for Preparer {
    fn prepare(&self, file: &File) -> Option<Prepared> {
        let space = self.space.upgrade()?;
        let measure = Measure::of(file).ok()?;
        let kernel = space.kernel().filter(|_| self.in_kernel && space.uses_passthrough());
        // Who opens the file tries again, and is told why not.
        let registered = kernel.and_then(|kernel| Some((kernel.register(file.as_fd()).ok()?, kernel.clone())));
        Some(Box::new(Ahead { measure, registered }))
    }

    fn moved(&self, prepared: Prepared, file: &File) -> Option<Prepared> {
        let mut ahead = prepared.downcast::<Ahead>().ok()?;
        ahead.measure = Measure::of(file).ok()?;
        Some(ahead)
    }
}

impl Ahead {
    /// The registration, which is the caller's to end now.
    pub(crate) fn take_registration(&mut self) -> Option<u32> {
        self.registered.take().map(|(id, _)| id)
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if let Some((id, kernel)) = self.registered.take() {
            kernel.unregister(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_kernel::TestKernel;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn the_registration_of_a_file_that_nobody_took_ends_and_that_of_one_in_use_does_not() {
        let kernel = Arc::new(TestKernel::default());
        let file = File::open("/dev/null").unwrap();
        let ahead = || {
            let id = kernel.register(file.as_fd()).unwrap();
            Ahead { measure: Measure::default(), registered: Some((id, kernel.clone())) }
        };
        let prepared: Prepared = Box::new(ahead());
        drop(prepared);
        assert_eq!(kernel.registered.load(Relaxed), 0);
        assert_eq!(ahead().take_registration(), Some(0));
        assert_eq!(kernel.registered.load(Relaxed), 1);
    }
}
