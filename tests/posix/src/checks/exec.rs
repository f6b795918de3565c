//! Programs that run from the file system.

use crate::check::*;
use crate::sys;

checks!("exec": program_and_script, set_uid_works, shared_library_style_mapping, shell_redirections);

fn program_and_script(p: &Place) -> Outcome {
    std::fs::copy("/bin/echo", p.at("echo"))?;
    sys::chmod(p.at("echo"), 0o755)?;
    let output = std::process::Command::new(p.at("echo")).arg("from the mount").output()?;
    equal(String::from_utf8_lossy(&output.stdout).as_ref(), "from the mount\n")?;
    p.file("script", b"#!/bin/sh\necho $((6 * 7))\n")?;
    sys::chmod(p.at("script"), 0o755)?;
    let output = std::process::Command::new(p.at("script")).output()?;
    equal(String::from_utf8_lossy(&output.stdout).as_ref(), "42\n")
}

fn set_uid_works(p: &Place) -> Outcome {
    std::fs::copy("/usr/bin/id", p.at("id"))?;
    sys::chown(p.at("id"), BOB.uid, BOB.gid)?;
    sys::chmod(p.at("id"), 0o6755)?;
    let output = as_user(ALICE, || Ok(std::process::Command::new(p.at("id")).arg("-u").output()?))?;
    let got = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if got == ALICE.uid.to_string() && std::fs::read_to_string("/proc/self/mounts")?.contains("nosuid") {
        return Err(Failure::Skipped("perhaps mounted nosuid".to_owned()));
    }
    equal(got, BOB.uid.to_string())
}

fn shared_library_style_mapping(p: &Place) -> Outcome {
    // A private mapping shows the file, and changes to it stay private.
    let fd = sys::open(p.file("lib", &[b'L'; 10_000])?, libc::O_RDONLY, 0)?;
    let mut map = crate::map::Map::new(&fd, 10_000, true, false)?;
    map.set(4096, b"private");
    equal(map.get(4095, 8), b"Lprivate".to_vec())?;
    ensure(content(p.at("lib"))? == vec![b'L'; 10_000], "the file is untouched")
}

fn shell_redirections(p: &Place) -> Outcome {
    sys::chdir(&p.0)?;
    let script = "set -e; seq 1 1000 > a; sort -rn a > b; tail -1 b > c; cat a b | wc -l >> c; cp -a a d; cmp a d; \
                  mv d e; ln -s e f; cat f | head -1 >> c; rm e; tar cf t.tar a b c; mkdir x; tar xf t.tar -C x; cmp x/b b";
    let output = std::process::Command::new("/bin/sh").args(["-c", script]).output()?;
    ensure(output.status.success(), &String::from_utf8_lossy(&output.stderr))?;
    equal(String::from_utf8_lossy(&content("c")?).split_whitespace().collect::<Vec<_>>(), vec!["1", "2000", "1"])
}
