//! A disk that refused writes: such pages stay in the kernel's memory and count as written, and whoever reads them there takes them for durable.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;
use ullage_journal::{Journal, Options};
use ullage_mount_tests::crash::power::{Kind, Machine, Writes};
use ullage_mount_tests::run::program;

fn durable(path: &Path) {
    fs::write(path, "content").unwrap();
    File::open(path).unwrap().sync_all().unwrap();
}

/// More than the engine gathers before it writes.
const FILES: usize = 2000;

fn journals(state: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(state.join("catalog/engine")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "jnl")).collect()
}

/// The engine's journal had them in memory alone, the start read them there and began the log anew, where they were durable: a power cut
/// after that left a catalog that lacked them, and opened no more.
#[test]
fn what_the_catalogs_disk_refused_is_durable_after_the_next_start() {
    for kind in [Kind::Ext4, Kind::Xfs] {
        let machine = Machine::new(kind, false, Writes::Ordered, &[]);
        let space = &machine.space;
        space.down();
        let [journal] = &journals(&space.state)[..] else { panic!("one journal") };
        // So that it is known where on the disk it will be written.
        let room = ["-n", "-l", "8M"].map(AsRef::as_ref);
        program("fallocate", room.into_iter().chain([journal.as_os_str()])).ok();
        program("sync", ["-f".as_ref(), journal.as_os_str()]).ok();
        space.up();
        let kept = machine.kept(journal);
        let name = |n: usize| format!("before-{n}");
        (1..FILES).for_each(|n| fs::write(space.path(name(n)), "").unwrap());
        durable(&space.path(name(0)));
        // The engine has them.
        std::thread::sleep(Duration::from_millis(2500));
        space.kill();
        program("sync", ["-f".as_ref(), journal.as_os_str()]).ok();
        assert_ne!(machine.kept(journal), kept, "{kind:?}: nothing was written there");
        machine.put_back(&kept);
        space.up();
        durable(&space.path("after"));
        let copy = machine.after_a_cut();
        assert!((0..FILES).all(|n| copy.path(name(n)).exists()), "{kind:?}");
        assert!(copy.path("after").exists());
        copy.down_and_check();
        machine.space.down_and_check();
    }
}

/// A bank's or store's journal was read from memory, and what came next stood behind a hole.
#[test]
fn what_the_disk_of_a_journal_refused_is_durable_after_the_next_start() {
    let machine = Machine::new(Kind::Ext4, false, Writes::Ordered, &[]);
    let directory = machine.space.pool().with_file_name("journal");
    fs::create_dir(&directory).unwrap();
    let records = |directory: &Path| Journal::open(directory, Options::default()).unwrap().1.records.len();
    let (journal, _) = Journal::open(&directory, Options::default()).unwrap();
    journal.append(vec![1; 100]).wait().unwrap();
    let segment = fs::read_dir(&directory).unwrap().flatten().map(|entry| entry.path()).max().unwrap();
    let kept = machine.kept(&segment);
    journal.append(vec![2; 40_000]).wait().unwrap();
    drop(journal);
    machine.put_back(&kept);
    assert_eq!(records(&directory), 2);
    let copy = machine.after_a_cut();
    assert_eq!(records(&copy.pool().with_file_name("journal")), 2);
    copy.down_and_check();
    machine.space.down_and_check();
}
