//! What the kernel was shown of a file before a change.
//!
//! It keeps attributes until it hears of a change. Whoever is answered what a file is like may come to take that answer when the change that
//! was made meanwhile is known already, and then it keeps the old ones for good: who an ACL shut out was let in on. It takes no answer to what
//! was asked before it was last told to drop what it has.

use crate::Space;
use crate::node::Node;
use ullage_catalog::Inode;

impl Space {
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
