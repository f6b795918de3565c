//! What becomes of files that nobody uses any more: closed ones are measured and let go of, removed ones give their room back.

pub(crate) mod departing;
pub(crate) mod leaving;
pub(crate) mod measured;
pub(crate) mod reaper;
pub(crate) mod room;
pub(crate) mod settle;
pub(crate) mod shown;
