//! What the kernel was shown of a file before a change.
//!
//! It keeps attributes until it hears of a change. Whoever is answered what a file is like may come to take that answer when the change that
//! was made meanwhile is known already, and then it keeps the old ones for good: who an ACL shut out was let in on. It takes no answer to what
//! was asked before it was last told to drop what it has.

use crate::Space;
use crate::node::Node;
use ullage_catalog::Inode;

impl Space {
    /// An attribute of a file is another now. Of a directory the kernel need not have asked before that.
    pub(crate) fn attribute_changed(&self, node: &Node) {
        if node.inode.take_shown() || node.inode.is_directory() {
            self.show_only(node);
        }
    }

    /// A file is another now in a way that the kernel sees by itself: entries of a directory, a time of its change. Where it was shown before,
    /// the kernel takes no late answer.
    pub(crate) fn changed(&self, inode: &Inode) {
        if inode.take_shown() {
            self.show_anew(inode);
        }
    }

    /// The same whether it was shown or not.
    pub(crate) fn show_anew(&self, inode: &Inode) {
        if let Some(node) = self.nodes.find(inode.id) {
            self.show_only(&node);
        }
    }

    /// The kernel drops what it has of a file, and keeps nothing that it was answered, or is about to be, to what was asked before.
    pub(crate) fn show_only(&self, node: &Node) {
        if let Some(kernel) = self.kernel()
            && let Err(error) = kernel.invalidate_node(node.id, -1, 0)
        {
            tracing::debug!(inode = %node.inode.id, %error, "the kernel keeps the attributes of a file");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Caller, SetAttributes};
    use crate::headroom::lend::tests::lending;
    use crate::test_kernel::TestKernel;
    use std::sync::Arc;
    use std::sync::atomic::Ordering::Relaxed;
    use ullage_types::NodeId;

    const CALLER: Caller = Caller { uid: 0, gid: 0, pid: 1 };

    /// How often the kernel is told to drop what it has while something is done.
    fn told(kernel: &TestKernel, done: impl FnOnce()) -> usize {
        let before = kernel.dropped.load(Relaxed);
        done();
        kernel.dropped.load(Relaxed) - before
    }

    fn space() -> (tempfile::TempDir, Arc<Space>, Arc<TestKernel>) {
        let dir = tempfile::tempdir().unwrap();
        let (space, _) = lending(dir.path());
        let kernel = Arc::new(TestKernel::default());
        space.set_kernel(kernel.clone());
        (dir, space, kernel)
    }

    /// Regression: whoever asked what a directory is like while the kernel knew that already, for the time of its birth or to be sure, and was answered
    /// late had it keep an old number of links for good.
    #[test]
    fn a_directory_that_was_asked_for_beside_what_the_kernel_knows_is_shown_anew_when_it_changes() {
        let (_dir, space, kernel) = space();
        let directory = space.do_mkdir(CALLER, NodeId(1), b"directory", 0o700, 0).unwrap().node;
        let mut made = 0;
        let mut change = || {
            made += 1;
            let name = made.to_string();
            told(&kernel, || {
                space.do_mkdir(CALLER, directory, name.as_bytes(), 0o700, 0).unwrap();
            })
        };
        let ask = || {
            space.do_getattr(directory).unwrap();
        };
        // The answer that it was made with is one.
        ask();
        assert_eq!(change(), 1);
        // What it asks itself before each change.
        for _ in 0..3 {
            ask();
            assert_eq!(change(), 0);
        }
        ask();
        ask();
        assert_eq!(change(), 1);
        space.do_setattr(CALLER, directory, SetAttributes { mode: Some(0o755), ..SetAttributes::default() }).unwrap();
        ask();
        assert_eq!(change(), 1);
        space.do_lookup(NodeId(1), b"directory").unwrap();
        assert_eq!(change(), 1);
        assert_eq!(change(), 0);
        let attribute = || space.do_setxattr(CALLER, directory, b"user.x", b"x", 0, None).unwrap();
        ask();
        assert_eq!((told(&kernel, attribute), told(&kernel, attribute)), (1, 1));
    }

    /// Regression: each ACL cost a message to the kernel, also that of a file that nobody had looked at yet.
    #[test]
    fn an_acl_is_told_to_the_kernel_only_where_somebody_was_shown_the_file() {
        let (_dir, space, kernel) = space();
        let file = space.do_mknod(CALLER, NodeId(1), b"pipe", libc::S_IFIFO | 0o600, 0, 0).unwrap().node;
        let acl = [2u32.to_le_bytes().to_vec()]
            .into_iter()
            .chain(
                [(1u16, 6u16), (4, 4), (32, 0)]
                    .map(|(tag, bits)| [tag.to_le_bytes(), bits.to_le_bytes(), [0xff; 2], [0xff; 2]].concat()),
            )
            .collect::<Vec<_>>()
            .concat();
        let set = || space.do_setxattr(CALLER, file, crate::acl::ACCESS, &acl, 0, None).unwrap();
        assert_eq!(told(&kernel, set), 0);
        space.do_getattr(file).unwrap();
        assert_eq!(told(&kernel, set), 1);
        assert_eq!(told(&kernel, set), 0);
    }
}
