//! What the kernel really does, one test for each hazard that the design names.

mod after_kill;
mod attributes;
mod exec;
mod late;
mod listed;
mod mapping;
mod names;
mod one_mode;
mod operations;
pub mod privileges;
mod recycled;
mod unlinked;
