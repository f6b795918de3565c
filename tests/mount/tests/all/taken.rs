//! Mount points that a space is mounted on already, or just now.

use std::fs;
use std::path::Path;
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::run::{Outcome, ullage};
use ullage_mount_tests::space::Space;

fn up(point: &Path, state: &Path, pool: &Path) -> Outcome {
    fs::create_dir_all(pool).unwrap();
    let pool = format!("p={}", pool.display());
    ullage(["up".as_ref(), point.as_os_str(), "--state".as_ref(), state.as_os_str(), "--pool".as_ref(), pool.as_ref()])
}

/// How many mounts are there, one above the other.
fn mounts_at(point: &Path) -> usize {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().filter(|line| line.split(' ').nth(4) == point.to_str()).count()
}

/// Regression: where the state of a space that is up was gone, a new one with a state at the same path was mounted over it.
#[test]
fn a_space_that_has_lost_its_state_is_not_mounted_over() {
    let space = Space::plain();
    fs::write(space.path("file"), "precious").unwrap();
    let kept = space.state.with_file_name("kept");
    fs::rename(&space.state, &kept).unwrap();
    up(&space.mount, &space.state, &space.ground.join("q")).refused("another space is mounted at");
    assert!(mounts_at(&space.mount) == 1 && !space.state.exists());
    assert_eq!(fs::read_to_string(space.path("file")).unwrap(), "precious");
    fs::rename(&kept, &space.state).unwrap();
    space.down_and_check();
}

/// Regression: both were mounted, one over the other.
#[test]
fn of_two_spaces_that_are_started_on_one_mount_point_at_one_time_one_is_refused() {
    for round in 0..4 {
        let mut ground = Ground::new();
        let point = ground.path().canonicalize().unwrap().join("m");
        ground.will_unmount(&point);
        let said = std::thread::scope(|scope| {
            let starts = ["a", "b"].map(|name| {
                let (state, pool) = (ground.join(name), ground.join(&format!("pool-{name}")));
                let point = &point;
                scope.spawn(move || up(point, &state, &pool))
            });
            starts.map(|start| start.join().unwrap())
        });
        let (up, refused): (Vec<Outcome>, Vec<Outcome>) = said.into_iter().partition(|said| said.code == Some(0));
        assert!(up.len() == 1 && mounts_at(&point) == 1, "round {round}: {up:?} {refused:?}");
        for said in refused {
            said.refused("another space is mounted at");
        }
        ullage(["down".as_ref(), point.as_os_str()]).ok();
    }
}
