//! `ullage memory` as a user runs it: bad input, and a controller that is killed.

#[path = "memory/caller.rs"]
mod caller;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const MEMORY_ROOT: &str = "/sys/fs/cgroup/memory";

fn ullage(runtime: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ullage"));
    command.args(["memory", "--runtime-dir"]).arg(runtime);
    command
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < until, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0)
}

/// A box below the v1 memory hierarchy.
struct Sandbox(PathBuf);

impl Sandbox {
    fn new(name: &str) -> Option<Self> {
        let path = Path::new(MEMORY_ROOT).join(format!("ullage-cli-{}-{name}", std::process::id()));
        if !is_root() || fs::create_dir(&path).is_err() {
            eprintln!("skipped: needs root and a cgroup v1 memory hierarchy at {MEMORY_ROOT}");
            return None;
        }
        fs::write(path.join("memory.limit_in_bytes"), (64u64 << 20).to_string()).expect("a box has a limit");
        Some(Self(path))
    }

    fn start(&self, runtime: &Path) -> Child {
        let mut command = ullage(runtime);
        command.args(["daemon", "--speed-up", "20", "--box"]).arg(&self.0).stderr(Stdio::null());
        let child = command.spawn().expect("ullage is there");
        wait("the daemon", || ullage(runtime).arg("status").output().expect("ullage is there").status.success());
        child
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        wait("the box to be empty", || fs::remove_dir(&self.0).is_ok() || !self.0.exists());
    }
}

#[test]
fn what_is_missing_is_said_and_the_exit_code_is_1() {
    let dir = tempfile::tempdir().unwrap();
    let cases: [(&[&str], &str); 12] = [
        (&["status"], "no controller runs"),
        (&["mark", "1"], "no controller runs"),
        (&["mark", "2147483647"], "is gone, or never was"),
        (&["daemon", "--box", "/tmp"], "no usable memory controller"),
        (&["daemon", "--speed-up", "1e-20"], "--speed-up must be a number from"),
        (&["daemon", "--beta", "0.5"], "beta must be at least 1"),
        // Regression: nobody could talk to a controller whose status cannot be read, and the others were taken for 1.
        (
            &["daemon", "--box", "/tmp", "--paging-rate", "inf"],
            "the paging rate must be a number of pages a second above 0, not inf",
        ),
        (&["run", "--box", "/tmp", "--paging-rate", "nan", "--", "true"], "the paging rate must be"),
        (&["daemon", "--box", "/tmp", "--paging-rate", "0"], "the paging rate must be"),
        (&["daemon", "--box", "/tmp", "--paging-rate=-4"], "the paging rate must be"),
        (&["daemon", "--box", "/sys/fs/cgroup/memory/ullage-is-not-there"], "no usable memory controller"),
        (&["simulate", "/dev/null"], "no accesses"),
    ];
    for (arguments, expected) in cases {
        let output = ullage(dir.path()).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", text(&output));
        assert!(text(&output).contains(expected), "{arguments:?}: {}", text(&output));
    }
    let usage = ullage(dir.path()).arg("run").output().unwrap();
    assert_eq!(usage.status.code(), Some(2));
}

#[test]
fn somebody_elses_process_is_refused() {
    if !is_root() {
        eprintln!("skipped: needs root to become somebody else");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let runtime = dir.path().join("theirs");
    // Somebody else must be able to reach and run the command.
    let program = dir.path().join("ullage");
    // Copied by a process: one that another thread starts meanwhile would have ours open for writing, and it could not be run.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_ullage")).arg(&program).status().unwrap();
    assert!(copied.success());
    fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let as_nobody = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.args(["memory", "--runtime-dir"]).arg(&runtime).args(arguments).uid(65534).gid(65534);
        command.output().unwrap()
    };
    let output = as_nobody(&["mark", "1"]);
    assert!(text(&output).contains("process 1 is not yours"), "{}", text(&output));
    // And without anything delegated, each hierarchy says what it lacks.
    let output = as_nobody(&["daemon", "--runtime-dir", "/tmp/ullage-test-nobody"]);
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output);
    assert!(told.contains("cgroup v2:") && told.contains("cgroup v1:"), "{told}");
    let _left_by_nobody = fs::remove_dir_all("/tmp/ullage-test-nobody");
}

