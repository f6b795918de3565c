//! A process apart that makes calls in the mount for the one that answers them.
//!
//! No signal ends a call's wait for an answer of ours. Made by a thread of this process it would outlive a kill of it, keep the
//! process's memory, and with that the rings that are mapped there, in which requests of others would wait for ever.

use crate::entrance::Entrance;
use crate::servers::Servers;
use crate::{refresh, sys};
use rustix::process::{Resource, Rlimit};
use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use ullage_fs::Envoy;
use ullage_types::NodeId;

/// The name by which this program is called to be one.
const NAME: &str = "ullage-envoy";
/// The same, as lists of processes show it.
const COMMAND: &CStr = c"ullage-envoy";
/// What it says first: whatever else was started says something else.
const READY: [u8; 12] = *b"ullage-envoy";

/// What is said where there is no way in, which the kernel has no number for.
const NO_WAY: &str = "the mount is not at its place, and who has the file open there is not found by a descriptor";

const REFRESH: u8 = 1;
const UNNAMED: u8 = 2;
const WRITE: u8 = 3;
const LOOK: u8 = 4;

/// What is asked: one of the above, a node, and who opened it.
const QUESTION: usize = 13;
/// What is answered: an error's number, or 0, and a node.
const ANSWER: usize = 12;

/// One that was started. It ends when this is dropped.
#[derive(Debug)]
struct Started {
    child: Child,
    questions: Option<ChildStdin>,
    answers: ChildStdout,
    servers: Servers,
}

/// Starts one for the mount of this device: this program again, in the scheduling class of the calling thread.
pub(crate) fn start(mountpoint: &Path, (major, minor): (u32, u32), servers: Servers) -> io::Result<Box<dyn Envoy>> {
    let mut child = Command::new("/proc/self/exe")
        .arg0(NAME)
        .arg(mountpoint)
        .args([major.to_string(), minor.to_string()])
        .current_dir("/")
        // What a terminal sends to us all is not meant for it.
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let (questions, answers) = (child.stdin.take(), child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?);
    let mut started = Started { child, questions, answers, servers };
    let mut said = [0; READY.len()];
    started.answers.read_exact(&mut said)?;
    if said == READY { Ok(Box::new(started)) } else { Err(io::ErrorKind::Unsupported.into()) }
}

fn question(what: u8, node: u64, opener: u32) -> [u8; QUESTION] {
    let mut question = [what; QUESTION];
    question[1..9].copy_from_slice(&node.to_ne_bytes());
    question[9..].copy_from_slice(&opener.to_ne_bytes());
    question
}

impl Started {
    fn ask(&mut self, what: u8, node: u64, opener: u32) -> io::Result<u64> {
        let question = question(what, node, opener);
        self.questions.as_mut().ok_or(io::ErrorKind::BrokenPipe)?.write_all(&question)?;
        let mut answer = [0; ANSWER];
        self.answers.read_exact(&mut answer)?;
        let (errno, node) = answer.split_at(size_of::<i32>());
        let errno = errno.first_chunk().map_or(libc::EIO, |bytes| i32::from_ne_bytes(*bytes));
        if errno != 0 {
            return Err(io::Error::from_raw_os_error(errno));
        }
        Ok(node.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes)))
    }
}

impl Envoy for Started {
    fn process(&self) -> i32 {
        self.child.id() as i32
    }

    fn refresh(&mut self, node: NodeId, opener: u32) -> io::Result<()> {
        let servers = self.servers.clone();
        servers.first(|| self.ask(REFRESH, node.0, opener)).map(drop).map_err(|error| match error.raw_os_error() {
            Some(libc::ENXIO) => io::Error::other(NO_WAY),
            _ => error,
        })
    }

    fn look(&mut self) -> io::Result<()> {
        self.ask(LOOK, 0, 0).map(drop)
    }

    fn unnamed(&mut self) -> io::Result<u64> {
        self.ask(UNNAMED, 0, 0)
    }

    fn write(&mut self) -> io::Result<()> {
        self.ask(WRITE, 0, 0).map(drop)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // Nothing more to read is what it ends by.
        self.questions = None;
        if let Err(error) = self.child.wait() {
            tracing::debug!(%error, "an envoy was not waited for");
        }
    }
}

