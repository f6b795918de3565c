//! A disk with a cache of its own that loses what was not flushed: the program `caching-disk`, below a loop device.

use crate::ground::Ground;
use crate::run::program;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use ullage_posix_tests::random::Random;

/// A disk whose cache is lost with the power.
#[derive(Debug)]
pub struct CachingDisk {
    talk: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
    device: PathBuf,
    // Ends with its input.
    process: Child,
}

/// A disk that does not answer, until this is dropped.
#[derive(Debug)]
pub struct Hanging<'a>(&'a CachingDisk);

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        self.0.signal(libc::SIGCONT);
    }
}

impl CachingDisk {
    /// Serves the file system in `image`, of which a cut leaves what was flushed.
    pub fn new(ground: &mut Ground, image: &Path) -> Self {
        let name = image.file_name().and_then(OsStr::to_str).expect("it has a name");
        let point = ground.directory(&format!("cache-of-{name}"));
        let own = std::env::current_exe().expect("this program is a file");
        // Tests lie one directory below the programs.
        let places = own.ancestors().skip(1).take(2).map(|directory| directory.join("caching-disk"));
        let program = places.clone().find(|place| place.exists()).or(places.last()).expect("two places");
        let mut process = Command::new(&program)
            .args([image, &point])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("{} ({error}): cargo build -p ullage-mount-tests --bins", program.display())
            });
        let (input, output) = (process.stdin.take(), process.stdout.take());
        let talk = (input.expect("it was asked for"), BufReader::new(output.expect("it was asked for")));
        let disk = Self { talk: Mutex::new(talk), device: point.join("disk"), process };
        assert_eq!(disk.answer(), "ready");
        ground.will_unmount(&point);
        disk
    }

    /// One with a new file system of so many mebibytes, and where that is mounted.
    pub fn mounted(ground: &mut Ground, mebibytes: u64, mkfs: &str, flags: &[&str]) -> (Self, PathBuf) {
        let image = ground.image("outer", 1024, "mkfs.xfs", &["-q", "-m", "reflink=1"], "loop").join("image");
        File::create(&image).and_then(|file| file.set_len(mebibytes << 20)).expect("an image can be made");
        program(mkfs, flags.iter().map(AsRef::as_ref).chain([image.as_os_str()])).ok();
        let disk = Self::new(ground, &image);
        let point = ground.mount_image("disk", disk.device());
        (disk, point)
    }

    /// What a loop device is to be made of.
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// It answers nothing for a while.
    pub fn hang(&self) -> Hanging<'_> {
        self.signal(libc::SIGSTOP);
        Hanging(self)
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: a call without pointers; the process is a child that nobody has waited for.
        assert_eq!(unsafe { libc::kill(self.process.id() as i32, signal) }, 0);
    }

    /// From now on it says that it flushes and does not.
    pub fn lie(&self) {
        assert_eq!(self.ask("lie"), "lying");
    }

    /// Leaves in a new file what the disk holds when the power goes now.
    pub fn lose(&self, into: &Path, random: &mut Random) {
        let answer = self.ask(&format!("lose {} {}", into.display(), random.bits()));
        assert!(answer.ends_with("lost"), "{answer}");
    }

    fn ask(&self, what: &str) -> String {
        writeln!(self.talk.lock().expect("no other test has it").0, "{what}").expect("it listens");
        self.answer()
    }

    fn answer(&self) -> String {
        let mut line = String::new();
        self.talk.lock().expect("no other test has it").1.read_line(&mut line).expect("it answers");
        line.trim().to_owned()
    }
}
