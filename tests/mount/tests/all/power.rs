//! A short form of the power campaign; the long one is `cargo run -p ullage-mount-tests --bin crash-campaign -- --power`.

use std::fs;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use ullage_mount_tests::crash::power::{Kind, Machine, Writes};
use ullage_mount_tests::run::program;

#[track_caller]
fn cuts(mut machine: Machine, seeds: std::ops::Range<u64>, between: Duration) {
    for seed in seeds {
        let (wrong, promised) = machine.cut(seed, between, false);
        assert!(wrong.is_empty(), "seed {seed}:\n{}", wrong.join("\n"));
        eprintln!("seed {seed}: {promised} files promised and there");
    }
    machine.space.down_and_check();
}

#[test]
fn nothing_is_lost_or_mixed_over_power_cuts_on_one_disk() {
    cuts(Machine::new(Kind::Ext4, false, Writes::Ordered, &[]), 3000..3005, Duration::ZERO);
}

#[test]
fn nothing_is_lost_or_mixed_when_two_disks_lose_power_one_after_the_other() {
    cuts(Machine::new(Kind::Xfs, true, Writes::Ordered, &[]), 4000..4005, Duration::from_millis(40));
}

/// What was not flushed is lost in part, in any order.
#[test]
fn nothing_is_lost_or_mixed_when_a_disk_loses_what_was_not_flushed() {
    cuts(Machine::new(Kind::Ext4, false, Writes::Cached, &[]), 4100..4104, Duration::ZERO);
    cuts(Machine::new(Kind::Xfs, true, Writes::Cached, &[]), 4104..4107, Duration::from_millis(40));
}

#[test]
fn nothing_is_lost_or_mixed_over_power_cuts_while_a_pool_is_emptied() {
    cuts(Machine::draining(Kind::Ext4, false, Writes::Ordered, &[]), 4500..4503, Duration::ZERO);
}

/// A catalog that lost its power after the pool named copies that were not there, and one that lost it before named what was given back: such
/// files were empty.
#[test]
fn nothing_is_lost_or_mixed_where_two_disks_lose_power_while_a_pool_is_emptied() {
    cuts(Machine::draining(Kind::Xfs, true, Writes::Ordered, &[]), 4600..4605, Duration::from_millis(250));
}

#[test]
fn a_disk_that_calls_durable_what_is_not_is_noticed() {
    let mut machine = Machine::new(Kind::Ext4, false, Writes::Ordered, &[]);
    let (wrong, promised) = machine.cut(5000, Duration::ZERO, true);
    assert!(promised > 0);
    assert!(wrong.iter().any(|text| text.contains("was fsynced")), "{wrong:?}");
}

/// The rename was durable within a second and the old file gone, while what was written to the new one was still in memory.
#[test]
fn a_file_that_was_renamed_over_another_is_whole_after_a_power_cut() {
    for (kind, two) in [(Kind::Ext4, false), (Kind::Ext4, true), (Kind::Xfs, false), (Kind::Xfs, true)] {
        let machine = Machine::new(kind, two, Writes::Ordered, &[]);
        let (name, beside) = (machine.space.path("cfg"), machine.space.path("cfg.new"));
        let mut old = vec![1; 8192];
        fs::write(&name, &old).unwrap();
        fs::File::open(&name).unwrap().sync_all().unwrap();
        for (version, wait) in [(2, 300), (3, 1100), (4, 2500)] {
            let new = vec![version; 8192];
            fs::write(&beside, &new).unwrap();
            fs::rename(&beside, &name).unwrap();
            std::thread::sleep(Duration::from_millis(wait));
            let copy = machine.after_a_cut();
            let content = fs::read(copy.path("cfg")).unwrap();
            assert!(content == old || content == new, "{kind:?}, {wait} ms later: {} bytes are left", content.len());
            assert!(wait < 2000 || content == new, "{kind:?}: the rename is not durable");
            copy.down_and_check();
            old = new;
        }
        machine.space.down_and_check();
    }
}

/// Others come all the time, and take names of those that wait: such were durable before their data.
#[test]
fn files_that_are_renamed_over_others_all_the_time_are_whole_after_a_power_cut() {
    const FILES: usize = 300;
    let machine = Machine::new(Kind::Ext4, false, Writes::Ordered, &[]);
    let name = |n: usize| format!("file-{n}");
    for n in 0..FILES {
        fs::write(machine.space.path(name(n)), vec![1; 8192]).unwrap();
    }
    rustix::fs::syncfs(fs::File::open(&machine.space.mount).unwrap()).unwrap();
    let (end, space) = (AtomicBool::new(false), &machine.space);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in (0..FILES).cycle().take_while(|_| !end.load(Relaxed)) {
                fs::write(space.path("new"), vec![2; 8192]).unwrap();
                fs::rename(space.path("new"), space.path(name(n))).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        std::thread::sleep(Duration::from_millis(2600));
        let copy = machine.after_a_cut();
        end.store(true, Relaxed);
        let is_whole = |n: &usize| {
            let content = fs::read(copy.path(name(*n))).unwrap();
            content == vec![1; 8192] || content == vec![2; 8192]
        };
        let wrong: Vec<usize> = (0..FILES).filter(|n| !is_whole(n)).collect();
        assert_eq!(wrong, [0; 0]);
        copy.down_and_check();
    });
    machine.space.down_and_check();
}

