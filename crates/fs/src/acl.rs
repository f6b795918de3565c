//! POSIX ACLs in the form the kernel keeps them in extended attributes, and how they and the mode follow each other.

use crate::{Errno, Outcome};

/// The ACL that permissions are checked against.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The ACL that files made in a directory inherit.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Item {
    tag: u16,
    permissions: u16,
    id: u32,
}

/// A valid ACL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl(Vec<Item>);

impl Acl {
    /// Reads and checks an ACL: entries in order, each of the three base ones exactly once, a mask where one is due.
    pub(crate) fn decode(bytes: &[u8]) -> Outcome<Self> {
        let (version, rest) = bytes.split_first_chunk::<4>().ok_or(Errno::EINVAL)?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Errno::EOPNOTSUPP);
        }
        let (chunks, []) = rest.as_chunks::<8>() else { return Err(Errno::EINVAL) };
        let items: Vec<Item> = chunks
            .iter()
            .map(|c| Item {
                tag: u16::from_le_bytes([c[0], c[1]]),
                permissions: u16::from_le_bytes([c[2], c[3]]),
                id: u32::from_le_bytes([c[4], c[5], c[6], c[7]]),
            })
            .collect();
        let count = |tag: u16| items.iter().filter(|item| item.tag == tag).count();
        let extended = count(USER) + count(GROUP) > 0;
        let base = [USER_OBJ, GROUP_OBJ, OTHER].into_iter().all(|tag| count(tag) == 1);
        let masked = count(MASK) == 1 || (count(MASK) == 0 && !extended);
        // One user may be named twice, as on ext4: the first entry counts.
        let ordered = items.is_sorted_by_key(|item| item.tag);
        let known = items
            .iter()
            .all(|item| item.permissions <= 7 && [USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER].contains(&item.tag));
        if base && masked && ordered && known { Ok(Self(items)) } else { Err(Errno::EINVAL) }
    }

    /// The bytes of the extended attribute.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = VERSION.to_le_bytes().to_vec();
        for item in &self.0 {
            out.extend_from_slice(&item.tag.to_le_bytes());
            out.extend_from_slice(&item.permissions.to_le_bytes());
            out.extend_from_slice(&item.id.to_le_bytes());
        }
        out
    }

    fn find(&self, tag: u16) -> Option<&Item> {
        self.0.iter().find(|item| item.tag == tag)
    }

    fn find_mut(&mut self, tag: u16) -> Option<&mut Item> {
        self.0.iter_mut().find(|item| item.tag == tag)
    }

    /// Whether it says no more than permission bits can.
    pub(crate) fn is_mode(&self) -> bool {
        self.0.len() == 3
    }

    /// The permission bits that go with it: the group's are the mask's where there is one.
    pub(crate) fn mode(&self) -> u32 {
        let of = |tag: u16| self.find(tag).map_or(0, |item| u32::from(item.permissions));
        let group = if self.find(MASK).is_some() { of(MASK) } else { of(GROUP_OBJ) };
        of(USER_OBJ) << 6 | group << 3 | of(OTHER)
    }

    /// The permission bits of who knows nothing of ACLs: the group has what its own entry gives it.
    pub(crate) fn without_names(&self) -> u32 {
        let group = self.find(GROUP_OBJ).map_or(0, |item| u32::from(item.permissions)) << 3;
        self.mode() & (!0o070 | group)
    }

    /// Follows a chmod: the owner's and the others' bits, and the group's in the mask (or the group's entry).
    pub(crate) fn chmod(&mut self, mode: u32) {
        let group = if self.find(MASK).is_some() { MASK } else { GROUP_OBJ };
        for (tag, shift) in [(USER_OBJ, 6), (group, 3), (OTHER, 0)] {
            if let Some(item) = self.find_mut(tag) {
                item.permissions = (mode >> shift & 7) as u16;
            }
        }
    }

    /// What a file made with `mode` under this default ACL gets: its ACL, and its permission bits.
    pub(crate) fn inherited(&self, mode: u32) -> (Self, u32) {
        let mut acl = self.clone();
        let group = if self.find(MASK).is_some() { MASK } else { GROUP_OBJ };
        for (tag, shift) in [(USER_OBJ, 6), (group, 3), (OTHER, 0)] {
            if let Some(item) = acl.find_mut(tag) {
                item.permissions &= (mode >> shift & 7) as u16;
            }
        }
        let bits = acl.mode();
        (acl, bits | (mode & 0o7000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(items: &[(u16, u16, u32)]) -> Vec<u8> {
        Acl(items.iter().map(|&(tag, permissions, id)| Item { tag, permissions, id }).collect()).encode()
    }

    const NONE: u32 = u32::MAX;

    #[test]
    fn the_mask_stands_for_the_group_in_the_mode() {
        let bytes = acl(&[(1, 6, NONE), (2, 7, 1000), (4, 5, NONE), (16, 4, NONE), (32, 0, NONE)]);
        let parsed = Acl::decode(&bytes).expect("valid");
        assert_eq!((parsed.mode(), parsed.is_mode()), (0o640, false));
        let mut changed = parsed.clone();
        changed.chmod(0o755);
        assert_eq!((changed.mode(), changed.find(GROUP_OBJ).map(|i| i.permissions)), (0o755, Some(5)));
        let (child, mode) = parsed.inherited(0o4666);
        assert_eq!((mode, child.mode()), (0o4640, 0o640));
    }

    #[test]
    fn what_is_no_acl_is_refused() {
        for items in [
            &[(1, 6, NONE), (4, 5, NONE)][..],
            &[(1, 6, NONE), (2, 7, 5), (4, 5, NONE), (32, 0, NONE)],
            &[(4, 5, NONE), (1, 6, NONE), (32, 0, NONE)],
            &[(1, 8, NONE), (4, 5, NONE), (32, 0, NONE)],
        ] {
            assert_eq!(Acl::decode(&acl(items)), Err(Errno::EINVAL), "{items:?}");
        }
        assert!(Acl::decode(&[2, 0, 0]).is_err());
        // As the kernel has it.
        let twice = [(1, 6, NONE), (2, 7, 5), (2, 5, 5), (4, 5, NONE), (16, 7, NONE), (32, 0, NONE)];
        assert!(Acl::decode(&acl(&twice)).is_ok());
    }
}
