//! The ordered stores below the write-behind layer.

mod checked;
mod fjall;
mod journals;
mod memory;

pub use self::fjall::{FjallEngine, FjallOptions};
pub use self::memory::MemoryEngine;