/// Whether this program was called to be one.
#[must_use]
pub fn is_envoy(name: Option<&OsStr>) -> bool {
    name.is_some_and(|name| name == NAME)
}

/// Is one, for the mount whose path and device the arguments name, until nothing more can be read from the standard input.
#[must_use]
pub fn be_envoy() -> ExitCode {
    let Some(entrance) = entrance(std::env::args_os().skip(1)) else { return ExitCode::FAILURE };
    // Whoever ends the program that it belongs to ends it too, and not before.
    sys::ignore_signals(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGXFSZ]);
    let nothing = Rlimit { current: Some(0), maximum: Some(0) };
    if rustix::process::setrlimit(Resource::Fsize, nothing).is_err() {
        return ExitCode::FAILURE;
    }
    let _ = rustix::thread::set_name(COMMAND);
    let done = serve(entrance, io::stdin().lock(), io::stdout().as_fd());
    if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn entrance(mut arguments: impl Iterator<Item = OsString>) -> Option<Entrance> {
    let mountpoint = PathBuf::from(arguments.next()?);
    let mut number = || arguments.next()?.to_str()?.parse().ok();
    Some(Entrance::new(&mountpoint, (number()?, number()?)))
}

fn serve(mut entrance: Entrance, mut questions: impl Read, answers: impl AsFd) -> io::Result<()> {
    // Not through a buffer, which would wait for the end of a line.
    let mut answers = File::from(answers.as_fd().try_clone_to_owned()?);
    answers.write_all(&READY)?;
    let mut file = None;
    let mut question = [0; QUESTION];
    loop {
        match questions.read_exact(&mut question) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        }
        let node = question[1..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        let opener = question.last_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
        let outcome = match question[0] {
            REFRESH => refresh::refresh(&mut entrance, NodeId(node), opener).map(|()| node),
            UNNAMED => refresh::unnamed(&entrance).and_then(|unnamed| Ok(file.insert(unnamed).metadata()?.ino())),
            LOOK => entrance.look().map(|()| 0),
            WRITE => file.take().ok_or(io::ErrorKind::NotFound.into()).and_then(write).map(|()| 0),
            _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        };
        let (errno, node) = match outcome {
            Ok(node) => (0, node),
            Err(error) => (error.raw_os_error().unwrap_or(libc::EIO), 0),
        };
        let mut answer = [0; ANSWER];
        answer[..size_of::<i32>()].copy_from_slice(&errno.to_ne_bytes());
        answer[size_of::<i32>()..].copy_from_slice(&node.to_ne_bytes());
        answers.write_all(&answer)?;
    }
}

/// Writes to a file twice, and says what became of the second time. The file system below refuses what gets there: files of this process
/// are to take no room.
fn write(mut file: File) -> io::Result<()> {
    match file.write_all(b"!") {
        Err(error) if error.raw_os_error() == Some(libc::EFBIG) => file.write_all(b"?"),
        Err(error) => Err(io::Error::other(error)),
        Ok(()) => Err(io::ErrorKind::FileTooLarge.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_envoy_is_not_taken_for_one() {
        // This program's tests, of which none has the name that is given.
        let error = start(Path::new("no-such-test"), (0, 0), Servers::default()).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(is_envoy(Some(OsStr::new(NAME))) && !is_envoy(Some(OsStr::new("ullage"))) && !is_envoy(None));
    }

    #[test]
    fn each_question_has_its_answer_and_the_last_is_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let device = crate::connection::mounted_at(directory.path()).unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        let mut questions = Vec::new();
        for (what, node) in [(WRITE, 0u64), (UNNAMED, 0), (WRITE, 0), (WRITE, 0), (LOOK, 0), (9, 0)] {
            questions.extend(question(what, node, 0));
        }
        serve(Entrance::new(directory.path(), device), questions.as_slice(), &writer).unwrap();
        drop(writer);
        let mut said = Vec::new();
        reader.read_to_end(&mut said).unwrap();
        let (ready, answers) = said.split_at(READY.len());
        assert_eq!(ready, READY);
        let errnos: Vec<i32> =
            answers.chunks(ANSWER).map(|answer| i32::from_ne_bytes(*answer.first_chunk().unwrap())).collect();
        // A file is written to once, and there has to be one.
        assert_eq!(errnos, [libc::EIO, 0, libc::EIO, libc::EIO, 0, libc::EINVAL]);
    }
}
