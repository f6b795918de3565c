//! What commands and daemon say to each other: one JSON object a line, over the control socket.

use crate::PoolSettings;
use crate::settings::paths::{show, show_any};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use ullage_types::{Bytes, Class};

/// What a command asks.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Request {
    /// How the space is.
    Status,
    /// The same, once it is known what its pools can do.
    Pools,
    /// What is known of one file, by its number.
    Stat {
        /// `st_ino`.
        ino: u64,
        /// That who asks may read it: its attribute `user.ullage.proof`.
        #[serde(default)]
        proof: Option<u64>,
    },
    /// What lies below a directory.
    Du {
        /// `st_ino`.
        ino: u64,
        /// As above.
        #[serde(default)]
        proof: Option<u64>,
    },
    /// Every limit that who asks may see; of one user or directory, also where there is none.
    Limits {
        /// Only this user's.
        #[serde(default)]
        user: Option<u32>,
        /// Only that on this directory, by its `st_ino`.
        #[serde(default)]
        directory: Option<u64>,
    },
    /// Change a limit; only root and who mounted the space may.
    SetLimit {
        /// What it is on.
        subject: LimitSubject,
        /// The limit on bytes.
        bytes: LimitChange,
        /// The limit on inodes.
        inodes: LimitChange,
    },
    /// Have a pool emptied, or keep what it has; only root and who mounted the space may.
    Drain {
        /// Its name.
        pool: String,
        /// Not where this is false.
        drains: bool,
    },
    /// Add a pool; only root and who mounted the space may.
    AddPool {
        /// What it is to be; its number is given to it.
        pool: Box<PoolSettings>,
    },
    /// What is free and what is used.
    Df,
    /// Everything on disk now.
    Sync,
    /// Unmount and end. `lazy` takes the mount away even while it is used.
    Down {
        /// Do not wait for users of the mount.
        lazy: bool,
    },
}

/// What the daemon answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// To [`Request::Status`] and [`Request::Pools`].
    Status(Box<StatusReport>),
    /// To [`Request::Stat`].
    Stat(StatReport),
    /// To [`Request::Du`].
    Du(DuReport),
    /// To [`Request::Limits`].
    Limits {
        /// Users first.
        limits: Vec<LimitReport>,
    },
    /// To [`Request::SetLimit`].
    LimitSet {
        /// Files that were open for writing: the brake stops them, but not what is stored into their mappings.
        unbound: u64,
    },
    /// To [`Request::Df`].
    Df(Box<DfReport>),
    /// Done.
    Done,
    /// Refused; the text says why.
    Refused {
        /// Why.
        why: String,
    },
}

/// How a space is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StatusReport {
    /// Version of the daemon.
    pub version: String,
    /// Process of the daemon.
    pub pid: u32,
    /// The space.
    pub uuid: String,
    /// Where it is mounted.
    #[serde(serialize_with = "show")]
    pub mountpoint: PathBuf,
    /// It was taken away from there, and ends with its last user: a bind mount is one.
    #[serde(default)]
    pub detached: bool,
    /// Its state directory.
    #[serde(serialize_with = "show")]
    pub state: PathBuf,
    /// Seconds since it was mounted.
    pub uptime_seconds: u64,
    /// How requests come from the kernel.
    pub transport: String,
    /// Why not a better way.
    pub transport_why: String,
    /// Whether data moves in the kernel.
    pub passthrough: bool,
    /// The catalog takes no more writes, since one has failed.
    #[serde(default)]
    pub catalog_failed: bool,
    /// How it failed, and what to do.
    #[serde(default)]
    pub catalog_failure: Option<String>,
    /// Use of the whole space.
    pub used: SpaceUse,
    /// Its pools.
    pub pools: Vec<PoolReport>,
    /// The catalog's store.
    pub store: BTreeMap<String, u64>,
    /// Requests from the kernel by name.
    pub messages: BTreeMap<String, u64>,
    /// Changes that the plain trees of `mirror` pools do not show yet.
    #[serde(default)]
    pub trees_behind: usize,
    /// What the last start had to mend.
    pub recovered: serde_json::Value,
}

/// Use by class.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ClassUse {
    /// The class.
    pub class: Class,
    /// Allocated bytes.
    pub bytes: Bytes,
    /// Inodes.
    pub inodes: u64,
}

/// Use below a directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SpaceUse {
    /// Of all classes.
    pub bytes: Bytes,
    /// Of all classes.
    pub inodes: u64,
    /// Each class with any use.
    pub classes: Vec<ClassUse>,
}

