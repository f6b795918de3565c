//! `docs/SEMANTICS.md`, executed: every statement there names the tests that do so, and those that no other test needs are
//! here.

mod asking;
mod charges;
mod handles;
mod listed;
mod mapped;
mod users;
mod values;
