//! A kernel that refuses the rings after it has agreed to them: it then holds back every request until it is told.

use crate::mount::mount_with;
use crate::{Choice, MountOptions, Transport};
use mirrorfs::{Knobs, MirrorFs};
use std::sync::{Arc, Mutex};

#[path = "../../tests/common/mirrorfs.rs"]
#[allow(dead_code, missing_docs)]
mod mirrorfs;

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// One at a time: the module's parameter is put back at the end.
static ALONE: Mutex<()> = Mutex::new(());

fn falls_back(ring_payload: usize) {
    let _alone = ALONE.lock();
    let before = std::fs::read_to_string(PARAMETER).unwrap();
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let (at, backing) = (directory.path().join("mnt"), directory.path().join("backing"));
    std::fs::create_dir(&at).unwrap();
    std::fs::create_dir(&backing).unwrap();
    let (done, watched) = std::sync::mpsc::channel::<()>();
    let mountpoint = at.clone();
    let watchdog = std::thread::spawn(move || {
        if watched.recv_timeout(std::time::Duration::from_secs(30)) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            let _ = rustix::mount::unmount(mountpoint, rustix::mount::UnmountFlags::FORCE);
            panic!("the mount hung");
        }
    });
    let with = |transport| {
        let options =
            MountOptions { enable_uring: true, transport, subtype: "ullage-test".into(), ..MountOptions::default() };
        mount_with(MirrorFs::new(&backing, Arc::new(Knobs::default())), &at, &options, Some(ring_payload))
    };
    let mounted = with(Choice::Best).unwrap();
    assert_eq!(mounted.transport(), Transport::Device);
    assert!(mounted.why().starts_with("io_uring is better, but failed: queue of CPU 0: "), "{}", mounted.why());
    std::fs::write(at.join("file"), b"x").unwrap();
    assert_eq!(std::fs::read(backing.join("file")).unwrap(), b"x");
    mounted.unmount().unwrap();
    // Where nothing else will do, the mount fails and leaves nothing behind.
    assert!(with(Choice::IoUring).is_err());
    assert!(!at.join("file").exists());
    std::fs::write(PARAMETER, before).unwrap();
    drop(done);
    watchdog.join().unwrap();
}

#[test]
fn a_refused_registration_falls_back_to_the_device() {
    falls_back(4096);
}

#[test]
fn a_ring_that_cannot_be_made_falls_back_to_the_device() {
    falls_back(usize::MAX);
}
