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
        let kernel = space.kernel().filter(|_| space.uses_passthrough());
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
    use std::io;
    use std::os::fd::BorrowedFd;
    use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
    use ullage_types::NodeId;

    #[derive(Default)]
    struct Registrations(AtomicI64);

    impl Kernel for Registrations {
        fn register(&self, _: BorrowedFd<'_>) -> io::Result<u32> {
            Ok(self.0.fetch_add(1, Relaxed) as u32)
        }

        fn unregister(&self, _: u32) {
            self.0.fetch_sub(1, Relaxed);
        }

        fn invalidate_node(&self, _: NodeId, _: i64, _: i64) -> io::Result<()> {
            Ok(())
        }

        fn invalidate_name(&self, _: NodeId, _: &[u8]) -> io::Result<()> {
            Ok(())
        }

        fn envoy(&self) -> io::Result<Box<dyn crate::Envoy>> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn passthrough(&self) -> bool {
            true
        }

        fn device(&self) -> Option<(u32, u32)> {
            None
        }
    }

    #[test]
    fn the_registration_of_a_file_that_nobody_took_ends_and_that_of_one_in_use_does_not() {
        let kernel = Arc::new(Registrations::default());
        let file = File::open("/dev/null").unwrap();
        let ahead = || {
            let id = kernel.register(file.as_fd()).unwrap();
            Ahead { measure: Measure::default(), registered: Some((id, kernel.clone())) }
        };
        let prepared: Prepared = Box::new(ahead());
        drop(prepared);
        assert_eq!(kernel.0.load(Relaxed), 0);
        assert_eq!(ahead().take_registration(), Some(0));
        assert_eq!(kernel.0.load(Relaxed), 1);
    }
}
