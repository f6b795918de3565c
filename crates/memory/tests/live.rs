//! The whole thing on this kernel: a box, a contributed process, and every way of ending.
//!
//! Needs root and a cgroup v1 memory hierarchy; says so and passes where they are missing. The same with v2 runs in a virtual
//! machine (`crates/cli/tests/vm.rs`). Each test has a box of its own and removes it.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

#[path = "live/origins.rs"]
mod origins;
#[path = "live/stops.rs"]
mod stops;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use ullage_memory::control::Config;
use ullage_memory::daemon::{Options, run};
use ullage_memory::runtime::{RuntimeDir, Status, Undo, lift};
use ullage_memory::system::{mounts::Mounts, place, processes};
use ullage_memory::{Error, PAGE, Result, join};

/// A box with a limit of 96 MiB, removed at the end.
struct Box96 {
    path: PathBuf,
    runtime: RuntimeDir,
    _dir: tempfile::TempDir,
    children: Vec<Child>,
}

impl Box96 {
    fn new(name: &str) -> Option<Self> {
        let Some(root) = Mounts::read().ok()?.v1_memory.filter(|_| running_as_root()) else {
            eprintln!("skipped: needs root and a cgroup v1 memory hierarchy");
            return None;
        };
        let path = root.join(format!("ullage-live-{}-{name}", std::process::id()));
        if fs::create_dir(&path).is_err() {
            eprintln!("skipped: {} cannot be created", path.display());
            return None;
        }
        fs::write(path.join("memory.limit_in_bytes"), (96u64 << 20).to_string()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        Some(Self { path, runtime: RuntimeDir::new(Some(dir.path().join("rt"))), _dir: dir, children: Vec::new() })
    }

    /// A box in this one.
    fn inside(&self, name: &str, path: &[u8]) -> Self {
        let path = self.path.join(OsStr::from_bytes(path));
        fs::create_dir_all(&path).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let runtime = RuntimeDir::new(Some(dir.path().join(name)));
        Self { path, runtime, _dir: dir, children: Vec::new() }
    }

    fn options(&self) -> Options {
        Options {
            runtime: self.runtime.clone(),
            within: Some(self.path.clone()),
            sampler: Some("clear-refs".into()),
            config: Config::default().sped_up(20.0),
            guard: None,
            until_empty: false,
            log: None,
        }
    }

    fn group(&self) -> PathBuf {
        self.path.join("ullage.contributed")
    }

    fn freezer(&self) -> Option<PathBuf> {
        let name = format!("ullage.contributed.{}", fs::metadata(&self.path).unwrap().ino());
        Some(Mounts::read().unwrap().v1_freezer?.join(name))
    }

    fn sleeper(&mut self) -> i32 {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        self.children.push(child);
        pid
    }

    fn start(&self) -> Controller {
        let (options, stop) = (self.options(), Arc::new(AtomicBool::new(false)));
        let flag = Arc::clone(&stop);
        let thread = std::thread::spawn(move || run(&options, &flag));
        wait("the controller's status", || Status::read(&self.runtime).is_ok() || thread.is_finished());
        Controller { stop, thread }
    }
}

impl Drop for Box96 {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ended = child.kill();
            let _status = child.wait();
        }
        lift(&self.runtime);
        for _ in 0..40 {
            if fs::remove_dir(&self.path).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

struct Controller {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<()>>,
}

impl Controller {
    fn end(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }

    fn died_of(self) -> Error {
        wait("the controller to end", || self.thread.is_finished());
        self.thread.join().unwrap().unwrap_err()
    }
}

fn running_as_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0)
}

fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < until, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn in_group(group: &Path, pid: i32) -> bool {
    fs::read_to_string(group.join("cgroup.procs")).is_ok_and(|text| text.lines().any(|line| line == pid.to_string()))
}

