//! What a mapping in the kernel is: one of the backing file.

use rustix::fs::{Advice, fadvise};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use ullage_mount_tests::map::Map;
use ullage_mount_tests::run::run;
use ullage_mount_tests::space::Space;
use ullage_posix_tests::check::{User, as_user};

const MIB: usize = 1 << 20;

/// Has what a file holds leave memory.
fn forget(path: &Path) {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
}

/// How many pages of a mapping the kernel says are in memory, to this user.
fn resident(path: &Path, user: u32) -> usize {
    let looks = || {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Map::new(&file, MIB)?.resident()?)
    };
    as_user(User { uid: user, gid: user, groups: &[] }, looks).unwrap()
}

#[test]
fn what_of_a_mapping_is_in_memory_only_root_is_told_in_the_kernel() {
    const GUEST: u32 = 65_201;
    let space = Space::new();
    fs::set_permissions(space.ground.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = space.path("file");
    fs::write(&path, vec![1; MIB]).unwrap();
    std::os::unix::fs::chown(&path, Some(GUEST), None).unwrap();
    let backing = space.backing(&path);
    let told = [0, GUEST].map(|user| {
        forget(&path);
        forget(&backing);
        resident(&path, user)
    });
    assert_eq!(told, if space.uses_passthrough() { [0, MIB / 4096] } else { [0, 0] });
    space.down_and_check();
}

/// Where a program begins, as an offset into its file.
fn entry(program: &Path) -> u64 {
    let file = File::open(program).unwrap();
    let number = |at: u64, bytes: usize| {
        let mut value = [0; 8];
        file.read_exact_at(&mut value[..bytes], at).unwrap();
        u64::from_le_bytes(value)
    };
    let (entry, heads, size, count) = (number(24, 8), number(32, 8), number(54, 2), number(56, 2));
    let within = |head: u64| {
        let (kind, offset, address, length) =
            (number(head, 4), number(head + 8, 8), number(head + 16, 8), number(head + 32, 8));
        (kind == 1 && (address..address + length).contains(&entry)).then(|| entry - address + offset)
    };
    (0..count).find_map(|index| within(heads + index * size)).unwrap()
}

/// How often a program was begun, as a probe there tells; none where this kernel has none.
fn begun_as_probed(program: &Path, name: &str) -> Option<u64> {
    const TRACING: &str = "/sys/kernel/tracing";
    let write = |to: &str, text: &str| {
        OpenOptions::new().append(true).open(format!("{TRACING}/{to}"))?.write_all(text.as_bytes())
    };
    write("uprobe_events", &format!("p:{name} {}:{:#x}\n", program.display(), entry(program))).ok()?;
    let switch = format!("events/uprobes/{name}/enable");
    write(&switch, "1").unwrap();
    run(&mut Command::new(program)).ok();
    let profile = fs::read_to_string(format!("{TRACING}/uprobe_profile")).unwrap();
    write(&switch, "0").unwrap();
    write("uprobe_events", &format!("-:{name}\n")).unwrap();
    let line = profile.lines().find(|line| line.split_whitespace().nth(1) == Some(name)).unwrap();
    line.split_whitespace().nth(2).map(|met| met.parse().unwrap())
}

#[test]
fn a_probe_in_a_program_of_the_space_is_not_met_in_the_kernel() {
    let space = Space::new();
    let native = space.ground.path().join("program");
    let own = space.path("program");
    for program in [&native, &own] {
        fs::copy("/bin/true", program).unwrap();
    }
    let name = |what: &str| format!("ullage_{what}_{}", std::process::id());
    let Some(met) = begun_as_probed(&native, &name("native")) else {
        eprintln!("skipped: this kernel has no probes in programs, or does not show them");
        return;
    };
    assert_eq!(met, 1);
    let met = begun_as_probed(&own, &name("space"));
    assert_eq!(met, Some(u64::from(!space.uses_passthrough())));
    space.down_and_check();
}
