//! States whose path leads elsewhere, or nowhere, while their space is up.

use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use ullage_mount_tests::ground::{Ground, listing};
use ullage_mount_tests::process;
use ullage_mount_tests::run::{Outcome, eventually, program, ullage, unmount};
use ullage_mount_tests::watchdog::is_mounted;

/// How long a daemon may take to end that has written much.
const ENDS: Duration = Duration::from_secs(60);
/// So many long names are more than the catalog's engine keeps in memory.
const MOST_NAMES: usize = 60_000;
/// Files of a directory.
const NAMES: usize = 1000;

fn words<const N: usize>(words: [&dyn AsRef<OsStr>; N]) -> Outcome {
    ullage(words.map(|word| word.as_ref().to_owned()))
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

/// Makes files with long names until the engine in this state has a table, or has had to make one; how many.
fn fill(space: &Path, state: &Path) -> usize {
    let tables = state.join("catalog/engine/keyspaces/1/tables");
    let has_tables = || fs::read_dir(&tables).is_ok_and(|mut tables| tables.next().is_some());
    let mut made = 0;
    while made < MOST_NAMES && !has_tables() {
        let dir = space.join(format!("{made}"));
        fs::create_dir(&dir).unwrap();
        for at in 0..NAMES {
            fs::File::create(dir.join(format!("{at:0>220}"))).unwrap();
        }
        made += NAMES;
    }
    eventually("the engine writes a table", Duration::from_secs(20), has_tables);
    made
}

fn count(space: &Path) -> usize {
    fs::read_dir(space).unwrap().map(|dir| fs::read_dir(dir.unwrap().path()).unwrap().count()).sum()
}

/// Unmounts a space whose daemon ends with that, and waits for it.
fn end(point: &Path, state: &Path) {
    unmount(point);
    eventually("it ends", ENDS, || !state.join("control.sock").exists());
}

fn status(state: &Path, point: &Path) -> serde_json::Value {
    words([&"status", &point, &"--state", &state, &"--json"]).json()
}

/// A space that is not any more where it was started, and another one that was started there since.
struct Displaced {
    ground: Ground,
    /// Where the first is mounted now, and the second one.
    moved: PathBuf,
    there: PathBuf,
}

impl Displaced {
    /// With these pools of the first one's, and of the second's.
    fn on(mut ground: Ground, first: &[String], second: &[String]) -> Self {
        let (srv, before) = (ground.directory("srv"), ground.join("before"));
        let (there, moved) = (srv.join("space"), before.join("space"));
        let mut up = |pools: &[String]| {
            ground.will_unmount(&there);
            let pools = pools.iter().map(|pool| format!("--pool={pool}"));
            let head = ["up".into(), there.to_str().unwrap().to_owned()];
            ullage(head.into_iter().chain(pools)).ok();
        };
        up(first);
        fs::rename(&srv, &before).unwrap();
        fs::create_dir(&srv).unwrap();
        up(second);
        ground.will_unmount(&moved);
        Self { ground, moved, there }
    }

    fn state(&self) -> PathBuf {
        self.moved.with_file_name("space.ullage")
    }

    fn state_there(&self) -> PathBuf {
        self.there.with_file_name("space.ullage")
    }
}

fn pool(ground: &Ground, name: &str) -> String {
    format!("{name}={}", ground.directory(name).display())
}

/// Regression: the engine of a space whose directory was renamed wrote its tables, and the list of them, into the catalog of the space that was
/// made in its old place: after a restart that one had the first one's names, and all its own files were gone.
#[test]
fn a_space_whose_directory_was_renamed_writes_nothing_into_the_one_in_its_old_place() {
    let ground = Ground::new();
    let pools = ["pa", "pb"].map(|name| pool(&ground, name));
    let two = Displaced::on(ground, &[format!("{},kind=null", pools[0])], &pools[1..]);
    let mine = two.there.join("mine");
    fs::create_dir(&mine).unwrap();
    for at in 0..NAMES {
        fs::write(mine.join(at.to_string()), at.to_string()).unwrap();
    }
    words([&"down", &two.there]).ok();
    let before = listing(&two.state_there());
    let made = fill(&two.moved, &two.state());
    assert_eq!(listing(&two.state_there()), before);
    words([&"up", &two.there]).ok();
    assert_eq!(names(&two.there), ["mine"]);
    assert_eq!(fs::read_to_string(mine.join("999")).unwrap(), "999");
    assert_eq!(status(&two.state(), &two.moved)["catalog_failed"], false);
    end(&two.moved, &two.state());
    words([&"down", &two.there]).ok();
    words([&"check", &two.there]).ok();
    words([&"up", &two.moved]).ok();
    assert_eq!(count(&two.moved), made);
    words([&"down", &two.moved]).ok();
}

/// Regression: tables were written into the copy of a catalog that was mounted over it, and where nothing was in its place any more the space failed
/// (EROFS) when the first was due.
#[test]
fn a_space_whose_state_is_covered_or_unmounted_goes_on_in_it() {
    for is_covered in [true, false] {
        let mut ground = Ground::new();
        let (disk, alias) = (ground.tmpfs("disk", 400 << 10), ground.directory("alias"));
        let (state, kept, point) = (disk.join("state"), alias.join("state"), ground.join("space"));
        program("mount", ["--bind", disk.to_str().unwrap(), alias.to_str().unwrap()]).ok();
        ground.will_unmount(&alias);
        ground.will_unmount(&point);
        let null = format!("{},kind=null", pool(&ground, "p"));
        words([&"up", &point, &"--state", &state, &"--pool", &null]).ok();
        if is_covered {
            ground.tmpfs("disk", 400 << 10);
            program("cp", ["-a", kept.to_str().unwrap(), state.to_str().unwrap()]).ok();
        } else {
            program("umount", ["-l", disk.to_str().unwrap()]).ok();
        }
        let before = listing(&disk);
        let made = fill(&point, &kept);
        assert_eq!(status(&kept, &point)["catalog_failed"], false);
        assert_eq!(status(&kept, &point)["state"], state.to_str().unwrap());
        end(&point, &kept);
        assert_eq!(listing(&disk), before);
        words([&"up", &point, &"--state", &kept]).ok();
        assert_eq!(count(&point), made);
        words([&"down", &point]).ok();
    }
}

/// Regression: `pool add` wrote the new pool, and `pool remove` what was to be emptied, into the settings of the space in the old place; the first
/// one's files that went to the new pool could not be read after a restart, and the second one listed it.
#[test]
fn the_pools_of_a_space_whose_directory_was_renamed_change_in_its_own_settings() {
    let ground = Ground::new();
    let [pa, pb, more] = ["pa", "pb", "more"].map(|name| pool(&ground, name));
    let two = Displaced::on(ground, &[pa], &[pb]);
    let settings = |state: PathBuf| fs::read_to_string(state.join("space.toml")).unwrap();
    let before = settings(two.state_there());
    words([&"pool", &"add", &two.moved, &more]).ok();
    assert_eq!(settings(two.state_there()), before);
    assert!(settings(two.state()).contains("\"more\""));
    words([&"pool", &"remove", &two.moved, &"pa"]).ok();
    for at in 0..20 {
        fs::write(two.moved.join(at.to_string()), at.to_string()).unwrap();
    }
    end(&two.moved, &two.state());
    assert_eq!(settings(two.state_there()), before);
    words([&"up", &two.moved]).ok();
    for at in 0..20 {
        assert_eq!(fs::read_to_string(two.moved.join(at.to_string())).unwrap(), at.to_string());
    }
    words([&"down", &two.moved]).ok();
    words([&"down", &two.there]).ok();
    words([&"check", &two.moved]).ok();
    words([&"check", &two.there]).ok();
}

/// Regression: the end of a space whose directory was renamed took a pool that was being emptied out of the space in its old place, and cleared it.
#[test]
fn the_end_of_a_space_whose_directory_was_renamed_leaves_the_pools_of_the_one_in_its_old_place() {
    let ground = Ground::new();
    let [pa, one, emptied] = ["pa", "one", "two"].map(|name| pool(&ground, name));
    let two = Displaced::on(ground, &[pa], &[one, emptied]);
    let held: Vec<fs::File> = (0..20).map(|at| fs::File::create(two.there.join(at.to_string())).unwrap()).collect();
    words([&"pool", &"remove", &two.there, &"two", &"--no-wait"]).ok();
    let before = fs::read_to_string(two.state_there().join("space.toml")).unwrap();
    end(&two.moved, &two.state());
    assert_eq!(fs::read_to_string(two.state_there().join("space.toml")).unwrap(), before);
    assert!(two.ground.join("two/.ullage-pool.toml").exists());
    drop(held);
    words([&"down", &two.there]).ok();
    words([&"check", &two.there]).ok();
}

/// Regression: `down` of a space whose directory was renamed was refused, with a hint that took down the one in its old place; `status` said that it
/// was still mounted there; who asked of it was refused while the other one's daemon was stopped, and waited without end while its own was.
#[test]
fn a_space_whose_directory_was_renamed_is_asked_and_taken_down_itself() {
    let ground = Ground::new();
    let [pa, pb] = ["pa", "pb"].map(|name| pool(&ground, name));
    let two = Displaced::on(ground, &[pa], &[pb]);
    let moved = two.moved.canonicalize().unwrap();
    fs::write(moved.join("file"), "content").unwrap();
    let told = status(&two.state(), &moved);
    assert_eq!(told["still_mounted_at"], serde_json::json!([moved]));
    words([&"up", &moved]).refused(&format!("still mounted at {}", moved.display()));

    let [own, others] = [two.state(), two.state_there()].map(|state| {
        let pid = words([&"status", &"/", &"--state", &state, &"--json"]).json()["pid"].as_u64();
        u32::try_from(pid.unwrap()).unwrap()
    });
    process::signal(others, Signal::STOP);
    let began = Instant::now();
    words([&"du", &moved]).ok();
    words([&"limit", &moved]).ok();
    assert!(began.elapsed() < Duration::from_secs(25), "the other one was waited for");
    process::signal(others, Signal::CONT);

    process::signal(own, Signal::STOP);
    let why = &format!("process {own}, does not answer");
    std::thread::scope(|scope| {
        for (command, path) in [("stat", moved.join("file")), ("limit", moved.clone()), ("du", moved.clone())] {
            scope.spawn(move || words([&command, &path]).refused(why));
        }
    });
    process::signal(own, Signal::CONT);
    let used = fs::File::open(moved.join("file")).unwrap();
    words([&"down", &moved]).refused(&format!("`ullage down --lazy {}`", moved.display()));
    drop(used);
    words([&"down", &moved]).ok();
    assert!(is_mounted(&two.there.canonicalize().unwrap()) && !is_mounted(&moved));
    assert!(!process::runs(own));
    words([&"down", &two.there]).ok();
    words([&"check", &moved]).ok();
}