#[test]
fn marked_processes_are_bounded_and_nothing_is_left_at_the_end() {
    let Some(mut sandbox) = Box96::new("end") else { return };
    let pid = sandbox.sleeper();
    let controller = sandbox.start();
    join::mark(&sandbox.runtime, pid).unwrap();
    wait("the limit", || {
        let limit = fs::read_to_string(sandbox.group().join("memory.limit_in_bytes")).unwrap();
        limit.trim().parse::<u64>().unwrap() < 96 << 20
    });
    wait("the status to list it", || Status::read(&sandbox.runtime).is_ok_and(|status| status.contributed == [pid]));
    controller.end().unwrap();
    assert!(!sandbox.group().exists() && !sandbox.runtime.path().exists());
    assert!(sandbox.freezer().is_none_or(|path| !path.exists()));
    assert!(Path::new(&format!("/proc/{pid}")).exists(), "the process itself goes on");
}

/// Regression: the group stayed, with the limit, for as long as what was in it ran.
#[test]
fn what_was_made_is_undone_though_what_was_written_down_is_gone() {
    let Some(mut sandbox) = Box96::new("gone") else { return };
    let pid = sandbox.sleeper();
    let controller = sandbox.start();
    join::mark(&sandbox.runtime, pid).unwrap();
    let ageing = fs::File::open(sandbox.runtime.path()).unwrap().try_lock();
    assert!(matches!(ageing, Err(fs::TryLockError::WouldBlock)), "nobody clears it of old files");
    fs::remove_dir_all(sandbox.runtime.path()).unwrap();
    controller.end().unwrap();
    assert!(!sandbox.group().exists() && sandbox.freezer().is_none_or(|path| !path.exists()));
    assert!(Path::new(&format!("/proc/{pid}")).exists(), "the process itself goes on");
}

#[test]
fn a_job_of_cron_is_marked_with_what_it_started() {
    let Some(mut sandbox) = Box96::new("cron") else { return };
    let shell = Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
    let pid = shell.id() as i32;
    sandbox.children.push(shell);
    wait("the job's child", || !processes::descendants(pid, &[]).unwrap().is_empty());
    let controller = sandbox.start();
    let moved = join::mark(&sandbox.runtime, pid).unwrap();
    assert_eq!(moved.len(), 2, "{moved:?}");
    assert!(moved.iter().all(|pid| in_group(&sandbox.group(), *pid)));
    controller.end().unwrap();
    assert!(!sandbox.group().exists());
    let child = moved[1].to_string();
    assert!(Command::new("kill").arg(child).status().unwrap().success(), "it goes on");
}

/// What the kernel ends a process for, beyond its size.
fn oom_score(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap().trim().to_owned()
}

