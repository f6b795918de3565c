//! A space in operation: its configuration, its start and end, and the control socket that commands talk to.

#![deny(missing_docs)]

mod adapt;
mod ballast;
mod control;
mod error;
mod fuzz;
mod held;
mod import;
mod mirror;
mod mounting;
mod open;
mod pools;
mod process;
mod repair;
mod serve;
mod settings;
mod turns;

pub use control::client::{Client, find_mount, lacks_state, refuse_silent};
pub use control::messages::{
    Answer, ClassUse, DfReport, DrainReport, DuReport, FilesUse, LimitChange, LimitReport, LimitSubject, PoolReport,
    Request, SpaceUse, StatReport, StatusReport, Way,
};
pub use error::{Error, Result};
pub use fuzz::fuzz_decode;
pub use mounting::flags::{Flags, remount};
pub use mounting::mount::{ServeOptions, TransportChoice};
pub use mounting::mountpoint::{clear_dead, detach, has_ended};
pub use mounting::mounts::mounts_of;
pub use open::OpenSpace;
pub use pools::add::add_pool;
pub use pools::remove::{Removed, remove_pool};
pub use process::background::{PROGRESS, start_in_background};
pub use process::panics::end_at_any_panic;
pub use process::rlimits::raise_rlimits;
pub use process::signals::end_signals;
pub use repair::check::{CheckReport, RepairReport, check};
pub use repair::facts::Progress;
pub use repair::rebuild::{RebuildReport, rebuild};
pub use serve::{Serving, serve};
pub use settings::config::{Kind, Layout, PoolSettings, SpaceSettings, State};
pub use settings::paths::{command, quoted};
pub use settings::places::{refuse_places, settled};
pub use settings::shape::Shape;
pub use turns::behind;
pub use ullage_fuse::{be_envoy, is_envoy, uring_is_off};
