//! A daemon that is stopped, and not ended: by SIGSTOP, a freezer or a debugger.

use super::bed::{Below, is_full};
use super::lend::{GIB, held, lending, lent, spacious};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Duration;
use ullage_mount_tests::recount::counted;
use ullage_mount_tests::run::eventually;

/// Goes on at the latest when this goes out of scope.
struct Stopped(Pid);

impl Stopped {
    fn new(process: u32) -> Self {
        let pid = Pid::from_raw(process as i32).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        kill_process(self.0, Signal::CONT).unwrap();
    }
}

/// What this takes of memory, which must be there.
const NEEDED: u64 = 8 * GIB;

fn available() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Nobody looks at it meanwhile.
#[test]
fn what_is_lent_to_is_bound_by_nothing_while_the_daemon_is_stopped() {
    if available() < NEEDED {
        eprintln!("skipped: it needs {NEEDED} bytes of memory");
        return;
    }
    let space = spacious(Below::Tmpfs);
    if !space.uses_passthrough() {
        return;
    }
    let room = 4 * GIB;
    let dir = lending(&space, "box", room);
    let path = dir.join("file");
    let file = lent(&path);
    file.write_all_at(&[1; 4096], 0).unwrap();
    assert!(held(&space) > 2 * GIB);
    let (piece, past) = (vec![1; 16 << 20], 128 << 20);
    {
        let _stopped = Stopped::new(space.pid());
        for at in (0..room + past).step_by(piece.len()) {
            file.write_all_at(&piece, at).unwrap();
        }
    }
    assert!(counted(&dir).bytes >= room + past, "it is counted once the daemon goes on");
    eventually("it is refused again", Duration::from_secs(20), || {
        is_full(&file.write_at(&[1; 4096], path.metadata().unwrap().size()).map(drop))
    });
    drop(file);
    fs::remove_file(path).unwrap();
    space.down_and_check();
}