/// A process that holds so many bytes once `go` exists.
fn holder(bytes: &str, group: Option<&Path>, go: &Path) -> Child {
    let script = "[ -z \"$1\" ] || echo $$ > \"$1/cgroup.procs\"; until [ -e \"$2\" ]; do sleep 0.05; done; \
                  exec dd if=/dev/zero bs=\"$0\" count=1";
    let group = group.unwrap_or(Path::new(""));
    // Nobody reads: it fills its buffer, and stays.
    let mut shell = Command::new("sh");
    shell.args(["-c", script, bytes]).args([group, go]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// Regression: the kernel ended the larger one, which was the user's.
#[test]
fn contributed_work_goes_first_when_memory_runs_out() {
    if place::has_swap() {
        eprintln!("skipped: there is swap, and memory does not run out");
        return;
    }
    let Some(mut sandbox) = Box96::new("oom") else { return };
    let controller = sandbox.start();
    let (lent, back) = (sandbox.runtime.path().with_file_name("lent"), sandbox.runtime.path().with_file_name("back"));
    let usage = |group: &Path| fs::read_to_string(group.join("memory.usage_in_bytes")).unwrap();
    let mib = |group: &Path| usage(group).trim().parse::<u64>().unwrap() >> 20;
    sandbox.children.push(holder("30M", None, &lent));
    let work = sandbox.children[0].id() as i32;
    join::mark(&sandbox.runtime, work).unwrap();
    fs::write(&lent, "").unwrap();
    wait("the work to hold what it is lent", || mib(&sandbox.group()) >= 30);
    sandbox.children.push(holder("80M", Some(&sandbox.path), &back));
    fs::write(&back, "").unwrap();
    // The kernel may end another one before what the first held has come free: which one goes first is ours.
    wait("the work to be ended", || sandbox.children[0].try_wait().unwrap().is_some());
    controller.end().unwrap();
}

/// Regression: it stayed charged where it was.
#[test]
fn memory_that_a_process_has_comes_with_it() {
    let Some(mut sandbox) = Box96::new("charge") else { return };
    let before = sandbox.path.join("before");
    fs::create_dir(&before).unwrap();
    if fs::write(before.join("memory.move_charge_at_immigrate"), "3").is_err() {
        fs::remove_dir(&before).unwrap();
        eprintln!("skipped: this kernel moves no charges");
        return;
    }
    let go = sandbox.runtime.path().with_file_name("go");
    fs::write(&go, "").unwrap();
    sandbox.children.push(holder("30M", Some(&before), &go));
    let mib = |group: &Path| {
        fs::read_to_string(group.join("memory.usage_in_bytes")).unwrap().trim().parse::<u64>().unwrap() >> 20
    };
    wait("it to hold what it holds", || mib(&before) >= 30);
    let controller = sandbox.start();
    join::mark(&sandbox.runtime, sandbox.children[0].id() as i32).unwrap();
    wait("its memory to come with it", || mib(&sandbox.group()) >= 29);
    controller.end().unwrap();
    sandbox.children[0].kill().unwrap();
    wait("the group to be empty", || fs::remove_dir(&before).is_ok());
}

#[test]
fn who_is_contributed_no_more_is_ended_no_earlier_than_before() {
    let Some(mut sandbox) = Box96::new("score") else { return };
    let mut shell = Command::new("sh");
    let shell = shell.args(["-c", "until [ -e \"$0\" ]; do sleep 0.05; done; sleep 60 & wait"]);
    let go = sandbox.runtime.path().with_file_name("go");
    sandbox.children.push(shell.arg(&go).spawn().unwrap());
    let pid = sandbox.children[0].id() as i32;
    fs::write(format!("/proc/{pid}/oom_score_adj"), "300").unwrap();
    let controller = sandbox.start();
    join::mark(&sandbox.runtime, pid).unwrap();
    let chosen = sandbox.sleeper();
    join::mark(&sandbox.runtime, chosen).unwrap();
    fs::write(format!("/proc/{chosen}/oom_score_adj"), "500").unwrap();
    fs::write(&go, "").unwrap();
    let born = || {
        let found = processes::descendants(pid, &[]).unwrap();
        found
            .into_iter()
            .find(|child| fs::read_to_string(format!("/proc/{child}/cmdline")).is_ok_and(|c| c.contains("60")))
    };
    wait("a child", || born().is_some());
    let child = born().unwrap();
    assert_eq!([oom_score(pid), oom_score(child)], ["1000", "1000"]);
    controller.end().unwrap();
    assert_eq!([oom_score(pid), oom_score(child), oom_score(chosen)], ["300", "300", "500"]);
    assert!(Command::new("kill").arg(child.to_string()).status().unwrap().success());
}

/// Regression: children of one service went to the group of another, which had been marked first.
#[test]
fn who_was_born_inside_goes_where_its_parent_came_from() {
    let Some(mut sandbox) = Box96::new("kin") else { return };
    let (first, second) = (sandbox.path.join("first"), sandbox.path.join("second"));
    let go = sandbox.runtime.path().with_file_name("go");
    for group in [&first, &second] {
        fs::create_dir(group).unwrap();
        // One child lives with its parent, one has lost it.
        let script = "until [ -e \"$0\" ]; do sleep 0.05; done; sleep 60 & sh -c 'sleep 61 &'; wait";
        let shell = Command::new("sh").args(["-c", script]).arg(&go).spawn().unwrap();
        fs::write(group.join("cgroup.procs"), shell.id().to_string()).unwrap();
        sandbox.children.push(shell);
    }
    let controller = sandbox.start();
    for child in &sandbox.children {
        join::mark(&sandbox.runtime, child.id() as i32).unwrap();
    }
    fs::write(&go, "").unwrap();
    let members = |group: &Path, command: &str| {
        let all = fs::read_to_string(group.join("cgroup.procs")).unwrap();
        let runs =
            |pid: &&str| fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains(command));
        all.lines().filter(runs).count()
    };
    let inside = sandbox.group();
    wait("the children", || members(&inside, "sleep\x0060") == 2 && members(&inside, "sleep\x0061") == 2);
    let born = fs::read_to_string(inside.join("cgroup.procs")).unwrap();
    controller.end().unwrap();
    let found: Vec<usize> = [&first, &second, &sandbox.path].map(|group| members(group, "sleep\x0060")).into();
    let orphans: Vec<usize> = [&first, &second, &sandbox.path].map(|group| members(group, "sleep\x0061")).into();
    for pid in born.lines() {
        let _gone = Command::new("kill").arg(pid).status().unwrap();
    }
    assert_eq!((found, orphans), (vec![1, 1, 0], vec![0, 0, 2]));
    wait("the groups to be empty", || fs::remove_dir(&first).is_ok() || !first.exists());
    wait("the groups to be empty", || fs::remove_dir(&second).is_ok() || !second.exists());
}

#[test]
fn pids_that_are_gone_or_missing_controllers_are_told() {
    let Some(mut sandbox) = Box96::new("pids") else { return };
    let pid = sandbox.sleeper();
    let error = join::mark(&sandbox.runtime, pid).unwrap_err();
    assert!(matches!(error, Error::NotRunning(_)), "{error}");
    let controller = sandbox.start();
    let mut child = sandbox.children.pop().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let error = join::mark(&sandbox.runtime, pid).unwrap_err();
    assert!(matches!(error, Error::NoSuchProcess(gone) if gone == pid), "{error}");
    let second = run(&sandbox.options(), &Arc::new(AtomicBool::new(false))).unwrap_err();
    assert!(matches!(second, Error::AlreadyRunning(_)), "{second}");
    controller.end().unwrap();
}

#[test]
fn a_group_that_vanishes_ends_the_controller_with_its_name() {
    let Some(sandbox) = Box96::new("vanish") else { return };
    let controller = sandbox.start();
    wait("the group to be removed", || fs::remove_dir(sandbox.group()).is_ok());
    let error = controller.died_of();
    assert!(matches!(&error, Error::GroupVanished(path) if *path == sandbox.group()), "{error}");
    assert!(!sandbox.runtime.path().exists());
    assert!(sandbox.freezer().is_none_or(|path| !path.exists()), "the other hierarchy is cleaned too");
}

#[test]
fn what_a_killed_controller_left_is_cleaned_by_the_next_start() {
    let Some(mut sandbox) = Box96::new("stale") else { return };
    let pid = sandbox.sleeper();
    // As left by kill -9: groups with a limit, a frozen process in them, undo.json, no lock held.
    fs::create_dir(sandbox.group()).unwrap();
    fs::write(sandbox.group().join("cgroup.procs"), pid.to_string()).unwrap();
    fs::write(sandbox.group().join("memory.limit_in_bytes"), "1048576").unwrap();
    let mut directories = vec![sandbox.group()];
    if let Some(freezer) = sandbox.freezer() {
        fs::create_dir(&freezer).unwrap();
        fs::write(freezer.join("cgroup.procs"), pid.to_string()).unwrap();
        fs::write(freezer.join("freezer.state"), "FROZEN").unwrap();
        directories.push(freezer);
    }
    fs::create_dir_all(sandbox.runtime.path()).unwrap();
    Undo { pid: i32::MAX, directories, stopped: false, enabled: Vec::new() }.write(&sandbox.runtime.undo()).unwrap();
    // An eviction was under way too.
    fs::create_dir(sandbox.path.join("user")).unwrap();
    let dipped = sandbox.path.join("user/memory.limit_in_bytes");
    fs::write(&dipped, "8388608").unwrap();
    fs::write(sandbox.runtime.journal(), dipped.to_str().unwrap()).unwrap();

    let controller = sandbox.start();
    assert!(fs::read_to_string(&dipped).unwrap().trim().parse::<u64>().unwrap() > 1 << 62, "the dip is undone");
    assert!(!in_group(&sandbox.group(), pid), "and the process is out of the new group");
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    assert!(state.contains(" S "), "and thawed: {state}");
    controller.end().unwrap();
    assert!(!sandbox.group().exists());
    fs::remove_dir(sandbox.path.join("user")).unwrap();
}

#[test]
fn a_controller_for_a_command_that_never_comes_ends() {
    let Some(sandbox) = Box96::new("nobody") else { return };
    let options = Options { until_empty: true, ..sandbox.options() };
    let flag = Arc::new(AtomicBool::new(false));
    let thread = std::thread::spawn(move || run(&options, &flag));
    wait("the controller to end", || thread.is_finished());
    thread.join().unwrap().unwrap();
    assert!(!sandbox.group().exists() && !sandbox.runtime.path().exists());
}

/// Regression: who entered after the controller had found the group empty was let out of it with all others,
/// and ran unbounded.
#[test]
fn a_group_is_not_taken_down_while_somebody_enters() {
    let Some(mut sandbox) = Box96::new("door") else { return };
    let options = Options { until_empty: true, ..sandbox.options() };
    let flag = Arc::new(AtomicBool::new(false));
    let thread = std::thread::spawn(move || run(&options, &flag));
    wait("the controller's status", || Status::read(&sandbox.runtime).is_ok() || thread.is_finished());
    let (first, second) = (sandbox.sleeper(), sandbox.sleeper());
    join::mark(&sandbox.runtime, first).unwrap();
    let door = sandbox.runtime.door().unwrap();
    sandbox.children[0].kill().unwrap();
    sandbox.children[0].wait().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    fs::write(sandbox.group().join("cgroup.procs"), second.to_string()).unwrap();
    drop(door);
    std::thread::sleep(Duration::from_secs(1));
    assert!(!thread.is_finished() && in_group(&sandbox.group(), second));
    sandbox.children[1].kill().unwrap();
    sandbox.children[1].wait().unwrap();
    wait("the controller to end", || thread.is_finished());
    thread.join().unwrap().unwrap();
}

/// Regression: who made a control group of its own, as every container does, was taken to have ended: the controller ended,
/// and what had been bounded went on without a limit.
#[test]
fn who_makes_a_group_of_its_own_inside_stays_contributed() {
    let Some(mut sandbox) = Box96::new("container") else { return };
    let options = Options { until_empty: true, ..sandbox.options() };
    let flag = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&flag);
    let thread = std::thread::spawn(move || run(&options, &stop));
    wait("the controller's status", || Status::read(&sandbox.runtime).is_ok() || thread.is_finished());
    let pid = sandbox.sleeper();
    join::mark(&sandbox.runtime, pid).unwrap();
    for group in [Some(sandbox.group()), sandbox.freezer()].into_iter().flatten() {
        fs::create_dir_all(group.join("outer/inner")).unwrap();
        fs::write(group.join("outer/inner/cgroup.procs"), pid.to_string()).unwrap();
    }
    std::thread::sleep(Duration::from_secs(2));
    assert!(!thread.is_finished());
    wait("the status to list it", || Status::read(&sandbox.runtime).is_ok_and(|status| status.contributed == [pid]));
    flag.store(true, Ordering::Relaxed);
    thread.join().unwrap().unwrap();
    assert!(!sandbox.group().exists() && sandbox.freezer().is_none_or(|path| !path.exists()));
    assert!(!fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap().contains("ullage"), "it is where it came from");
}

