//! The checks, one area per file.

mod acl;
mod append;
mod atime;
mod capable;
mod chmod;
mod chown;
mod copy;
mod direct;
mod exec;
mod fallocate;
mod holes;
mod link;
mod listing;
mod locks;
mod map;
mod mkdir;
mod mknod;
mod open;
mod paths;
mod permission;
mod rename;
mod rename_flags;
mod set_id;
mod size;
mod splice;
mod statfs;
mod sticky;
mod symlink;
mod times;
mod truncate;
mod unlink;
mod unlinked;
mod utimens;
mod write;
mod xattr;

use crate::check::Check;

/// All checks, in the order they run.
pub fn all() -> Vec<Check> {
    [
        chmod::CHECKS,
        chown::CHECKS,
        link::CHECKS,
        mkdir::CHECKS,
        mknod::CHECKS,
        open::CHECKS,
        paths::CHECKS,
        permission::CHECKS,
        rename::CHECKS,
        rename_flags::CHECKS,
        set_id::CHECKS,
        sticky::CHECKS,
        symlink::CHECKS,
        times::CHECKS,
        truncate::CHECKS,
        unlink::CHECKS,
        unlinked::CHECKS,
        utimens::CHECKS,
        write::CHECKS,
        append::CHECKS,
        atime::CHECKS,
        capable::CHECKS,
        copy::CHECKS,
        direct::CHECKS,
        exec::CHECKS,
        fallocate::CHECKS,
        holes::CHECKS,
        listing::CHECKS,
        locks::CHECKS,
        map::CHECKS,
        size::CHECKS,
        splice::CHECKS,
        statfs::CHECKS,
        acl::CHECKS,
        xattr::CHECKS,
    ]
    .concat()
}
