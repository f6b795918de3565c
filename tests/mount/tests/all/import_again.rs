//! `up --import`: what changes while an import is refused, or goes on.

use std::fs::{self, File};
use std::io::Write;
use std::process::Command;
use std::time::Duration;
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::run::{eventually, run, ullage};
use ullage_mount_tests::space::Space;

/// A space of pools to be imported.
fn bed(names: &[&str]) -> Space {
    let mut ground = Ground::new();
    let disk = ground.ext4("disk", 256);
    let mut space = Space::on(ground, &disk);
    space.flags = vec!["--import".into()];
    let pool = |name: &&str| {
        fs::create_dir(disk.join(name)).unwrap();
        format!("{name}={},layout=mirror", disk.join(name).display())
    };
    space.pools = names.iter().map(pool).collect();
    space
}

fn append(file: &mut File, text: &str) {
    file.write_all(text.as_bytes()).unwrap();
}

/// Regression: two refusals cleared the mark of what had been taken in, so it kept the length that it had then, and what was appended
/// to it in the space took the place of what was written since.
#[test]
fn what_is_written_between_refusals_of_an_import_is_measured() {
    let mut space = bed(&["p", "q"]);
    let [p, q] = ["p", "q"].map(|name| space.state.with_file_name(name));
    for name in ["x", "y"] {
        fs::write(p.join(name), "of p").unwrap();
        fs::write(q.join(name), "of q").unwrap();
    }
    let log = p.join("log");
    fs::write(&log, "first\n").unwrap();
    let mut whole = "first\n".to_owned();
    for _ in 0..2 {
        let outcome = space.try_up();
        space.flags = vec!["--no-passthrough".into()];
        let met = ["x", "y"].into_iter().find(|name| outcome.err.contains(&q.join(name).display().to_string()));
        outcome.refused("another pool");
        let met = q.join(met.unwrap());
        fs::rename(&met, met.with_extension("of-q")).unwrap();
        append(File::options().append(true).open(&log).as_mut().unwrap(), "after a refusal\n");
        whole.push_str("after a refusal\n");
    }
    space.up();
    assert_eq!(fs::read_to_string(space.path("log")).unwrap(), whole);
    append(File::options().append(true).open(space.path("log")).as_mut().unwrap(), "in the space\n");
    whole.push_str("in the space\n");
    for path in [space.path("log"), log] {
        assert_eq!(fs::read_to_string(path).unwrap(), whole);
    }
    space.compare_du(&space.mount);
    space.down_and_check();
}

/// Regression: what a service went on writing, by a descriptor that it had before, was in no length that the space showed.
#[test]
fn what_is_written_by_who_had_a_file_open_before_its_import_is_measured() {
    let mut space = bed(&["main"]);
    let log = space.state.with_file_name("main").join("log");
    fs::write(&log, "first\n").unwrap();
    let mut service = File::options().append(true).open(&log).unwrap();
    space.up();
    space.flags.clear();
    append(&mut service, "after the import\n");
    let length = fs::metadata(&log).unwrap().len();
    eventually("it is measured", Duration::from_secs(30), || fs::metadata(space.path("log")).unwrap().len() == length);
    append(&mut service, "and at last\n");
    drop(service);
    let whole = fs::read_to_string(&log).unwrap();
    eventually("it is measured", Duration::from_secs(30), || fs::read_to_string(space.path("log")).unwrap() == whole);
    space.down_and_check();
    space.up();
    assert_eq!(fs::read_to_string(space.path("log")).unwrap(), whole);
    space.down_and_check();
}

/// Regression: what xfs keeps an ACL as came in beside it, as an attribute that nothing ever changed.
#[test]
fn an_acl_is_taken_in_from_xfs_once() {
    let mut ground = Ground::new();
    let disk = ground.xfs("disk", 512);
    let mut space = Space::on(ground, &disk);
    space.pools = vec![format!("main={},layout=mirror", space.pool().display())];
    space.flags = vec!["--import".into()];
    fs::create_dir(space.pool().join("dir")).unwrap();
    for flags in ["-m", "-dm"] {
        run(Command::new("setfacl").args([flags, "u:1234:rw"]).arg(space.pool().join("dir"))).ok();
    }
    space.up();
    space.flags.clear();
    let mut names = [0u8; 4096];
    let length = rustix::fs::listxattr(space.path("dir"), &mut names[..]).unwrap();
    let told = String::from_utf8_lossy(&names[..length]);
    assert!(told.contains("system.posix_acl_default") && !told.contains("SGI_ACL"), "{told}");
    space.down_and_check();
}

/// Regression: it was refused without a word of which file it was.
#[test]
fn what_has_more_names_than_a_file_of_a_space_can_have_is_told() {
    let mut ground = Ground::new();
    let disk = ground.xfs("disk", 512);
    let mut space = Space::on(ground, &disk);
    space.pools = vec![format!("main={},layout=mirror", space.pool().display())];
    space.flags = vec!["--import".into()];
    fs::write(space.pool().join("first"), "content").unwrap();
    for n in 0..65_010 {
        fs::hard_link(space.pool().join("first"), space.pool().join(format!("name-{n}"))).unwrap();
    }
    let said = ullage(space.up_arguments());
    assert!(said.err.contains(&space.pool().display().to_string()), "{}", said.err);
    said.refused("remove some of its names");
}