#[test]
fn who_is_in_a_group_below_is_stopped_and_ended_with_all() {
    use ullage_memory::backend::{Backend, V1};
    let Some(mut sandbox) = Box96::new("below") else { return };
    let mut backend = V1::create(&sandbox.path, false, sandbox.group(), None).unwrap();
    let pid = sandbox.sleeper();
    let inner = sandbox.group().join("inner");
    fs::create_dir(&inner).unwrap();
    fs::write(inner.join("cgroup.procs"), pid.to_string()).unwrap();
    let state = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().split(' ').nth(2).unwrap().to_owned();
    backend.freeze().unwrap();
    wait("it to stop", || state() == "T");
    backend.thaw().unwrap();
    wait("it to go on", || state() == "S");
    assert_eq!((backend.contributed().unwrap(), backend.opaque().unwrap()), (vec![pid], vec![]));
    backend.kill().unwrap();
    sandbox.children[0].wait().unwrap();
    drop(backend);
    wait("the groups to be empty", || fs::remove_dir(&inner).is_ok() && fs::remove_dir(sandbox.group()).is_ok());
}

/// Regression: who was born while the others were stopped went on, and took what the user came back for.
#[test]
fn who_forks_all_the_time_is_stopped_with_all_its_children() {
    use ullage_memory::backend::{Backend, V1};
    let Some(mut sandbox) = Box96::new("forks") else { return };
    let mut backend = V1::create(&sandbox.path, false, sandbox.group(), None).unwrap();
    // Each hands on to the next, as long as the ground is there.
    let script = "echo $$ > \"$0\"/cgroup.procs; chain() { [ -e \"$1\" ] && (chain \"$1\") & }; \
                  for n in 1 2 3; do chain \"$1\"; done; while [ -e \"$1\" ]; do sleep 0.01 & wait; done";
    let ground = sandbox.runtime.path().with_file_name("");
    let mut shell = Command::new("sh");
    sandbox.children.push(shell.args(["-c", script]).args([sandbox.group(), ground]).spawn().unwrap());
    let stopped = |pid: &i32| processes::state(*pid).is_none_or(|state| matches!(state, 'T' | 'Z' | 'X'));
    for _ in 0..5 {
        wait("them to come", || backend.contributed().unwrap().len() >= 4);
        std::thread::sleep(Duration::from_millis(50));
        assert!(backend.freeze().unwrap().is_empty());
        let members = backend.contributed().unwrap();
        let running: Vec<i32> = members.iter().copied().filter(|pid| !stopped(pid)).collect();
        std::thread::sleep(Duration::from_millis(50));
        let born = backend.contributed().unwrap().into_iter().filter(|pid| !members.contains(pid)).count();
        backend.thaw().unwrap();
        assert_eq!((running, born), (Vec::new(), 0));
    }
    backend.freeze().unwrap();
    backend.kill().unwrap();
    sandbox.children[0].wait().unwrap();
    drop(backend);
    wait("the group to be empty", || fs::remove_dir(sandbox.group()).is_ok());
}