/// A way to keep writes within limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    /// `kernel-quota`: the quota of the file system below; `mediated`: the kernel asks before it writes; `server`: the server writes.
    pub way: String,
    /// Whether it is used; none while that was not tried.
    pub used: Option<bool>,
    /// Why, or why not.
    pub why: String,
}

/// One pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PoolReport {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Its layout.
    pub layout: Option<String>,
    /// Where it is.
    #[serde(serialize_with = "show_any")]
    pub path: Option<PathBuf>,
    /// The file system below.
    pub fs_type: Option<String>,
    /// All there is.
    pub total: Bytes,
    /// Free.
    pub free: Bytes,
    /// Kept free.
    pub reserve: Bytes,
    /// What the file system below can do.
    pub abilities: BTreeMap<String, bool>,
    /// How writes are kept within limits.
    pub limits: String,
    /// The ways to do that: which are used, and why.
    #[serde(default)]
    pub ways: Vec<Way>,
    /// What a user should know.
    pub notes: Vec<String>,
    /// What was counted since the start.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
    /// The space was started without it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub absent: bool,
    /// How far it has been emptied, where it is to leave the space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draining: Option<DrainReport>,
}

/// Files, and what they take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesUse {
    /// How many.
    pub files: u64,
    /// Allocated bytes.
    pub bytes: Bytes,
}

/// How far a pool has been emptied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainReport {
    /// What went to other pools since the space was mounted.
    pub moved: FilesUse,
    /// What is still there; none until it was looked for.
    pub left: Option<FilesUse>,
    /// Files among it that somebody was at.
    pub in_use: u64,
    /// Some of them, by their paths: told to root and who mounted the space.
    pub in_use_paths: Vec<String>,
    /// Files that could not be moved.
    pub failed: u64,
    /// Why the last of them could not.
    pub failure: Option<String>,
    /// No other pool has room for some.
    pub lacks_room: bool,
}

/// One file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StatReport {
    /// `st_ino`.
    pub ino: u64,
    /// Its kind.
    pub kind: ullage_types::Kind,
    /// Its class.
    pub class: Class,
    /// Its owner.
    pub uid: u32,
    /// Length in bytes.
    pub size: Bytes,
    /// What it is charged.
    pub charge: Bytes,
    /// The directory it is charged to.
    pub charged_to: u64,
    /// Its pool.
    pub pool: Option<String>,
    /// Its backing file.
    #[serde(serialize_with = "show_any")]
    pub backing: Option<PathBuf>,
    /// The binding's generation.
    pub generation: Option<u64>,
}

/// What lies below a directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DuReport {
    /// `st_ino`.
    pub ino: u64,
    /// Use, the directory itself included.
    pub used: SpaceUse,
    /// What limits bound: persistent use, and what is held for open files.
    #[serde(default)]
    pub committed: Bytes,
    /// Names of multiply-linked files below.
    pub linked_names: u64,
}

/// What a limit is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitSubject {
    /// A user, by number.
    User(u32),
    /// A directory, by its `st_ino`; the root stands for the size of the space.
    Directory(u64),
}

/// What becomes of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitChange {
    /// It stays.
    Keep,
    /// There is none any more.
    Lift,
    /// So much and no more.
    Most(u64),
}

/// A limit and the use that it bounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LimitReport {
    /// What it is on.
    pub subject: LimitSubject,
    /// For directories.
    #[serde(serialize_with = "show_any")]
    pub path: Option<PathBuf>,
    /// Persistent use.
    pub used: Bytes,
    /// Held for open files beside that.
    pub held: Bytes,
    /// Persistent use.
    pub inodes: u64,
    /// The most bytes.
    pub limit: Option<Bytes>,
    /// The most inodes.
    pub limit_inodes: Option<u64>,
}

/// What is free and what is used.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DfReport {
    /// All that the pools' file systems have, each counted once.
    pub total: Bytes,
    /// What can still be written: free in the pools, without their reserves, and within the size of the space.
    pub free: Bytes,
    /// Used by this space.
    pub used: Bytes,
    /// Held for open files, and given back unless they use it.
    pub held: Bytes,
    /// Used by files that the system may remove.
    pub reclaimable: Bytes,
    /// Promised to allocations.
    #[serde(default)]
    pub guaranteed: Bytes,
    /// Kept free in the pools' file systems: of those that several pools share, the least reserve.
    pub reserve: Bytes,
    /// The size of the space, where it is limited.
    pub size: Option<Bytes>,
    /// Inodes used.
    pub inodes: u64,
    /// The most inodes, where they are limited.
    pub size_inodes: Option<u64>,
}
