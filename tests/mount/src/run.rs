//! Commands with a time limit.

use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// No single command of a test takes longer.
pub const LIMIT: Duration = Duration::from_secs(60);

/// What a command did.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Outcome {
    /// Fails the test unless the command succeeded; gives its output.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{}{}", self.out, self.err);
        self.out
    }

    /// Fails the test unless the command was refused with code 1 and one line on standard error that holds `text`.
    #[track_caller]
    pub fn refused(self, text: &str) {
        assert_eq!(self.code, Some(1), "{}{}", self.out, self.err);
        assert_eq!(self.err.trim_end().lines().count(), 1, "more than one line:\n{}", self.err);
        assert!(self.err.starts_with("ullage: "), "{}", self.err);
        assert!(self.err.contains(text), "'{text}' is not in: {}", self.err);
    }

    /// Fails the test unless the command was refused for wrong usage.
    #[track_caller]
    pub fn misused(self) {
        assert_eq!(self.code, Some(2), "{}{}", self.out, self.err);
        assert!(!self.err.is_empty(), "it says nothing");
    }

    /// The output as JSON, after [`Outcome::ok`].
    #[track_caller]
    pub fn json(self) -> serde_json::Value {
        let text = self.ok();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("not JSON ({error}): {text}"))
    }
}

/// Runs a command to its end, which it reaches within [`LIMIT`] or fails the test.
#[track_caller]
pub fn run(command: &mut Command) -> Outcome {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
    let reader = |mut from: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = from.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let out = reader(Box::new(child.stdout.take().expect("piped")));
    let err = reader(Box::new(child.stderr.take().expect("piped")));
    let deadline = Instant::now() + LIMIT;
    let status = loop {
        match child.try_wait().expect("a child can be waited for") {
            Some(status) => break status,
            None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(3)),
            None => {
                let _ = child.kill();
                panic!("{command:?} takes longer than {LIMIT:?}");
            }
        }
    };
    let text = |reader: std::thread::JoinHandle<String>| reader.join().unwrap_or_default();
    Outcome { code: status.code(), out: text(out), err: text(err) }
}

/// Runs a program with arguments.
#[track_caller]
pub fn program<S: AsRef<OsStr>>(name: &str, arguments: impl IntoIterator<Item = S>) -> Outcome {
    run(Command::new(name).args(arguments))
}

/// Copies a program that is to be run. A process of its own does it: one that another test starts meanwhile would have ours open for
/// writing for a moment, in which the copy could not be run (ETXTBSY).
#[track_caller]
pub fn copy_program(from: &str, to: &Path) {
    program("cp", [from.as_ref(), to.as_os_str()]).ok();
}

/// Runs `ullage` with arguments.
#[track_caller]
pub fn ullage<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Outcome {
    run(Command::new(crate::binary::path()).args(arguments))
}

/// Waits until `done`, or fails the test when it does not come true within `limit`.
#[track_caller]
pub fn eventually(what: &str, limit: Duration, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Unmounts what is mounted there. A process that another test is just starting has what that test's process has open, for a moment.
#[track_caller]
pub fn unmount(point: impl AsRef<Path>) {
    let point = point.as_ref();
    eventually(&format!("{} is unmounted", point.display()), LIMIT, || program("umount", [point]).code == Some(0));
}

/// Runs a command of that user's.
#[track_caller]
pub fn by_user(user: u32, words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Outcome {
    let user = [format!("--reuid={user}"), format!("--regid={user}"), "--clear-groups".to_owned()];
    run(Command::new("setpriv").args(user).args(words))
}