#[test]
fn opaque_groups_that_end_while_they_are_evicted_from_are_no_error() {
    use ullage_memory::backend::{Backend, V1};
    let Some(sandbox) = Box96::new("churn") else { return };
    let mut backend = V1::create(&sandbox.path, false, sandbox.group(), None).unwrap();
    backend.journal(sandbox.path.join("is-written-for-no-empty-group"));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let groups: Vec<PathBuf> = (0..20).map(|number| sandbox.path.join(format!("job{number}"))).collect();
                for group in &groups {
                    fs::create_dir(group).unwrap();
                }
                for group in &groups {
                    fs::remove_dir(group).unwrap();
                }
            }
        });
        let until = Instant::now() + Duration::from_secs(2);
        let result = std::iter::from_fn(|| (Instant::now() < until).then(|| backend.evict(1000))).find(Result::is_err);
        done.store(true, Ordering::Relaxed);
        assert!(result.is_none(), "{result:?}");
    });
    drop(backend);
    fs::remove_dir(sandbox.group()).unwrap();
}

/// Where no freezer is, only a note tells whether the controller stopped them, or they themselves (^Z).
#[test]
fn only_what_the_controller_stopped_is_let_go_on() {
    for stopped in [false, true] {
        let Some(mut sandbox) = Box96::new(if stopped { "ours" } else { "theirs" }) else { return };
        let pid = sandbox.sleeper();
        fs::create_dir(sandbox.group()).unwrap();
        fs::write(sandbox.group().join("cgroup.procs"), pid.to_string()).unwrap();
        let state = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().split(' ').nth(2).unwrap().to_owned();
        assert!(Command::new("kill").args(["-STOP", &pid.to_string()]).status().unwrap().success());
        wait("it to stop", || state() == "T");
        fs::create_dir_all(sandbox.runtime.path()).unwrap();
        Undo { pid: 1, directories: vec![sandbox.group()], stopped, enabled: Vec::new() }
            .write(&sandbox.runtime.undo())
            .unwrap();
        assert!(lift(&sandbox.runtime).is_empty());
        assert_eq!(state() == "T", !stopped);
    }
}