/// Regression: controllers were started for half a minute, each of which found it running, and then none ran.
#[test]
fn a_controller_of_an_earlier_version_is_named_and_no_other_is_started() {
    let dir = tempfile::tempdir().unwrap();
    // It has no door, and its lock is flock(2)'s.
    let lock = fs::File::create(dir.path().join("lock")).unwrap();
    lock.lock().unwrap();
    fs::write(dir.path().join("undo.json"), r#"{"pid":4711,"directories":[]}"#).unwrap();
    let me = std::process::id().to_string();
    for arguments in [&["run", "--", "true"][..], &["mark", &me]] {
        let output = ullage(dir.path()).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", text(&output));
        assert!(text(&output).contains("(pid 4711) is of an earlier version: stop it first"), "{}", text(&output));
    }
    let output = ullage(dir.path()).arg("daemon").output().unwrap();
    assert!(text(&output).contains("a controller already runs (pid 4711)"), "{}", text(&output));
}

#[test]
fn kill_dash_nine_leaves_nothing_behind() {
    let Some(sandbox) = Sandbox::new("kill9") else { return };
    let dir = tempfile::tempdir().unwrap();
    let runtime = dir.path().join("rt");
    let mut daemon = sandbox.start(&runtime);
    let mut sleeper = Command::new("sleep").arg("30").spawn().unwrap();
    let id = sleeper.id().to_string();
    let marked = ullage(&runtime).args(["mark", "--json", &id, &id, "2147483647"]).output().unwrap();
    // One document, of however many, and also where some could not be marked.
    let told: serde_json::Value = serde_json::from_slice(&marked.stdout).unwrap();
    assert_eq!((marked.status.code(), &told["marked"][0]), (Some(1), &sleeper.id().into()), "{}", text(&marked));
    let group = sandbox.0.join("ullage.contributed");
    assert!(fs::read_to_string(group.join("cgroup.procs")).unwrap().contains(&sleeper.id().to_string()));
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    wait("the guard to clean up", || !group.exists() && !runtime.exists());
    assert!(sleeper.try_wait().unwrap().is_none(), "the contributed process goes on");
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
}

#[test]
fn run_starts_a_controller_that_ends_with_the_command() {
    let Some(sandbox) = Sandbox::new("run") else { return };
    let dir = tempfile::tempdir().unwrap();
    let runtime = dir.path().join("rt");
    let mut command = ullage(&runtime);
    command.args(["run", "--box"]).arg(&sandbox.0).args([
        "--",
        "sh",
        "-c",
        "grep memory /proc/self/cgroup; sleep 1; exit 7",
    ]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", text(&output));
    assert!(text(&output).contains("ullage.contributed"), "{}", text(&output));
    wait("the controller to end", || !runtime.exists());
    assert!(!sandbox.0.join("ullage.contributed").exists());
}

/// The processes that have this one as their parent.
fn children(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let all = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let parent = |child: &u32| {
        let stat = fs::read(format!("/proc/{child}/stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat).into_owned();
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    all.filter(|child| parent(child) == Some(pid)).collect()
}

#[test]
fn every_run_is_inside_the_group_though_controllers_come_and_go() {
    let Some(sandbox) = Sandbox::new("races") else { return };
    let dir = tempfile::tempdir().unwrap();
    let runtime = dir.path().join("rt");
    let run = || {
        let mut command = ullage(&runtime);
        command.args(["run", "--box"]).arg(&sandbox.0).args(["--sampler", "clear-refs", "--"]);
        // Long enough to be seen: then its end is the controller's, unless the next one comes.
        let script = "sleep 0.25; grep memory /proc/self/cgroup";
        let output = command.args(["sh", "-c", script]).output().unwrap();
        assert!(output.status.success() && text(&output).contains("ullage.contributed"), "{}", text(&output));
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..4).for_each(|_| run()));
        }
    });
    (0..4).for_each(|_| run());
    wait("the controller to end", || !runtime.exists());
    assert!(!sandbox.0.join("ullage.contributed").exists());
}

/// Regression: who came while another's controller started or ended was told that one runs, and did not run.
#[test]
fn who_loses_a_start_waits_and_runs_all_the_same() {
    let Some(sandbox) = Sandbox::new("lost") else { return };
    let dir = tempfile::tempdir().unwrap();
    let runtime = dir.path().join("rt");
    let state = ullage_memory::runtime::RuntimeDir::new(Some(runtime.clone()));
    // As held by one that has no status so far, and by one that has removed it.
    let other = state.claim().unwrap();
    let mut command = ullage(&runtime);
    let command = command.args(["run", "--box"]).arg(&sandbox.0).args(["--", "grep", "memory", "/proc/self/cgroup"]);
    let mut run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    assert!(run.try_wait().unwrap().is_none(), "it waits");
    state.remove();
    drop(other);
    let output = run.wait_with_output().unwrap();
    assert!(output.status.success() && text(&output).contains("ullage.contributed"), "{}", text(&output));
    wait("the controller to end", || !runtime.exists());
}

#[test]
fn a_command_that_ends_at_once_or_never_starts_leaves_no_controller() {
    let Some(sandbox) = Sandbox::new("short") else { return };
    let dir = tempfile::tempdir().unwrap();
    for (program, code) in [("true", 0), ("/is/not/there", 1)] {
        let runtime = dir.path().join("rt");
        let mut command = ullage(&runtime);
        let output = command.args(["run", "--box"]).arg(&sandbox.0).args(["--", program]).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", text(&output));
        wait("the controller to end", || !runtime.exists());
        assert!(!sandbox.0.join("ullage.contributed").exists());
    }
}

/// Regression: "work is not in it", whoever stood beside it.
#[test]
fn a_box_is_named_as_seen_from_here_and_through_links() {
    let Some(sandbox) = Sandbox::new("here") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (runtime, link) = (dir.path().join("rt"), dir.path().join("link"));
    std::os::unix::fs::symlink(&sandbox.0, &link).unwrap();
    let mut daemon = sandbox.start(&runtime);
    let name = sandbox.0.file_name().unwrap();
    for within in [Path::new(name), &link, &sandbox.0.join(".")] {
        let mut command = ullage(&runtime);
        let output = command.current_dir(MEMORY_ROOT).args(["run", "--box"]).arg(within).args(["--", "true"]).output();
        let output = output.unwrap();
        assert!(output.status.success() && text(&output).is_empty(), "{}: {}", within.display(), text(&output));
    }
    assert!(Command::new("kill").arg(daemon.id().to_string()).status().unwrap().success());
    assert!(daemon.wait().unwrap().success());
    // One that starts its own controller, which is elsewhere.
    let mut command = ullage(&runtime);
    command.current_dir(MEMORY_ROOT).args(["run", "--box"]).arg(name).args([
        "--",
        "grep",
        "memory",
        "/proc/self/cgroup",
    ]);
    let output = command.output().unwrap();
    assert!(output.status.success() && text(&output).contains("ullage.contributed"), "{}", text(&output));
    wait("the controller to end", || !runtime.exists());
}

#[test]
fn the_controller_is_no_child_of_the_command() {
    let Some(sandbox) = Sandbox::new("child") else { return };
    let dir = tempfile::tempdir().unwrap();
    let runtime = dir.path().join("rt");
    let mut command = ullage(&runtime);
    let mut run = command.args(["run", "--box"]).arg(&sandbox.0).args(["--", "sleep", "30"]).spawn().unwrap();
    let entered = || fs::read_to_string(sandbox.0.join("ullage.contributed/cgroup.procs"));
    wait("the command", || {
        let name = fs::read_to_string(format!("/proc/{}/comm", run.id())).unwrap_or_default();
        name.trim() == "sleep" && entered().is_ok_and(|procs| procs.contains(&run.id().to_string()))
    });
    assert_eq!(children(run.id()), Vec::<u32>::new());
    run.kill().unwrap();
    run.wait().unwrap();
    wait("the controller to end", || !runtime.exists());
}

/// Regression: it kept the first caller's standard error, locks and directory until everybody's work had ended.
#[test]
fn a_controller_keeps_nothing_of_who_started_it() {
    let Some(sandbox) = Sandbox::new("kept") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (runtime, lock) = (dir.path().join("rt"), dir.path().join("lock"));
    // Its directory is named as seen from where it is started.
    let mut shell = Command::new("sh");
    let script = "exec 9> lock; flock 9; \"$0\" memory --runtime-dir rt run --box \"$1\" -- sh -c 'sleep 3; echo done'";
    shell.args(["-c", script, env!("CARGO_BIN_EXE_ullage")]).arg(&sandbox.0).current_dir(&dir);
    let first = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait("the controller", || ullage(&runtime).arg("status").output().unwrap().status.success());
    let mut other = ullage(&runtime).args(["run", "--", "sleep", "60"]).spawn().unwrap();
    let began = Instant::now();
    let output = first.wait_with_output().unwrap();
    assert!(began.elapsed() < Duration::from_secs(15), "its end is heard of at once");
    assert_eq!(text(&output), "done\n");
    let status: serde_json::Value =
        serde_json::from_slice(&ullage(&runtime).args(["status", "--json"]).output().unwrap().stdout).unwrap();
    let controller = status["pid"].as_u64().unwrap() as u32;
    assert!(fs::File::open(&lock).unwrap().try_lock().is_ok(), "nor is what was locked");
    for pid in [&[controller][..], &children(controller)].concat() {
        assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), Path::new("/"));
        let session = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let ours = fs::read_to_string("/proc/self/stat").unwrap();
        let of = |stat: &str| stat.rsplit_once(')').unwrap().1.split_whitespace().nth(3).unwrap().to_owned();
        assert_ne!(of(&session), of(&ours), "nor are they of its session");
    }
    assert_eq!(children(controller).len(), 1, "the guard was looked at too");
    other.kill().unwrap();
    other.wait().unwrap();
    wait("the controller to end", || !runtime.exists());
}

