//! A space is started without one of its pools, whose disk is gone or does not answer.

use crate::pools::{add, pool_of};
use crate::unborn::is_in_step;
use rustix::process::Signal;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use ullage_mount_tests::ground::{Ground, listing};
use ullage_mount_tests::process;
use ullage_mount_tests::run::{Outcome, eventually, program, ullage};
use ullage_mount_tests::space::Space;

const FILES: usize = 60;
const LENGTH: usize = 3_000;

/// A space that is down, with the pools `main` and `far`, and files in both.
struct Bed {
    space: Space,
    place: PathBuf,
    near: Vec<PathBuf>,
    far: Vec<PathBuf>,
}

fn content(path: &Path) -> Vec<u8> {
    path.file_name().unwrap().as_encoded_bytes().repeat(LENGTH)[..LENGTH].to_vec()
}

fn bed(layout: &str) -> Bed {
    let mut ground = Ground::new();
    let (disk, other) = (ground.ext4("disk", 256), ground.ext4("other", 256));
    let place = other.join("pool");
    fs::create_dir(&place).unwrap();
    let mut space = Space::on(ground, &disk);
    space.pools[0].push_str(layout);
    space.pools.push(format!("far={}{layout}", place.display()));
    space.flags = vec!["--spread".into(), "round-robin".into()];
    space.up();
    space.flags.clear();
    let files = (0..FILES).map(|n| space.path(format!("file-{n}")));
    let files = files.inspect(|path| fs::write(path, content(path)).unwrap());
    let (far, near): (Vec<_>, Vec<_>) = files.partition(|path| pool_of(&space, path) == "far");
    assert!(far.len() > 10 && near.len() > 10, "{} and {}", far.len(), near.len());
    space.down();
    Bed { space, place, near, far }
}

impl Bed {
    fn away(&self) -> PathBuf {
        self.place.with_file_name("away")
    }

    /// Its disk is gone.
    fn take_away(&self) {
        fs::rename(&self.place, self.away()).unwrap();
    }

    fn bring_back(&self) {
        fs::rename(self.away(), &self.place).unwrap();
    }

    fn up_without(&self, names: &[&str]) -> Outcome {
        let head = ["up".as_ref(), self.space.mount.as_os_str(), "--state".as_ref(), self.space.state.as_os_str()];
        ullage(head.into_iter().chain(names.iter().flat_map(|name| ["--without".as_ref(), name.as_ref()])))
    }
}

#[track_caller]
fn fails<T: std::fmt::Debug>(outcome: io::Result<T>) {
    assert_eq!(outcome.expect_err("its disk is gone").raw_os_error(), Some(libc::EIO));
}

/// How many files as long as ours a directory of backing files holds.
fn held(place: &Path) -> usize {
    let files = listing(place).into_iter().filter_map(|(path, _)| path.symlink_metadata().ok());
    files.filter(|meta| meta.is_file() && meta.len() == LENGTH as u64).count()
}