#[test]
fn a_box_has_one_controller_whatever_the_runtime_directory() {
    let Some(mut sandbox) = Box96::new("two") else { return };
    let pid = sandbox.sleeper();
    let controller = sandbox.start();
    join::mark(&sandbox.runtime, pid).unwrap();
    let other = RuntimeDir::new(Some(sandbox.runtime.path().with_file_name("other")));
    let options = Options { runtime: other.clone(), ..sandbox.options() };
    let error = run(&options, &Arc::new(AtomicBool::new(false))).unwrap_err().to_string();
    assert!(error.contains("another controller divides this box") && error.contains("--box"), "{error}");
    assert!(!other.path().exists());
    // Nor does one that was killed while it was refused take the group with it.
    fs::create_dir_all(other.path()).unwrap();
    Undo { pid: 1, directories: vec![sandbox.group()], stopped: false, enabled: Vec::new() }
        .write(&other.undo())
        .unwrap();
    lift(&other);
    assert!(in_group(&sandbox.group(), pid), "the first keeps what it has");
    controller.end().unwrap();
    assert!(!sandbox.group().exists());
}

/// Regression: no controller started in a box whose name is no text, nor in one far below, whose path in the freezer's hierarchy was longer
/// than a name can be; and who came second to `a.b` and `a/b` was told that the box was taken.
#[test]
fn boxes_of_any_names_are_divided_at_one_time() {
    let Some(outer) = Box96::new("names") else { return };
    let deep = [[b'x'; 150], [b'y'; 150]].join(&b'/');
    let paths: [&[u8]; 4] = [b"a.b", b"a/b", b"\xff", &deep];
    let mut boxes: Vec<Box96> = paths.into_iter().map(|path| outer.inside("rt", path)).collect();
    let controllers: Vec<Controller> = boxes.iter().map(Box96::start).collect();
    let pids: Vec<i32> = boxes.iter_mut().map(Box96::sleeper).collect();
    let marked = boxes
        .iter()
        .zip(&pids)
        .map(|(sandbox, pid)| join::mark(&sandbox.runtime, *pid).is_ok_and(|_| in_group(&sandbox.group(), *pid)));
    let marked: Vec<bool> = marked.collect();
    let ended: Vec<_> = controllers.into_iter().map(|one| one.end().map_err(|error| error.to_string())).collect();
    let left = boxes.iter().filter(|sandbox| sandbox.group().exists()).count();
    drop(boxes);
    for above in [b"a".as_slice(), &[b'x'; 150]] {
        fs::remove_dir(outer.path.join(OsStr::from_bytes(above))).unwrap();
    }
    assert_eq!((ended, marked, left), (vec![Ok(()); 4], vec![true; 4], 0));
}

