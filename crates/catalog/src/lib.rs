//! Names, inodes and the ledger: the transactional truth of a space.
//!
//! Every record lives in a [`ullage_kv::Kv`]; the objects here are caches of records, written through at each
//! operation as one batch. Time is handed in, and nothing here touches a data file.

#![deny(missing_docs)]

mod account;
mod bound;
mod catalog;
mod directory;
mod error;
mod fuzz;
mod inode;
mod keys;
mod ledger;
mod limits;
mod marks;
mod names;
mod numbers;
mod ops;
mod record;
mod repair;
mod table;
mod verify;

pub use bound::{lies_in, pools_left_out};
pub use catalog::{Catalog, FORMAT};
pub use error::{Error, Result};
pub use fuzz::fuzz_decode;
pub use inode::{Inode, State};
pub use keys::inode_of_key;
pub use ledger::{DIRECTORY_CHARGE, Totals, TotalsNow, UserNow};
pub use limits::{Bound, Limit, LimitNow, Subject};
pub use marks::CatalogMarks;
pub use numbers::CatalogNumbers;
pub use ops::after;
pub use ops::create::{Brought, New};
pub use ops::readdir::Entry;
pub use ops::rename::Renamed;
pub use ops::unlink::Unlinked;
pub use ops::xattr::Mode as XattrMode;
pub use record::{Backing, Record};
pub use repair::{
    Facts, Found, Mode as RepairMode, Repaired, begin as begin_repair, describe_key, is_told_once, is_under_way, repair,
};
pub use verify::{Due, Finding, Report, verify};
