//! Idle memory lent out and never missed: samplers, histogram, controller, cgroup back ends.
//!
//! This is the memory half of *transparent contribution* (TMM, section 2.3 of the paper) on a stock
//! kernel. Background work runs in a *contributed* group; everything else is *opaque*. The
//! [`sampler`]s watch which opaque pages are referenced, the [`histogram`] of LRU positions says how
//! much memory opaque work uses profitably, the [`control`]ler (pure: `tick(observation) -> actions`)
//! decides how much may be lent, and a [`backend`] makes the kernel keep to it.
#![deny(missing_docs)]

pub mod backend;
pub mod bench;
pub mod chart;
pub mod control;
pub mod daemon;
pub mod error;
pub mod footprint;
pub mod generations;
pub mod guard;
pub mod histogram;
pub mod join;
pub mod lru;
pub mod runtime;
pub mod sampler;
pub mod simulate;
pub mod system;
pub mod timeline;

mod sys;

pub use error::{Error, Result};

/// Size of a page in bytes, as everywhere on x86-64 and most arm64.
pub const PAGE: u64 = 4096;