/// Regression: of a box in a box only its own limit was read, once.
#[test]
fn what_is_free_in_a_nested_box_is_what_its_parents_leave_now() {
    use ullage_memory::backend::{Backend, V1};
    let Some(mut sandbox) = Box96::new("nested") else { return };
    let (inner, beside) = (sandbox.path.join("inner"), sandbox.path.join("beside"));
    fs::create_dir(&inner).unwrap();
    fs::create_dir(&beside).unwrap();
    let mut backend = V1::create(&inner, false, inner.join("ullage.contributed"), None).unwrap();
    let mib = |pages: u64| pages >> 8;
    assert_eq!(mib(backend.picture().unwrap().total), 96);
    let file = sandbox.runtime.path().with_file_name("big");
    let script = "echo $$ > \"$0\"/cgroup.procs && head -c 40M /dev/zero > \"$1\" && exec sleep 60";
    sandbox.children.push(Command::new("sh").args(["-c", script]).arg(&beside).arg(&file).spawn().unwrap());
    let left = || {
        mib(place::limits(&inner, &["memory.limit_in_bytes"], "memory.usage_in_bytes").unwrap().unwrap().left / PAGE)
    };
    wait("40 MiB to be used beside it", || left() <= 56);
    fs::write(sandbox.path.join("memory.limit_in_bytes"), (128u64 << 20).to_string()).unwrap();
    let machine = mib(place::machine().unwrap().free);
    let picture = backend.picture().unwrap();
    assert!(mib(picture.total) == 128 && mib(picture.free) <= 88, "{picture:?}");
    assert!((60..=88).contains(&left()), "{} MiB", left());
    // What the machine has not is not free, whatever the limits leave.
    assert!(mib(picture.free) >= 60 || machine < 1024, "{picture:?}, {machine} MiB in the machine");
    drop(backend);
    let mut sleeper = sandbox.children.pop().unwrap();
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    wait("the groups to be empty", || {
        [inner.join("ullage.contributed"), inner.clone(), beside.clone()]
            .iter()
            .all(|group| fs::remove_dir(group).is_ok() || !group.exists())
    });
}

