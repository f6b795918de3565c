//! What a controller has of who started it, and what is left when both it and what it wrote down are gone.

use super::*;

/// Regression: where `run` was started to be last in line, so was the controller that others' memory waits for.
/// Regression: it was bound by the longest file of who started it, and ended, or did not start, without a word.
#[test]
fn a_controller_is_not_as_nice_or_bounded_as_who_started_it() {
    let Some(sandbox) = Sandbox::new("nice") else { return };
    let dir = tempfile::tempdir().unwrap();
    let runtime = dir.path().join("rt");
    let mut run = Command::new("prlimit");
    run.args([
        "--fsize=4096:unlimited",
        "ionice",
        "-c",
        "3",
        "nice",
        "-n",
        "19",
        "chrt",
        "-i",
        "0",
        env!("CARGO_BIN_EXE_ullage"),
        "memory",
        "--runtime-dir",
    ])
    .arg(&runtime);
    let mut run = run.args(["run", "--box"]).arg(&sandbox.0).args(["--", "sleep", "60"]).spawn().unwrap();
    // Its niceness and its policy, the 19th and the 41st of what the kernel says of it.
    let scheduled = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<i64> =
            stat.rsplit_once(')').unwrap().1.split_whitespace().skip(1).map(|n| n.parse().unwrap_or(-1)).collect();
        (fields[15], fields[37])
    };
    let contributed = || fs::read_to_string(sandbox.0.join("ullage.contributed/cgroup.procs")).unwrap_or_default();
    wait("the command", || contributed().contains(&run.id().to_string()));
    let status = ullage(&runtime).args(["status", "--json"]).output().unwrap();
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    let controller = status["pid"].as_u64().unwrap() as u32;
    let theirs: Vec<(i64, i64)> =
        [&[controller][..], &children(controller)].concat().into_iter().map(scheduled).collect();
    let its_own = scheduled(run.id());
    let of_disks = Command::new("ionice").args(["-p", &controller.to_string()]).output().unwrap();
    let limits = fs::read_to_string(format!("/proc/{controller}/limits")).unwrap();
    run.kill().unwrap();
    run.wait().unwrap();
    wait("the controller to end", || !runtime.exists());
    assert_eq!((theirs, its_own), (vec![(0, 0); 2], (19, 5)));
    assert!(!text(&of_disks).contains("idle"), "{}", text(&of_disks));
    let longest = limits.lines().find(|line| line.starts_with("Max file size")).unwrap();
    assert!(longest.contains("unlimited"), "{longest}");
}

/// Regression: the guard knew only what was written in the runtime directory, and without it lifted nothing.
#[test]
fn a_killed_controller_is_cleaned_up_after_though_its_directory_is_gone() {
    let Some(sandbox) = Sandbox::new("gone") else { return };
    let dir = tempfile::tempdir().unwrap();
    let runtime = dir.path().join("rt");
    let mut daemon = sandbox.start(&runtime);
    let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
    let marked = ullage(&runtime).args(["mark", &sleeper.id().to_string()]).output().unwrap();
    assert!(marked.status.success(), "{}", text(&marked));
    fs::remove_dir_all(&runtime).unwrap();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    wait("the guard to clean up", || !sandbox.0.join("ullage.contributed").exists());
    assert!(sleeper.try_wait().unwrap().is_none(), "the contributed process goes on");
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
}

/// Regression: what another user's controller, or who passes for one, had written into its status reached root's terminal as it was.
#[test]
fn a_status_is_shown_without_control_characters() {
    let Some(sandbox) = Sandbox::new("terminal") else { return };
    let dir = tempfile::tempdir().unwrap();
    let runtime = dir.path().join("rt");
    let mut daemon = sandbox.start(&runtime);
    let mut status: serde_json::Value =
        serde_json::from_slice(&fs::read(runtime.join("status.json")).unwrap()).unwrap();
    assert!(Command::new("kill").arg(daemon.id().to_string()).status().unwrap().success());
    assert!(daemon.wait().unwrap().success());
    let hostile = "\u{1b}[2J\nullage: all is well";
    for name in ["backend", "group", "sampler"] {
        status[name] = hostile.into();
    }
    status["warnings"] = vec![hostile].into();
    for name in ["name", "why_not"] {
        status["samplers"][0][name] = hostile.into();
    }
    let state = ullage_memory::runtime::RuntimeDir::new(Some(runtime.clone()));
    let other = state.claim().unwrap();
    fs::write(runtime.join("status.json"), status.to_string()).unwrap();
    let output = ullage(&runtime).arg("status").output().unwrap();
    drop(other);
    assert!(output.status.success(), "{}", text(&output));
    let shown = text(&output);
    assert_eq!(shown.matches("\\u{1b}[2J\\nullage: all is well").count(), 6, "{shown}");
    assert!(shown.chars().all(|char| char == '\n' || !char.is_control()), "{shown}");
}
