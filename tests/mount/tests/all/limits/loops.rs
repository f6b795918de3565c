//! Block devices above files of a space: what is written to them the kernel writes, from threads of its own.

use super::bed::{Below, in_pool, set};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use ullage_mount_tests::recount::counted;
use ullage_mount_tests::run::program;

/// A loop device, until it goes out of scope.
struct Loop(PathBuf);

impl Loop {
    fn above(file: &Path) -> Self {
        let words = ["--direct-io=on".as_ref(), "-f".as_ref(), "--show".as_ref(), file.as_os_str()];
        Self(program("losetup", words).ok().trim().into())
    }

    /// Writes at several places at once, by pieces of this size, until that fails or is over.
    fn write(&self, writers: u64, piece: u64, direct: bool) {
        let flags = if direct { libc::O_DIRECT } else { 0 };
        assert!(OpenOptions::new().write(true).custom_flags(flags).open(&self.0).is_ok(), "it can be written to");
        let begin = |writer: u64| {
            let mut words = vec![format!("of={}", self.0.display()), format!("bs={piece}")];
            words.extend(["if=/dev/zero", "status=none"].map(String::from));
            words.push(format!("seek={}", writer * EACH / piece));
            words.push(format!("count={}", EACH / piece));
            words.push(if direct { "oflag=direct" } else { "conv=fsync,notrunc" }.into());
            Command::new("dd").args(words).stderr(Stdio::null()).spawn().unwrap()
        };
        let mut all: Vec<_> = (0..writers).map(begin).collect();
        let until = Instant::now() + Duration::from_secs(60);
        for child in &mut all {
            while child.try_wait().unwrap().is_none() {
                if Instant::now() > until {
                    child.kill().unwrap();
                    panic!("it hangs");
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

const EACH: u64 = 12 << 20;

/// The length of what they write is not told: they went on while a block was left, and passed the limit by a request.
#[test]
fn a_loop_device_that_was_attached_before_a_limit_stops_at_it() {
    for (below, limit, writers, piece, direct) in [
        (Below::Tmpfs, (20 << 20) + 8192, 8, 4 << 20, true),
        (Below::Ext4, (20 << 20) + 8192, 4, 4 << 20, true),
        (Below::Ext4, 20 << 20, 4, 1 << 20, false),
    ] {
        let space = below.space();
        let dir = space.path("box");
        fs::create_dir(&dir).unwrap();
        let file = dir.join("image");
        fs::File::create(&file).unwrap().set_len(64 << 20).unwrap();
        let device = Loop::above(&file);
        set(&[&format!("{limit}B")], &dir).ok();
        device.write(writers, piece, direct);
        drop(device);
        let used = counted(&dir).bytes;
        assert!(used <= limit, "{below:?}, direct {direct}: {} bytes past the limit", used - limit);
        assert!(used + (6 << 20) > limit, "{below:?}: refused with {} bytes left", limit - used);
        assert!(in_pool(&space) <= limit);
        space.down_and_check();
    }
}
