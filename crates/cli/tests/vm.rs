//! Other kernels, booted under QEMU: Debian's, which `make tools` unpacks below `target/vm`, one with the idle-page bitmap, which
//! `make idle-kernel` builds below `target/vm-idle`, and one newer than any release of Debian has, which `make new-kernel` fetches
//! below `target/vm-new`. Skipped, with a message, where QEMU, busybox, cpio or the kernel cannot be had.

#![allow(clippy::unwrap_used)]

#[path = "vm/machine.rs"]
mod machine;

use machine::{Parts, Told};
use std::path::Path;

/// What a server of NFS and its client need, the one after the other.
const NFS: &str =
    "oid_registry sunrpc auth_rpcgss dns_resolver netfs fscache grace nfs_ssc lockd nfs_acl nfs nfsv4 nfsd";

fn boot(directory: &str, made_by: &str, words: &str) -> Option<Told> {
    let programs =
        &[("ullage", Path::new(env!("CARGO_BIN_EXE_ullage"))), ("setpriv.real", Path::new("/usr/bin/setpriv"))];
    // zram needs both of lz4's since Linux 6.12.
    machine::boot(
        directory,
        made_by,
        words,
        &Parts { programs, modules: &format!("zsmalloc lz4_compress lz4hc_compress zram fuse {NFS}") },
    )
}

/// A user of 57 MiB in a box of 256 MiB went away, and came back beside a hog.
fn lent_and_taken_back(told: &Told, sampler: &str) {
    let away = told.json("away");
    assert_eq!((away["backend"].as_str(), away["sampler"].as_str()), (Some("cgroup v2"), Some(sampler)));
    let lent = away["report"]["picture"]["contributed"].as_u64().unwrap() * 4096;
    let oracle = (256 << 20) - 60_000_000;
    assert!(lent as f64 >= 0.85 * f64::from(oracle), "{lent} of {oracle} bytes were lent: {}", away["report"]);
    assert!(
        away["evicted"].as_u64().unwrap() * 4096 > 20 << 20,
        "what was touched once was evicted: {}",
        away["report"]
    );
    let faults: u64 = told.said("faults").parse().unwrap();
    // Emulated clocks jump and periods are of three seconds: some are evicted in vain, 3,072 in one run of many. Chosen blindly it
    // would be three quarters of the 14,648 pages (regression: each sample aged the generations, and soon all were the oldest).
    let console = &told.console;
    assert!(faults < 5_000, "{faults} faults on coming back\n{console}");
    assert!(told.said("operations").parse::<u64>().unwrap() > 20, "the user worked again\n{console}");
    assert_eq!((told.said("ended"), told.said("left"), told.said("high")), ("0", "", "max"), "nothing is left behind");
}

#[test]
fn memory_is_lent_and_taken_back_with_the_idle_page_bitmap() {
    // Under emulation a sample takes a second, and a period must have a few.
    let words = "SAMPLER=idle-bitmap SCRIPTS=memory/1-away SPEED=6 WORK=70";
    if let Some(told) = boot("vm-idle", "idle-kernel", words) {
        lent_and_taken_back(&told, "idle-page bitmap");
    }
}

#[test]
fn memory_is_lent_and_taken_back_on_cgroup_v2_with_generations() {
    let Some(told) = boot("vm", "tools", "SCRIPTS=memory/*") else { return };
    lent_and_taken_back(&told, "MGLRU (debugfs lru_gen)");
    let (said, json, console) = (|name: &str| told.said(name), |name: &str| told.json(name), &told.console);
    assert!(said("marked").contains("/killed/ullage.contributed"), "{console}");
    assert_eq!(said("killed-left"), "", "a killed controller's groups go");
    assert!(!said("sleeper").contains("ullage") && said("sleeper").contains("sleeping"), "{}", said("sleeper"));

    assert!(said("user-group").ends_with("/delegated/ullage.contributed"), "{}", said("user-group"));
    assert_eq!(json("user")["backend"], "cgroup v2");
    assert_eq!((said("user-code"), said("user-left")), ("7", ""));
    assert_eq!((said("killed-control"), said("user-control")), ("memory", ""), "only what we gave is taken back");
    assert!(said("undelegated").contains("no part of the hierarchy is delegated to you"), "{}", said("undelegated"));
}

/// A space was made and used, its daemon killed, a CPU taken away and given back (`mount/*.sh`).
fn used_while_cpus_come_and_go(told: &Told, transport: &str) {
    let (said, console) = (|name: &str| told.said(name), &told.console);
    let numbers: Vec<u32> = said("kernel").split('.').map_while(|number| number.parse().ok()).collect();
    let passthrough = numbers >= vec![6, 9];
    assert!(said("up").ends_with("done"), "{console}");
    let status = told.json("status");
    assert_eq!(status["transport"], transport, "{status}");
    assert_eq!(status["passthrough"], passthrough, "{status}");
    assert_eq!(said("same"), "yes", "{console}");
    assert_eq!(
        said("kinds"),
        "fifo,character special file,symbolic link,directory,regular file,",
        "of the kinds that were made"
    );
    assert_eq!((said("links"), said("runs"), said("allowed")), ("2", "from the mount", "mine"), "{console}");
    assert!(said("refused").contains("Permission denied"), "{}", said("refused"));
    assert_eq!(said("refused-space"), "No space left on device", "of a directory with a limit of 1 MiB: {console}");
    assert!(said("small-kib").parse::<u64>().unwrap() <= 1024, "{}", said("small-kib"));
    assert!(said("again").ends_with("done"), "a killed daemon's space starts again: {console}");
    for name in ["data", "moved", "programs", "users"] {
        assert!(said("kept").contains(name), "{name}: {console}");
    }
    assert_eq!(said("check"), "clean", "{console}");

    assert_eq!(said("both"), "12 12", "{console}");
    assert_eq!(said("gone"), "0 12", "without the second CPU: {console}");
    assert_eq!(said("back"), "0-1 12 12", "{console}");
    assert_eq!((said("busy"), said("down")), ("0", "done"), "{console}");
    assert_eq!(said("one"), "12", "on one CPU from the start: {console}");
    assert_eq!((said("more"), said("last")), ("12 12", "done"), "and a second comes later: {console}");
    on_a_servers_file_system(told);
}

/// A pool there could not be locked, and users' data was written in the name of a user who may not.
fn on_a_servers_file_system(told: &Told) {
    let (said, console) = (|name: &str| told.said(name), &told.console);
    assert!(said("remote-up").ends_with("done"), "{console}");
    assert_eq!(said("remote"), "over nfs: its data moves through the server", "{console}");
    assert_eq!(said("remote-user"), "runs", "{console}");
    assert!(said("remote-locked").contains("in use"), "{}", said("remote-locked"));
    assert_eq!(said("remote-refused"), "quota exceeded", "{console}");
    assert_eq!((said("remote-down"), said("remote-again")), ("done", "done"), "{console}");
}

#[test]
fn a_space_on_debians_kernel_while_cpus_come_and_go() {
    let Some(told) = boot("vm", "tools", "SCRIPTS=mount/*") else { return };
    used_while_cpus_come_and_go(&told, "/dev/fuse");
}

#[test]
fn a_space_over_io_uring_while_cpus_come_and_go() {
    let Some(told) = boot("vm-new", "new-kernel", "SCRIPTS=mount/* UP=--enable-uring") else { return };
    used_while_cpus_come_and_go(&told, "io_uring");
}
