//! Who opens a file to map it while others have it open in the kernel waits for them, for a moment, and for what is lent to them.

use crate::hurry;
use crate::node::Node;
use crate::open_file::{Measure, OpenFile};
use crate::{Outcome, Space};
use std::sync::Arc;
use std::time::Duration;

/// Holes of so many bytes are filled without waiting: they cost little, and may become more meanwhile.
const FEW: u64 = 1 << 20;

/// For whoever opens a file that others have open: that may be over in a moment, and many holes are not to be filled for that, nor those
/// kept for ever that are punched later. Who closes a file and opens it again may come before the kernel's word of the first, and
/// what a program has open its children have too, until they begin another one.
#[derive(Default)]
pub(crate) struct Patience(u32);

impl Patience {
    const STEP: Duration = Duration::from_micros(200);
    const STEPS: u32 = 150;

    /// Whether to wait before this file is made solid.
    pub(crate) fn waits_for(&self, open: &OpenFile) -> bool {
        let Some(backing) = open.backing.as_deref().filter(|backing| !backing.solid && self.0 < Self::STEPS) else {
            return false;
        };
        Measure::of(&backing.file).is_ok_and(|now| {
            let bare = now.size.saturating_sub(now.blocks * 512);
            now.size > 0 && (bare == 0 || bare > FEW)
        })
    }

    pub(crate) fn wait(&mut self) {
        self.0 += 1;
        std::thread::sleep(Self::STEP);
    }
}

impl Space {
    /// Before a file is opened: where it comes to be mapped, and room is lent to it, that is asked back. It may take seconds, and a rename
    /// waits for whoever is opening a file, and behind it all who come to open one: so this is done before anybody does.
    pub(crate) fn ask_before_opening(&self, node: &Arc<Node>, flags: i32) -> Outcome<()> {
        let mut patience = Patience::default();
        loop {
            {
                let mut open = node.open.lock();
                if !open.lends() || !self.is_bounded(&node.inode)? || !self.comes_to_map(&mut open, flags) {
                    return Ok(());
                }
                hurry::may_wait()?;
                if !patience.waits_for(&open) {
                    break;
                }
            }
            patience.wait();
        }
        self.ask_from_now_on(node).inspect_err(|_| node.open.lock().need_not_be_solid())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Caller;
    use crate::headroom::lend::tests::lending;
    use crate::test_kernel::TestKernel;

    /// A rename waited behind it for five seconds, and everybody who came to open a file behind that.
    #[test]
    fn nobody_waits_for_who_opens_a_file_and_asks_back_what_is_lent_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let (space, node) = lending(dir.path());
        space.set_kernel(Arc::new(TestKernel::default()));
        assert!(space.lend_more(&node, &mut node.open.lock()).unwrap());
        {
            let mut open = node.open.lock();
            let backing = open.backing.as_deref_mut().unwrap();
            (backing.registered, backing.lends) = (Some(1), true);
        }
        let caller = Caller { uid: 0, gid: 0, pid: 1 };
        std::thread::scope(|scope| {
            let opening = scope.spawn(|| space.do_open(caller, node.id, libc::O_RDWR as u32));
            while node.open.lock().braked.is_none() {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(20));
            let waits = !opening.is_finished();
            let free = space.headroom.modes.try_write().is_some();
            node.open.lock().grant.end_lending();
            opening.join().unwrap().unwrap();
            assert!(waits && free, "{waits}, {free}");
        });
        assert!(node.open.lock().backing.as_deref().unwrap().solid);
    }
}