/// Regression: they were dropped without a word.
#[test]
fn settings_that_a_running_controller_does_not_have_are_told() {
    let Some(sandbox) = Sandbox::new("settings") else { return };
    let dir = tempfile::tempdir().unwrap();
    let runtime = dir.path().join("rt");
    let mut daemon = sandbox.start(&runtime);
    let run = |settings: &[&str]| {
        let output = ullage(&runtime).arg("run").args(settings).args(["--", "true"]).output().unwrap();
        (output.status.code(), text(&output))
    };
    let within = sandbox.0.to_str().unwrap();
    assert_eq!(run(&[]), (Some(0), String::new()));
    let as_it_is = ["--box", within, "--speed-up", "20", "--beta", "1.05", "--paging-rate", "2048"];
    assert_eq!(run(&as_it_is), (Some(0), String::new()));
    let (code, told) = run(&["--kill-after", "5", "--beta", "1.5", "--paging-rate", "2048", "--sampler", "mglru"]);
    assert!(code == Some(0) && told.contains("--beta, --kill-after, --sampler are not in force"), "{told}");
    let (code, told) = run(&["--box", &format!("{within}/other")]);
    assert!(code == Some(1) && told.contains(&format!("divides {within}")) && told.contains("--runtime-dir"), "{told}");
    assert!(Command::new("kill").arg(daemon.id().to_string()).status().unwrap().success());
    assert!(daemon.wait().unwrap().success());
}

