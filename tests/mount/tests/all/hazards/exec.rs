//! Programs that are started while files of the space are open.

use std::fs::File;
use std::process::Command;
use std::time::Duration;
use ullage_mount_tests::space::Space;

/// The kernel lets nobody look at a process that closes files in execve(2), and that waits for the answer. A reader that looked where its
/// caller ran before it answered waited for ever, and with it everybody whom it was to answer, and whoever looked at that process.
#[test]
fn files_that_are_closed_as_a_program_is_started_stop_nobody() {
    for transport in ["device", "fuser"] {
        let mut space = Space::new();
        space.flags = ["--transport", transport, "--no-passthrough"].map(Into::into).to_vec();
        for _ in 0..4 {
            space.down();
            space.up();
            let file =
                File::options().read(true).write(true).create(true).truncate(true).open(space.path("file")).unwrap();
            for n in 0..300 {
                assert!(!space.path(format!("none-{n}")).exists());
            }
            // Long enough for the reader to look again.
            std::thread::sleep(Duration::from_millis(8));
            assert!(Command::new("true").status().unwrap().success());
            drop(file);
        }
        space.down_and_check();
    }
}
