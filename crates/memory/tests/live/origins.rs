//! Whence processes come, and that they go back there.

use super::*;

/// Marks with this number a process that came from `origin`; gives whether it is there when the controller has ended.
fn is_back(sandbox: &Box96, origin: &Path, pid: i32, number: i32) -> bool {
    fs::create_dir_all(origin).unwrap();
    fs::write(origin.join("cgroup.procs"), pid.to_string()).unwrap();
    let controller = sandbox.start();
    join::mark(&sandbox.runtime, number).unwrap();
    assert!(in_group(&sandbox.group(), pid));
    controller.end().unwrap();
    in_group(origin, pid)
}

/// Regression: a name that is no UTF-8 was written down as another one, and its process went to the group above.
#[test]
fn who_comes_from_a_group_of_any_name_goes_back_there() {
    let Some(mut sandbox) = Box96::new("bytes") else { return };
    let (pid, origin) = (sandbox.sleeper(), sandbox.path.join(OsStr::from_bytes(b"odd \xff\\")));
    let back = is_back(&sandbox, &origin, pid, pid);
    sandbox.children[0].kill().unwrap();
    wait("the group to be empty", || fs::remove_dir(&origin).is_ok());
    assert!(back);
}

/// Two threads: that which the tests are started by, and this.
#[test]
#[ignore = "a process for another test"]
fn threads() {
    std::thread::sleep(Duration::from_secs(60));
}

/// Regression: of a process that was marked by a thread's number what was written down was not found again.
#[test]
fn who_is_marked_by_a_threads_number_goes_back() {
    let Some(mut sandbox) = Box96::new("thread") else { return };
    let mut program = Command::new(std::env::current_exe().unwrap());
    let program = program.args(["--exact", "origins::threads", "--ignored", "--test-threads", "2"]);
    sandbox.children.push(program.stdout(Stdio::null()).spawn().unwrap());
    let pid = sandbox.children[0].id() as i32;
    let thread = || {
        let numbers = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
        numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(|number| *number != pid)
    };
    wait("a thread", || thread().is_some());
    fs::write(format!("/proc/{pid}/oom_score_adj"), "300").unwrap();
    let origin = sandbox.path.join("origin");
    let back = is_back(&sandbox, &origin, pid, thread().unwrap());
    let score = oom_score(pid);
    sandbox.children[0].kill().unwrap();
    wait("the group to be empty", || fs::remove_dir(&origin).is_ok());
    assert_eq!((back, score.as_str()), (true, "300"));
}