#[test]
fn marking_a_shell_leaves_out_the_controller_it_started_and_its_guard() {
    let Some(sandbox) = Sandbox::new("shell") else { return };
    let dir = tempfile::tempdir().unwrap();
    let runtime = dir.path().join("rt");
    let script = "\"$0\" memory --runtime-dir \"$1\" daemon --box \"$2\" & sleep 30 & wait";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_ullage")]).arg(&runtime).arg(&sandbox.0);
    let mut shell = shell.spawn().unwrap();
    wait("the daemon", || ullage(&runtime).arg("status").output().unwrap().status.success());
    let marked = ullage(&runtime).args(["mark", &shell.id().to_string()]).output().unwrap();
    assert!(marked.status.success(), "{}", text(&marked));
    let members = fs::read_to_string(sandbox.0.join("ullage.contributed/cgroup.procs")).unwrap();
    let name = |pid: &str| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned();
    let mut names: Vec<String> = members.lines().map(name).collect();
    names.sort();
    assert_eq!(names, ["sh", "sleep"]);
    for child in children(shell.id()) {
        assert!(Command::new("kill").arg(child.to_string()).status().unwrap().success());
    }
    shell.wait().unwrap();
    wait("the controller to end", || !runtime.exists());
}

/// Regression: where no freezer is, work is stopped by signals, and stayed stopped when its controller
/// was killed.
#[test]
fn stopped_work_goes_on_after_kill_dash_nine_where_no_freezer_is() {
    let Some(sandbox) = Sandbox::new("stop") else { return };
    let dir = tempfile::tempdir().unwrap();
    let runtime = dir.path().join("rt");
    let (big, go) = (dir.path().join("big"), dir.path().join("go"));
    // Only its own view of the mounts has no freezer.
    let mut daemon = Command::new("unshare");
    let script = "umount /sys/fs/cgroup/freezer 2> /dev/null; exec \"$0\" memory --runtime-dir \"$1\" daemon --box \"$2\" --paging-rate 1";
    daemon.args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_ullage")]).arg(&runtime).arg(&sandbox.0);
    let mut daemon = daemon.stderr(Stdio::null()).spawn().unwrap();
    wait("the daemon", || ullage(&runtime).arg("status").output().unwrap().status.success());
    // Written by the work itself, so that the cache it reads again and again is its own.
    let script =
        "until [ -e \"$1\" ]; do sleep 0.1; done; head -c 80M /dev/zero > \"$0\"; while cat \"$0\"; do :; done";
    let mut work = Command::new("sh");
    let mut work =
        work.args(["-c", script]).arg(&big).arg(&go).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let marked = ullage(&runtime).args(["mark", &work.id().to_string()]).output().unwrap();
    assert!(marked.status.success(), "{}", text(&marked));
    fs::write(&go, "").unwrap();
    let stopped = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", work.id())).unwrap();
        stat.rsplit_once(')').unwrap().1.trim().starts_with('T')
    };
    wait("the work to be stopped", stopped);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    wait("the guard to clean up", || !runtime.exists());
    assert!(!stopped());
    let last = children(work.id());
    work.kill().unwrap();
    work.wait().unwrap();
    wait("the last reader to end", || last.iter().all(|pid| !Path::new("/proc").join(pid.to_string()).exists()));
}