/// Regression: a disk that was full ended the controller, and with it the protection.
#[test]
fn a_timeline_that_cannot_be_written_is_a_warning_and_one_that_exists_is_continued() {
    let Some(sandbox) = Box96::new("full") else { return };
    let options = Options { log: Some("/dev/full".into()), ..sandbox.options() };
    let (flag, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let thread = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || run(&options, &stop)
    });
    wait("a warning", || {
        let status = Status::read(&sandbox.runtime);
        thread.is_finished() || status.is_ok_and(|status| status.warnings.iter().any(|text| text.contains("/dev/full")))
    });
    assert!(!thread.is_finished());
    stop.store(true, Ordering::Relaxed);
    thread.join().unwrap().unwrap();

    let kept = sandbox.runtime.path().with_file_name("kept");
    fs::write(&kept, "what was there\n").unwrap();
    let options = Options { log: Some(kept.clone()), ..sandbox.options() };
    let thread = std::thread::spawn({
        let flag = Arc::clone(&flag);
        move || run(&options, &flag)
    });
    wait("a point", || fs::read_to_string(&kept).unwrap().contains("at_s"));
    flag.store(true, Ordering::Relaxed);
    thread.join().unwrap().unwrap();
    assert!(fs::read_to_string(&kept).unwrap().starts_with("what was there\n"));
}

#[test]
fn a_limit_the_kernel_refuses_is_told_with_group_and_value() {
    use ullage_memory::backend::{Backend, V2};
    // A v2 group whose memory.high is a full device: every write to it is refused with ENOSPC.
    let dir = tempfile::tempdir().unwrap();
    let group = dir.path().join("ullage.contributed");
    fs::create_dir(&group).unwrap();
    std::os::unix::fs::symlink("/dev/full", group.join("memory.high")).unwrap();
    fs::write(group.join("memory.current"), "0").unwrap();
    let mut backend = V2::create(dir.path(), group.clone()).unwrap();
    let error = backend.limit(1000).unwrap_err();
    assert!(matches!(&error, Error::LimitRefused { limit, .. } if limit == "4096000"), "{error}");
    assert!(error.to_string().contains(group.to_str().unwrap()) && error.errno() == Some(28), "{error}");
}

/// Regression: it was written at once, and the kernel reclaims all that is above before it answers.
#[test]
fn a_limit_of_v2_is_lowered_in_steps() {
    use ullage_memory::backend::{Backend, V2};
    let dir = tempfile::tempdir().unwrap();
    let group = dir.path().join("ullage.contributed");
    fs::create_dir(&group).unwrap();
    let high = group.join("memory.high");
    let mut backend = V2::create(dir.path(), group.clone()).unwrap();
    let mib = |pages: u64| pages >> 8;
    // Used, wanted, and what is in force then; none where nothing is written.
    let steps = [
        (100, 200, Some(200)),
        (100, 40, Some(84)),
        (84, 40, Some(68)),
        (68, 40, Some(52)),
        (75, 40, None),
        (52, 40, Some(40)),
        (90, 40, None),
        (90, 50, Some(50)),
        (10, 60, Some(60)),
    ];
    let mut in_force = 0;
    for (used, wanted, written) in steps {
        fs::write(group.join("memory.current"), (used << 20u64).to_string()).unwrap();
        fs::write(&high, "").unwrap();
        in_force = written.unwrap_or(in_force);
        assert_eq!(mib(backend.limit(wanted << 8).unwrap()), in_force, "{used} used, {wanted} wanted");
        let expected = written.map(|limit: u64| (limit << 20).to_string()).unwrap_or_default();
        assert_eq!(fs::read_to_string(&high).unwrap(), expected, "{used} used, {wanted} wanted");
    }
}
