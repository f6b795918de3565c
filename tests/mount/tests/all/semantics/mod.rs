//! `docs/SEMANTICS.md`, executed: every statement there names the tests that do so, and those that no other test needs are
//! here.

mod asking;
mod charges;
mod handles;
mod listed;
mod users;
mod values;
