//! Names of people and machines, and the numbers that stand for them in vouchers.

use sha2::{Digest, Sha256};
use ullage_voucher::{Client, Node, User};

/// Banks of shard s are node `BANK_NODE + s`; storage servers are numbered from 1 to below it.
pub const BANK_NODE: u32 = 0xffff_0000;

fn number(purpose: &str, name: &str) -> u64 {
    let digest = Sha256::new().chain_update(purpose).chain_update([0]).chain_update(name).finalize();
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&digest[..8]);
    u64::from_be_bytes(bytes)
}

/// The number of a user: 64 bits of SHA-256, so that every party finds it alone and no two of a site's users share one.
pub fn user(name: &str) -> User {
    User(number("user", name))
}

/// The number of one wallet of an authenticated party. The upper half is the party's, so that nobody can spend, or cheat,
/// under the number of another; the lower half is the party's choice.
pub fn client(party: &str, instance: u32) -> Client {
    Client(number("client", party) & 0xffff_ffff_0000_0000 | u64::from(instance))
}

/// Whether a client's number is one that this party may use.
pub fn is_client_of(client_number: Client, party: &str) -> bool {
    client(party, client_number.0 as u32) == client_number
}

/// The number in a store's name: `store-7` is node 7. A store's certificate so says which node it may speak for.
pub fn node_of(name: &str) -> Option<Node> {
    let number: u32 = name.rsplit_once('-')?.1.parse().ok()?;
    (number > 0 && number < BANK_NODE).then_some(Node(number))
}

/// The node that the bank of a shard is.
pub fn bank_node(shard: u32) -> Node {
    Node(BANK_NODE + shard)
}

/// Which shard keeps a user's account.
pub fn shard_of(user: User, shards: u32) -> u32 {
    (user.0 % u64::from(shards.max(1))) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_number_belongs_to_one_party() {
        let number = client("alice", 7);
        assert!(is_client_of(number, "alice") && !is_client_of(number, "bob"));
        assert_ne!(user("alice"), user("bob"));
    }
}
