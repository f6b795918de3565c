//! Stopping by signals, where no freezer is.

use super::*;
use ullage_memory::backend::{Backend, V1};

/// Regression: a job that its user had stopped went on when the controller let the others go on.
#[test]
fn a_job_that_its_user_has_stopped_stays_so() {
    let Some(mut sandbox) = Box96::new("job") else { return };
    let [stopped, running] = [sandbox.sleeper(), sandbox.sleeper()];
    let mut backend = V1::create(&sandbox.path, false, sandbox.group(), None).unwrap();
    for pid in [stopped, running] {
        fs::write(sandbox.group().join("cgroup.procs"), pid.to_string()).unwrap();
    }
    let signal = |signal: &str| Command::new("kill").args([signal, &stopped.to_string()]).status().unwrap();
    let is_stopped = |pid: i32| processes::state(pid) == Some('T');
    assert!(signal("-STOP").success());
    wait("it to stop", || is_stopped(stopped));
    for _ in 0..2 {
        backend.freeze().unwrap();
        assert!(is_stopped(stopped) && is_stopped(running));
        backend.thaw().unwrap();
        wait("the other to go on", || !is_stopped(running));
        assert!(is_stopped(stopped));
    }
    assert!(signal("-CONT").success());
    wait("it to go on", || !is_stopped(stopped));
    backend.freeze().unwrap();
    assert!(is_stopped(stopped));
    backend.thaw().unwrap();
    wait("it to go on", || !is_stopped(stopped));
    for child in &mut sandbox.children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    drop(backend);
    wait("the group to be empty", || fs::remove_dir(sandbox.group()).is_ok());
}
