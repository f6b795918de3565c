//! Conformance tests for any directory: single checks of what POSIX and Linux promise of a file system, a data
//! fuzzer for one file, and generated operations on two directories in lockstep. Each first proves itself on a
//! native file system; a failure elsewhere is then a difference that a program could see.

#![deny(missing_docs)]
// Checks are read top to bottom: what they use comes from one place, and unwieldy literals are data.
#![allow(clippy::wildcard_imports, clippy::unreadable_literal, clippy::large_stack_arrays)]
// A listing under way is an iterator that the loop's body changes the directory of.
#![allow(clippy::while_let_on_iterator)]

pub mod check;
pub mod checks;
pub mod data_fuzz;
pub mod directory;
pub mod lockstep;
pub mod map;
pub mod random;
pub mod runner;
pub mod sys;
