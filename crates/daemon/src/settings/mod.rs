//! What a space consists of (`space.toml`), and where its parts lie.

pub(crate) mod bounds;
pub(crate) mod config;
pub(crate) mod first_use;
pub(crate) mod numbers;
pub(crate) mod paths;
pub(crate) mod places;
pub(crate) mod shape;