/// Regression: in a container the top of the hierarchy that can be seen has a limit, and the whole
/// machine was taken to be free.
#[test]
fn what_a_container_may_use_is_divided_and_not_the_machine() {
    let Some(sandbox) = Sandbox::new("container") else { return };
    let dir = tempfile::tempdir().unwrap();
    let runtime = dir.path().join("rt");
    let script = "mount --bind \"$2\" /sys/fs/cgroup/memory && umount /sys/fs/cgroup/freezer; \
                  exec \"$0\" memory --runtime-dir \"$1\" daemon --sampler clear-refs";
    let mut daemon = Command::new("unshare");
    daemon.args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_ullage")]).arg(&runtime).arg(&sandbox.0);
    let mut daemon = daemon.stderr(Stdio::null()).spawn().unwrap();
    let status = || ullage(&runtime).args(["status", "--json"]).output().unwrap();
    wait("the daemon", || status().status.success());
    let status: serde_json::Value = serde_json::from_slice(&status().stdout).unwrap();
    assert_eq!(status["report"]["picture"]["total"], (64 << 20) / 4096);
    assert!(Command::new("kill").arg(daemon.id().to_string()).status().unwrap().success());
    assert!(daemon.wait().unwrap().success());
}

/// Regression: where only a part of the hierarchy is mounted, as in a container, no process was put back where it came from.
#[test]
fn a_process_goes_back_to_its_group_in_a_container_too() {
    let Some(sandbox) = Sandbox::new("part") else { return };
    let dir = tempfile::tempdir().unwrap();
    let runtime = dir.path().join("rt");
    let [within, origin] = ["box", "origin"].map(|name| sandbox.0.join(name));
    for group in [&within, &origin] {
        fs::create_dir(group).unwrap();
    }
    let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
    fs::write(origin.join("cgroup.procs"), sleeper.id().to_string()).unwrap();
    let mut daemon = Command::new("unshare");
    let script = "mount --bind \"$2\" /sys/fs/cgroup/memory; \
                  exec \"$0\" memory --runtime-dir \"$1\" daemon --box /sys/fs/cgroup/memory/box --sampler clear-refs";
    daemon.args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_ullage")]).arg(&runtime).arg(&sandbox.0);
    let mut daemon = daemon.spawn().unwrap();
    wait("the daemon", || ullage(&runtime).arg("status").output().unwrap().status.success());
    let mut inside = Command::new("nsenter");
    inside.args(["-m", "-t", &daemon.id().to_string(), env!("CARGO_BIN_EXE_ullage"), "memory", "--runtime-dir"]);
    let marked = inside.arg(&runtime).args(["mark", &sleeper.id().to_string()]).output().unwrap();
    assert!(marked.status.success(), "{}", text(&marked));
    assert!(Command::new("kill").arg(daemon.id().to_string()).status().unwrap().success());
    assert!(daemon.wait().unwrap().success());
    let back = fs::read_to_string(origin.join("cgroup.procs")).unwrap();
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    wait("the groups to be empty", || {
        [&within, &origin].iter().all(|group| fs::remove_dir(group).is_ok() || !group.exists())
    });
    assert_eq!(back.trim(), sleeper.id().to_string());
}

