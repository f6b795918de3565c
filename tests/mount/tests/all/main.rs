//! The whole program on real mounts. Needs root, and FUSE in the kernel.

#![allow(clippy::unwrap_used)]

mod absent;
mod again;
mod away;
mod commands;
mod connections;
mod crash;
mod damaged;
mod descriptors;
mod drain;
mod elsewhere;
mod errors;
mod fixtures;
mod frozen;
mod fstab;
mod full;
mod full_pool;
mod hanging;
mod hazards;
mod imported;
mod inodes;
mod input;
mod join;
mod limits;
mod mirror;
mod odd_paths;
mod overlay;
mod pools;
mod power;
mod rebuild;
mod refused;
mod refused_writes;
mod remote;
mod repair;
mod restart;
mod semantics;
mod silent;
mod stale;
mod stuck;
mod supervised;
mod terminal;
mod turns;
mod unborn;
mod unrebuilt;
mod vm;
