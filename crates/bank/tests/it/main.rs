//! Banks over real connections, with a journal or etcd behind them.

#![allow(missing_docs, clippy::unwrap_used)]

mod api;
#[cfg(feature = "etcd")]
mod balance;
mod bounds;
mod common;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "etcd")]
mod etcd_tls;
#[cfg(feature = "etcd")]
mod member;
mod restart;
mod silent;
