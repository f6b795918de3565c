//! A space in operation: its configuration, its start and end, and the control socket that commands talk to.

#![deny(missing_docs)]

mod adapt;
mod add;
mod background;
mod ballast;
mod bounds;
mod bring_back;
mod changes;
mod check;
mod client;
mod config;
mod control;
mod drain;
mod error;
mod facts;
mod first_use;
mod flags;
mod fuzz;
mod guests;
mod held;
mod import;
mod limit;
mod messages;
mod mirror;
mod mount;
mod mountable;
mod mountpoint;
mod mounts;
mod notify;
mod numbers;
mod open;
mod owner;
mod panics;
mod paths;
mod places;
mod rebuild;
mod remove;
mod report;
mod rlimits;
mod saved;
mod serve;
mod shape;
mod signals;
mod turns;
mod ways;
mod within;

pub use add::add_pool;
pub use background::{PROGRESS, start_in_background};
pub use check::{CheckReport, RepairReport, check};
pub use client::{Client, find_mount, lacks_state, refuse_silent};
pub use config::{Kind, Layout, PoolSettings, SpaceSettings, State};
pub use error::{Error, Result};
pub use facts::Progress;
pub use flags::{Flags, remount};
pub use fuzz::fuzz_decode;
pub use messages::{
    Answer, ClassUse, DfReport, DrainReport, DuReport, FilesUse, LimitChange, LimitReport, LimitSubject, PoolReport,
    Request, SpaceUse, StatReport, StatusReport, Way,
};
pub use mount::{ServeOptions, TransportChoice};
pub use mountpoint::{clear_dead, detach, has_ended};
pub use mounts::mounts_of;
pub use open::OpenSpace;
pub use panics::end_at_any_panic;
pub use paths::quoted;
pub use places::{refuse_places, settled};
pub use rebuild::{RebuildReport, rebuild};
pub use remove::{Removed, remove_pool};
pub use rlimits::raise_rlimits;
pub use serve::{Serving, serve};
pub use shape::Shape;
pub use signals::end_signals;
pub use turns::behind;
pub use ullage_fuse::{be_envoy, is_envoy, uring_is_off};
