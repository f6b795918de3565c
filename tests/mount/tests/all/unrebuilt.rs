//! `ullage rebuild` where it cannot be done, or only in part; and what is for it alone.

use crate::rebuild::{expect, fill, generations, partly, pools, rebuild, run, two};
use std::fs;
use ullage_mount_tests::run::program;

/// A disk without room for the new catalog was taken for damage of every copy: what came of it had no names, and was a success.
#[test]
fn a_rebuild_on_a_full_disk_fails_and_leaves_nothing_and_with_room_succeeds() {
    let mut space = two();
    fill(&space, 0, 4);
    // Content that does not shrink.
    let mut seed = 1_u32;
    let mut noise = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 24) as u8
    };
    for n in 0..400 {
        let name = space.path(format!("dir/other-{n}"));
        fs::write(&name, "").unwrap();
        let value: Vec<u8> = (0..3000).map(|_| noise()).collect();
        rustix::fs::setxattr(&name, "user.noise", &value, rustix::fs::XattrFlags::empty()).unwrap();
    }
    space.down();
    fs::remove_dir_all(&space.state).unwrap();
    // The log has its length from the beginning.
    let logs = 64 << 10;
    let disk = space.ground.tmpfs("small", logs);
    let all = space.pools.clone();
    let mut refused = 0;
    for room in (1..).map(|step| step * 256) {
        let size = format!("remount,size={}k", logs + room);
        program("mount", ["-o".as_ref(), size.as_ref(), disk.as_os_str()]).ok();
        let outcome = run(&mut space, "small/state", &all, &[]);
        if outcome.code == Some(0) {
            assert!(outcome.json()["snapshot_age_seconds"].is_u64());
            break;
        }
        assert!(outcome.code == Some(1) && outcome.out.is_empty(), "{}", outcome.out);
        // What the store says of it comes before.
        let last = outcome.err.lines().last().unwrap();
        assert!(last.starts_with("ullage: ") && last.contains("No space left"), "{last}");
        assert_eq!(fs::read_dir(&disk).unwrap().count(), 0, "something is left");
        refused += 1;
    }
    assert!(refused > 2, "there was room for half of it at once");
    space.check();
    space.up();
    (0..4).for_each(|n| expect(&space, n));
    space.down_and_check();
}

/// It was passed over as damaged.
#[test]
fn a_copy_that_a_later_version_wrote_ends_the_rebuild() {
    let mut space = two();
    fill(&space, 0, 4);
    space.down();
    let newest: Vec<_> = pools(&space).iter().map(|pool| generations(pool, ".snapshot").pop().unwrap()).collect();
    let set_version = |version: u8| {
        for path in &newest {
            let mut bytes = fs::read(path).unwrap();
            bytes[7] = version;
            fs::write(path, bytes).unwrap();
        }
    };
    set_version(9);
    let all = space.pools.clone();
    run(&mut space, "state-new", &all, &[]).refused("use a newer ullage");
    assert!(!space.ground.join("state-new").exists());
    set_version(1);
    rebuild(&mut space, &[]);
    (0..4).for_each(|n| expect(&space, n));
    space.down_and_check();
}

/// Regression: a copy of the settings that was damaged, or of a later version, was taken for none. So nobody noticed that a pool was missing, and
/// its files were dropped without a word.
#[test]
fn a_copy_of_the_settings_that_cannot_be_read_is_not_taken_for_none() {
    let mut space = two();
    fill(&space, 0, 6);
    space.down();
    let copy = pools(&space)[1].join(".ullage-mirror/space.toml");
    let text = fs::read_to_string(&copy).unwrap();
    let (all, given) = (space.pools.clone(), [space.pools[1].clone()]);
    fs::write(&copy, text.replace("format = 1", "format = 2\nnovel = true")).unwrap();
    run(&mut space, "later", &given, &[]).refused("use a newer ullage");
    fs::write(&copy, "garbage").unwrap();
    run(&mut space, "damaged", &given, &[]).refused("speaks of 1 are none of those");
    fs::remove_file(&copy).unwrap();
    run(&mut space, "none", &given, &[]).refused("speaks of 1 are none of those");
    for name in ["later", "damaged", "none"] {
        assert!(!space.ground.join(name).exists(), "{name}");
    }
    fs::write(&copy, "garbage").unwrap();
    let old = space.state.clone();
    let report = partly(run(&mut space, "given-up", &given, &["--without", "a"]));
    let damaged = |report: &serde_json::Value| {
        let all = report["damaged"].as_array().unwrap();
        all.len() == 1 && all[0].as_str().unwrap().contains("space.toml")
    };
    assert!(report["dropped"] == 3 && damaged(&report), "{report}");
    fs::remove_dir_all(&space.state).unwrap();
    fs::remove_dir_all(&old).unwrap();
    // The other one can be read.
    let report = partly(run(&mut space, "whole", &all, &[]));
    assert!(report["dropped"] == 0 && damaged(&report), "{report}");
    space.check();
    space.up();
    (0..6).for_each(|n| expect(&space, n));
    space.down_and_check();
}

/// An empty space was made over the full pools.
#[test]
fn a_space_whose_catalog_is_gone_is_not_begun_anew() {
    let mut space = two();
    fill(&space, 0, 4);
    space.down();
    let (catalog, away) = (space.state.join("catalog"), space.state.join("away"));
    fs::rename(&catalog, &away).unwrap();
    for empty in [false, true] {
        if empty {
            fs::create_dir(&catalog).unwrap();
        }
        space.try_up().refused("the catalog of this space is gone");
        space.try_check(&[]).refused("the catalog of this space is gone");
        space.try_check(&["--repair"]).refused("the catalog of this space is gone");
        assert!(!catalog.join("format").exists());
    }
    fs::remove_dir(&catalog).unwrap();
    fs::rename(&away, &catalog).unwrap();
    space.up();
    (0..4).for_each(|n| expect(&space, n));
    space.down();
    rebuild(&mut space, &[]);
    (0..4).for_each(|n| expect(&space, n));
    space.down_and_check();
}

/// They stayed with nothing behind them, and no repair could end.
#[test]
fn files_in_a_null_pool_are_dropped() {
    let mut space = two();
    space.down();
    fs::remove_dir_all(&space.state).unwrap();
    for pool in pools(&space) {
        fs::remove_dir_all(&pool).unwrap();
        fs::create_dir(&pool).unwrap();
    }
    space.pools[1] = "nothing=/dev/null,kind=null".into();
    space.flags = ["--spread", "round-robin"].iter().map(Into::into).collect();
    space.up();
    space.flags.clear();
    fill(&space, 0, 6);
    space.down_and_check();
    space.pools.pop();
    let report = rebuild(&mut space, &[]);
    assert_eq!((&report["dropped"], &report["files"]), (&3.into(), &5.into()), "{report}");
    for n in 0..6 {
        let name = space.path(format!("dir/file-{n}"));
        assert!(!name.exists() || fs::read_to_string(&name).unwrap() == format!("content {n}"));
    }
    space.down_and_check();
}

/// Regression: both were passed over; and the files of a pool that was said to be a null one were dropped.
#[test]
fn a_pool_is_rebuilt_as_what_it_is() {
    let mut space = two();
    fill(&space, 0, 4);
    space.down();
    let pools = space.pools.clone();
    for (wrong, text) in [("kind=null", "leave it out"), ("layout=mirror", "its layout is sparse")] {
        run(&mut space, "other", &[pools[0].clone(), format!("{},{wrong}", pools[1])], &[]).refused(text);
        assert!(!space.ground.join("other").exists());
    }
    space.check();
}
