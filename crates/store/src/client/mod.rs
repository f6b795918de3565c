//! The client: a wallet per user, chunk operations that pay by themselves, and files striped over the stores.
//!
//! [`Purse`] runs the wallet against the banks, [`Chunks`] one operation on one chunk, [`Files`] whole files. A pool can use
//! [`Chunks`] alone.

mod chunks;
mod config;
mod crowd;
mod files;
mod get;
mod layout;
mod local;
mod parts;
mod purse;
mod put;
mod stop;
mod sweep;
mod transfer;

pub use chunks::{ChunkError, Chunks, StoreAddress};
pub use config::{ClientConfig, ConfigError};
pub use files::{FileError, Files, Listed, Removed};
pub(crate) use layout::fuzz_manifest;
pub use layout::{Manifest, STRIPE_BYTES};
pub use purse::{Purse, PurseSettings, Unpayable};
pub use stop::Stop;
pub use sweep::Swept;
pub use transfer::{Progress, Transferred};