/// A file that is on disk as a whole gets another name and fsync(2), and the power goes at once.
#[track_caller]
fn is_renamed_for_good(machine: &Machine) {
    let space = &machine.space;
    let (name, other) = (space.path("name"), space.path("other"));
    fs::write(&name, [1; 5000]).unwrap();
    let file = fs::File::open(&name).unwrap();
    file.sync_all().unwrap();
    // Nothing of the file, and nothing else, is left to be written.
    program("sync", ["-f".as_ref(), space.pool().as_os_str()]).ok();
    space.sync();
    fs::rename(&name, &other).unwrap();
    file.sync_all().unwrap();
    let copy = machine.after_a_cut();
    assert_eq!(fs::read_dir(&copy.mount).unwrap().flatten().map(|it| it.file_name()).collect::<Vec<_>>(), ["other"]);
    copy.down_and_check();
}

/// What the log had been given was in memory, since ext4 writes nothing past that there, and fsync(2) of a file that had nothing to write flushed the
/// disk and no more.
#[test]
fn a_rename_is_durable_after_fsync_where_ext4_has_data_in_its_journal() {
    let machine = Machine::new(Kind::Ext4Data, false, Writes::Ordered, &[]);
    is_renamed_for_good(&machine);
    machine.space.down_and_check();
}

/// Where the log's blocks are shared with a copy of the state, or were left out when that was put back, what is written there gets its place with the
/// file system's own log: that was in memory, and fsync(2) of a file that had nothing to write flushed the disk and no more.
#[test]
fn a_rename_is_durable_after_fsync_where_the_log_has_no_blocks_of_its_own() {
    for (kind, how) in [(Kind::Xfs, "reflink"), (Kind::Ext4, "sparse")] {
        let machine = Machine::new(kind, false, Writes::Ordered, &[]);
        let space = &machine.space;
        space.down();
        for log in ["log.0", "log.1"] {
            let (log, copy) = (space.state.join("catalog").join(log), space.state.join(log));
            let how = format!("--{how}=always");
            program("cp", ["-a".as_ref(), how.as_ref(), log.as_os_str(), copy.as_os_str()]).ok();
            if how.contains("sparse") {
                fs::rename(&copy, &log).unwrap();
            }
        }
        space.up();
        is_renamed_for_good(&machine);
        machine.space.down_and_check();
    }
}

/// A start counted what was appended while it was in memory only, and forgot that the leaf was in doubt: when the power went next, the
/// file had a length that its data had not, for good.
#[test]
fn what_a_start_counted_after_a_kill_is_there_when_the_power_goes_next() {
    let machine = Machine::new(Kind::Ext4, false, Writes::Ordered, &[]);
    let space = &machine.space;
    // So many that the first leaf is neither the newest of its series nor marked ahead.
    let name = |n: usize| space.path(format!("file-{n}"));
    (0..4000).for_each(|n| fs::write(name(n), [1; 100]).unwrap());
    let in_old_leaf = |n: &usize| {
        let backing = space.backing(&name(*n));
        let leaf = backing.parent().unwrap();
        leaf.ends_with("000") && leaf.with_file_name("001").exists()
    };
    let old = (0..4000).step_by(50).find(in_old_leaf).expect("a series fills its second leaf");
    program("sync", ["-f".as_ref(), space.pool().as_os_str()]).ok();
    space.sync();
    let mut file = fs::File::options().append(true).open(name(old)).unwrap();
    file.write_all(&[2; 9000]).unwrap();
    drop(file);
    std::thread::sleep(Duration::from_millis(500));
    space.kill();
    space.up();
    assert_eq!(name(old).metadata().unwrap().len(), 9100);
    let copy = machine.after_a_cut();
    let file = copy.path(format!("file-{old}"));
    let (length, content) = (file.metadata().unwrap().len(), fs::read(&file).unwrap());
    assert_eq!(length, content.len() as u64, "stat(2) and read(2) do not say the same");
    copy.down_and_check();
    machine.space.down_and_check();
}