/// What is done with files meanwhile: the first is removed, the second replaced, the third renamed; and so in the other pool.
fn work(bed: &Bed) {
    let Bed { space, near, far, .. } = bed;
    for files in [near, far] {
        fs::remove_file(&files[0]).unwrap();
        fs::write(space.path("new"), content(&files[1])).unwrap();
        fs::rename(space.path("new"), &files[1]).unwrap();
        fs::rename(&files[2], space.path(format!("renamed-{}", files[2].file_name().unwrap().display()))).unwrap();
        fs::hard_link(&files[3], space.path(format!("linked-{}", files[3].file_name().unwrap().display()))).unwrap();
        fs::set_permissions(&files[4], fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(fs::metadata(&files[4]).unwrap().len(), LENGTH as u64);
        program("touch", ["-c".as_ref(), "-d".as_ref(), "2001-02-03 UTC".as_ref(), files[5].as_os_str()]).ok();
    }
    for file in &far[3..] {
        fails(fs::read(file));
        fails(OpenOptions::new().append(true).open(file));
        fails(File::create(file));
    }
    for (n, file) in near[5..].iter().enumerate() {
        assert!(fs::read(file).unwrap() == content(file), "{}", file.display());
        let path = space.path(format!("meanwhile-{n}"));
        fs::write(&path, content(&path)).unwrap();
        assert_eq!(pool_of(space, &path), "main");
    }
    File::open(&space.mount).unwrap().sync_all().unwrap();
    rustix::fs::syncfs(File::open(&space.mount).unwrap()).unwrap();
    space.compare_du(&space.mount);
}

/// All of it again, with the pool.
fn compare(bed: &Bed) {
    let Bed { space, near, far, .. } = bed;
    for files in [near, far] {
        assert!(!files[0].exists() && !files[2].exists());
        let renamed = space.path(format!("renamed-{}", files[2].file_name().unwrap().display()));
        assert!(fs::read(renamed).unwrap() == content(&files[2]));
        assert_eq!(fs::metadata(&files[4]).unwrap().permissions().mode() & 0o777, 0o640);
        let time = fs::metadata(&files[5]).unwrap().modified().unwrap();
        assert_eq!(time, std::time::UNIX_EPOCH + Duration::from_secs(981_158_400));
        for file in files[3..].iter().chain([&files[1]]) {
            assert!(fs::read(file).unwrap() == content(file), "{}", file.display());
        }
        let path = space.path("again");
        fs::write(&path, "later").unwrap();
        fs::remove_file(path).unwrap();
    }
}

fn check(layout: &str) {
    let bed = bed(layout);
    let Bed { space, place, far, .. } = &bed;
    let before = held(place);
    assert!(before >= far.len());
    bed.take_away();
    space.try_up().refused(&format!("`ullage up --without far {}`", space.mount.display()));
    bed.up_without(&["far"]).ok();
    work(&bed);
    let listed = space.pool_command("list", &[]).ok();
    assert!(listed.contains("far: the space was started without it"), "{listed}");
    let listed = space.pool_command("list", &["--json"]).json();
    assert!(listed["pools"][1]["absent"] == true && listed["pools"][0]["absent"].is_null(), "{listed}");
    space.pool_command("remove", &["far", "--no-wait"]).refused("the space was started without the pool 'far'");
    assert!(!place.exists(), "something was made where it lay");
    space.down();
    // It is not there again by itself.
    space.try_up().refused("does not exist");
    bed.bring_back();
    space.up();
    compare(&bed);
    if !layout.is_empty() {
        eventually("the plain trees follow", Duration::from_secs(20), || is_in_step(space));
        let shown = place.join(format!("renamed-{}", far[2].file_name().unwrap().display()));
        assert!(fs::read(shown).unwrap() == content(&far[2]));
        assert!(!place.join(far[0].file_name().unwrap()).exists());
    }
    space.down_and_check();
    if layout.is_empty() {
        // The two that went from it took their backing files with them.
        assert_eq!(held(place), before - 2);
    }
}

#[test]
fn a_space_is_started_without_a_pool_whose_disk_is_gone() {
    check("");
}

#[test]
fn a_space_is_started_without_a_mirror_pool_whose_disk_is_gone() {
    check(",layout=mirror");
}

#[test]
fn who_is_killed_without_a_pool_loses_nothing_of_it() {
    let bed = bed("");
    let Bed { space, place, far, .. } = &bed;
    // Killed while files of it were being written: its leaves are marked.
    space.up();
    let mut files = far[5..].to_vec();
    files.truncate(5);
    let open: Vec<File> = files.iter().map(|file| OpenOptions::new().write(true).open(file).unwrap()).collect();
    for file in &open {
        file.sync_all().unwrap();
    }
    space.kill();
    drop(open);
    let before = held(place);
    bed.take_away();
    bed.up_without(&["far"]).ok();
    work(&bed);
    space.kill();
    bed.up_without(&["far"]).ok();
    space.down();
    bed.bring_back();
    space.up();
    compare(&bed);
    space.down_and_check();
    assert_eq!(held(place), before - 2);
}

#[test]
fn a_start_without_what_is_no_pool_or_all_of_them_changes_nothing() {
    let bed = bed("");
    bed.up_without(&["near"]).refused("the space has no pool 'near'");
    bed.up_without(&["far", "main"]).refused("there is no pool that takes files");
    let nowhere = bed.space.ground.join("nowhere");
    let place = format!("a={}", bed.place.display());
    let words =
        ["up".as_ref(), nowhere.as_os_str(), "--pool".as_ref(), place.as_ref(), "--without".as_ref(), "a".as_ref()];
    ullage(words).refused("is for a space that was made before");
    // One that is there can be left out, as a disk that fails is.
    bed.up_without(&["far"]).ok();
    fails(fs::read(&bed.far[5]));
    bed.space.down();
    bed.space.up();
    for file in bed.near.iter().chain(&bed.far) {
        assert!(fs::read(file).unwrap() == content(file), "{}", file.display());
    }
    bed.space.down_and_check();
}

/// A file that went to the pool just before the power failed has its data where it was: that is not given up while it is not known what became
/// of the pool.
#[test]
fn what_went_to_a_pool_that_is_gone_with_the_power_has_what_it_went_from() {
    let bed = bed("");
    let Bed { space, place, near, .. } = &bed;
    space.up();
    let copy = place.with_file_name("copy");
    program("cp", ["-a".as_ref(), place.as_os_str(), copy.as_os_str()]).ok();
    space.pool_command("remove", &["main", "--no-wait"]).ok();
    eventually("they go", Duration::from_secs(4), || near.iter().all(|file| pool_of(space, file) == "far"));
    space.kill();
    // What its disk had not got by then.
    fs::remove_dir_all(place).unwrap();
    space.pool_command("remove", &["main", "--cancel"]).ok();
    bed.up_without(&["far"]).ok();
    for file in near {
        fails(fs::read(file));
    }
    space.down();
    fs::rename(&copy, place).unwrap();
    space.up();
    for file in near {
        assert!(fs::read(file).unwrap() == content(file), "{}", file.display());
        assert_eq!(pool_of(space, file), "main");
    }
    space.down_and_check();
}

#[test]
fn the_last_pool_that_is_there_cannot_be_taken_away() {
    let bed = bed("");
    let Bed { space, near, .. } = &bed;
    bed.up_without(&["far"]).ok();
    space
        .pool_command("remove", &["main", "--no-wait"])
        .refused("'main' is the only pool of the space that takes files");
    fs::write(space.path("new"), "content").unwrap();
    for file in near {
        assert!(fs::read(file).unwrap() == content(file), "{}", file.display());
    }
    space.down();
    space.up();
    space.down_and_check();
}

/// Its directory was cleared at the end of the space, and what was removed meanwhile lay there for good.
#[test]
fn a_pool_that_was_being_emptied_leaves_with_the_end_of_a_space_that_has_it() {
    let bed = bed("");
    let Bed { space, place, far, .. } = &bed;
    space.pool_command("remove", &["far"]).ok();
    bed.up_without(&["far"]).ok();
    for file in far {
        fs::remove_file(file).unwrap();
    }
    space.down();
    let is_known = || fs::read_to_string(space.state.join("space.toml")).unwrap().contains("\"far\"");
    assert!(is_known() && held(place) >= far.len(), "it was touched");
    space.up();
    space.down_and_check();
    assert!(!is_known());
    assert_eq!(fs::read_dir(place).unwrap().count(), 0);
}

/// What SEMANTICS.md says to do was refused where the disk is gone, as it is then.
#[test]
fn what_lies_in_a_pool_that_is_gone_for_good_is_given_up_by_a_repair() {
    for (layout, another_disk, killed) in [
        ("", false, false),
        ("", true, false),
        ("", false, true),
        (",layout=mirror", false, false),
        (",layout=mirror", true, true),
    ] {
        let bed = bed(layout);
        let Bed { space, place, near, far } = &bed;
        if killed {
            space.up();
            let mut open: Vec<File> =
                far[..5].iter().map(|file| OpenOptions::new().append(true).open(file).unwrap()).collect();
            // What had no name any more is no loss.
            for n in 0..4 {
                let path = space.path(format!("unnamed-{n}"));
                open.push(File::create_new(&path).unwrap());
                fs::remove_file(path).unwrap();
            }
            space.sync();
            space.kill();
            drop(open);
        }
        bed.take_away();
        if another_disk {
            fs::create_dir(place).unwrap();
        }
        if killed {
            bed.up_without(&["far"]).ok();
            space.down();
        }
        space.try_check(&["--repair"]).refused("far");
        space.try_check(&["--repair", "--without", "fra"]).refused("the space has no pool 'fra'");
        let outcome = space.try_check(&["--repair", "--without", "far"]);
        let told: serde_json::Value = serde_json::from_str(&outcome.out).unwrap();
        let lost = told["repair"]["lost"].as_array().unwrap();
        assert_eq!(lost.len(), far.len(), "{told}");
        space.pool_command("remove", &["far"]).ok();
        space.up();
        for file in near {
            assert!(fs::read(file).unwrap() == content(file), "{}", file.display());
        }
        assert!(far.iter().all(|file| !file.exists()));
        // Another disk in its place is one more pool.
        if !another_disk {
            fs::create_dir(place).unwrap();
        }
        if layout.is_empty() {
            add(space, &format!("far={}", place.display())).ok();
        }
        fs::write(space.path("new"), "content").unwrap();
        space.down_and_check();
    }
}

/// A disk that answers nobody: names in this directory are asked for in vain until this is dropped.
struct Hanging(Space, u32);

impl Hanging {
    fn new() -> Self {
        let ground = Ground::new();
        let disk = ground.directory("disk");
        let space = Space::on(ground, &disk);
        space.up();
        let pid = space.pid();
        process::signal(pid, Signal::STOP);
        Self(space, pid)
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        process::signal(self.1, Signal::CONT);
    }
}

/// The pool that is not there was asked after, and whoever came later waited behind that.
#[test]
fn a_disk_that_hangs_is_not_asked_when_other_pools_come_and_go() {
    let bed = bed("");
    let Bed { space, place, .. } = &bed;
    let more = place.with_file_name("more");
    fs::create_dir(&more).unwrap();
    bed.take_away();
    let hanging = Hanging::new();
    std::os::unix::fs::symlink(hanging.0.path("nobody asked for it before"), place).unwrap();
    let began = std::time::Instant::now();
    bed.up_without(&["far"]).ok();
    add(space, &format!("more={}", more.display())).ok();
    space.pool_command("remove", &["main"]).ok();
    space.down();
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    // One that hangs itself keeps nobody else waiting.
    bed.up_without(&["far"]).ok();
    let late = hanging.0.path("nor for this");
    let (own, state) = (space.mount.clone(), space.state.clone());
    let waits = std::thread::spawn(move || {
        let pool = format!("late={}", late.display());
        let words =
            ["pool".as_ref(), "add".as_ref(), own.as_os_str(), pool.as_ref(), "--state".as_ref(), state.as_os_str()];
        ullage(words)
    });
    std::thread::sleep(Duration::from_millis(500));
    let other = place.with_file_name("other");
    fs::create_dir(&other).unwrap();
    let began = std::time::Instant::now();
    add(space, &format!("other={}", other.display())).ok();
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    drop(hanging);
    waits.join().unwrap().refused("does not exist");
    space.down();
    fs::remove_file(place).unwrap();
    bed.bring_back();
    space.up();
    space.down_and_check();
}

/// Each try was a line of the log, which lies on the disk of the catalog.
#[test]
fn who_opens_files_of_a_pool_that_is_gone_fills_no_log() {
    let bed = bed("");
    bed.take_away();
    bed.up_without(&["far"]).ok();
    let before = bed.space.log().len();
    for _ in 0..20_000 {
        fails(File::open(&bed.far[0]));
    }
    let log = bed.space.log();
    assert!(log.len() - before < 200_000, "{} bytes", log.len() - before);
    assert!(log.contains("more lines like the next one are left out"), "{log}");
    bed.space.down();
    bed.bring_back();
    bed.space.up();
    bed.space.down_and_check();
}
