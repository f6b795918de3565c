//! The ordered stores below the write-behind layer.

mod checked;
mod fjall;
mod journals;
mod memory;
mod torn;

pub use self::fjall::{FjallEngine, FjallOptions};
pub use self::memory::MemoryEngine;
pub(crate) use self::torn::Torn;