#[test]
fn status_histogram_and_timeline_of_a_running_controller() {
    let Some(sandbox) = Sandbox::new("show") else { return };
    let dir = tempfile::tempdir().unwrap();
    let runtime = dir.path().join("rt");
    let mut daemon = sandbox.start(&runtime);
    let show = |arguments: &[&str]| {
        let output = ullage(&runtime).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", text(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let status: serde_json::Value = serde_json::from_str(&show(&["status", "--json"])).unwrap();
    assert_eq!(status["version"], 1);
    assert_eq!(status["report"]["picture"]["total"], (64 << 20) / 4096);
    assert!(show(&["status"]).contains("clear-refs: works"));
    assert!(show(&["histogram"]).contains("nothing seen yet"));
    wait("a point", || show(&["timeline", "--json"]).contains("at_s"));
    assert!(show(&["timeline"]).starts_with("<svg"));
    let pid = daemon.id().to_string();
    assert!(Command::new("kill").arg(pid).status().unwrap().success());
    assert!(daemon.wait().unwrap().success(), "ends in order on SIGTERM");
    assert!(!runtime.exists());
}

/// Boxes of the bench with this number.
fn boxes(bench: u32) -> Vec<PathBuf> {
    let entries = fs::read_dir(MEMORY_ROOT).into_iter().flatten().flatten().map(|entry| entry.path());
    let own = format!("ullage-bench-{bench}-");
    entries.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&own))).collect()
}

#[test]
fn a_bench_that_is_stopped_or_killed_leaves_no_box() {
    let dir = tempfile::tempdir().unwrap();
    let probe = Path::new(MEMORY_ROOT).join(format!("ullage-cli-{}-probe", std::process::id()));
    if !is_root() || fs::create_dir(&probe).is_err() {
        eprintln!("skipped: needs root and a cgroup v1 memory hierarchy at {MEMORY_ROOT}");
        return;
    }
    fs::remove_dir(&probe).unwrap();
    for signal in ["TERM", "KILL"] {
        let mut command = ullage(dir.path());
        command.args(["bench", "--box-size", "16M", "--prime", "600", "--systems", "ullage,unlimited", "--lanes", "2"]);
        command.arg("--records").arg(dir.path().join("records")).stdout(Stdio::null()).stderr(Stdio::piped());
        let bench = command.spawn().unwrap();
        let id = bench.id();
        wait("loads in all boxes", || {
            let busy = |path: &PathBuf| fs::read_to_string(path.join("user/cgroup.procs")).is_ok_and(|p| !p.is_empty());
            boxes(id).iter().filter(|path| busy(path)).count() == 6
        });
        let loads: Vec<String> = boxes(id)
            .iter()
            .flat_map(|path| {
                fs::read_to_string(path.join("user/cgroup.procs"))
                    .unwrap_or_default()
                    .lines()
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            })
            .collect();
        assert!(Command::new("kill").args([&format!("-{signal}"), &id.to_string()]).status().unwrap().success());
        let output = bench.wait_with_output().unwrap();
        if signal == "TERM" {
            assert_eq!(output.status.code(), Some(1));
            assert!(text(&output).contains("stopped by a signal"), "{}", text(&output));
            assert_eq!(boxes(id), Vec::<PathBuf>::new(), "when it has ended its boxes are gone");
        }
        wait("the boxes to go", || boxes(id).is_empty());
        wait("the loads to go", || loads.iter().all(|pid| !Path::new("/proc").join(pid).exists()));
    }
}
