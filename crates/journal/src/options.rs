//! How durable a journal is.

/// What "durable" means before a record is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// `fdatasync` after each group: survives a power cut.
    #[default]
    Disk,
    /// Written to the kernel only: survives `kill -9` of the process, not a power cut.
    Process,
}

/// How a journal is opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// What "durable" means.
    pub durability: Durability,
}
