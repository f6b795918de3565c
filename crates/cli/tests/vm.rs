//! `ullage memory` on a kernel with cgroup v2 and MGLRU: Debian's, booted under QEMU. Skipped, with a message, where QEMU,
//! busybox, cpio or the kernel (`make tools` unpacks it below `target/vm`) cannot be had.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Emulation is slow, and other tests run beside it.
const LIMIT_S: &str = "400";

/// The newest kernel below `target/vm`, with its modules.
fn kernel() -> Option<(PathBuf, PathBuf)> {
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/vm");
    let boot = fs::read_dir(unpacked.join("boot")).ok()?;
    let image =
        boot.flatten().map(|entry| entry.path()).filter(|path| path.to_string_lossy().contains("vmlinuz")).max()?;
    let version = image.file_name()?.to_str()?.strip_prefix("vmlinuz-")?.to_owned();
    Some((image, unpacked.join("lib/modules").join(version).join("kernel")))
}

fn has(program: &str) -> bool {
    Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status().unwrap().success()
}

#[track_caller]
fn shell(script: &str, arguments: &[&Path]) {
    let status = Command::new("sh").args(["-ec", script, "sh"]).args(arguments).status().unwrap();
    assert!(status.success(), "{script}");
}

/// The first file system: the program with its libraries, busybox, modules, scripts.
fn pack(root: &Path, modules: &Path) -> PathBuf {
    for directory in ["bin", "proc", "sys", "dev", "tmp", "run", "lib/modules", "scripts"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vm");
    let program = Path::new(env!("CARGO_BIN_EXE_ullage"));
    shell(
        r#"
        cp "$2/init" "$1/init"; chmod 755 "$1/init"; cp "$2"/*.sh "$1/scripts/"
        cp "$(command -v busybox)" "$1/bin/busybox"
        cp "$(command -v setpriv)" "$1/bin/setpriv.real"
        strip -o "$1/bin/ullage" "$3" 2>/dev/null || cp "$3" "$1/bin/ullage"
        for module in zsmalloc zram; do cp "$(find "$4" -name $module.ko)" "$1/lib/modules/"; done
        for library in $(ldd "$1/bin/ullage" "$1/bin/setpriv.real" | grep -oE '/[^ :]+' | sort -u); do
            case "$library" in "$1"/*) continue ;; esac
            mkdir -p "$1$(dirname "$library")"; cp -L "$library" "$1$library"
        done
        cd "$1"; find . | cpio -o -H newc --quiet | gzip -1 > "$1.gz"
        "#,
        &[root, &scripts, program, modules],
    );
    root.with_extension("gz")
}

#[test]
fn memory_is_lent_and_taken_back_on_cgroup_v2_with_generations() {
    let Some((image, modules)) = kernel() else {
        eprintln!("skipped: there is no kernel below target/vm (`make tools` fetches one)");
        return;
    };
    for program in ["qemu-system-x86_64", "busybox", "cpio", "setpriv"] {
        if !has(program) {
            eprintln!("skipped: {program} is missing (`make tools` installs it)");
            return;
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let initrd = pack(&dir.path().join("root"), &modules);
    let machine = Command::new("timeout")
        .args([LIMIT_S, "qemu-system-x86_64", "-nographic", "-no-reboot", "-m", "768", "-smp", "2", "-kernel"])
        .arg(image)
        .arg("-initrd")
        .arg(initrd)
        .args(["-append", "console=ttyS0 panic=-1 quiet"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let console = String::from_utf8_lossy(&machine.stdout).replace('\r', "");
    let told: HashMap<&str, &str> = console
        .lines()
        .filter_map(|line| line.split_once("@@").map(|(_, said)| said.split_once(' ').unwrap_or((said, ""))))
        .collect();
    let said = |name: &str| told.get(name).unwrap_or_else(|| panic!("nothing was said of {name}:\n{console}")).trim();
    let json = |name: &str| serde_json::from_str::<serde_json::Value>(said(name)).unwrap();
    said("end");

    let away = json("away");
    assert_eq!(
        (away["backend"].as_str(), away["sampler"].as_str()),
        (Some("cgroup v2"), Some("MGLRU (debugfs lru_gen)"))
    );
    // All but the working set: 256 MiB less 57.
    let lent = away["report"]["picture"]["contributed"].as_u64().unwrap() * 4096;
    let oracle = (256 << 20) - 60_000_000;
    assert!(lent as f64 >= 0.85 * f64::from(oracle), "{lent} of {oracle} bytes were lent: {}", away["report"]);
    assert!(
        away["evicted"].as_u64().unwrap() * 4096 > 20 << 20,
        "what was touched once was evicted: {}",
        away["report"]
    );
    let faults: u64 = said("faults").parse().unwrap();
    // Emulated clocks jump and periods are of three seconds: some are evicted in vain. Chosen blindly it would be three
    // quarters of the 14,648 pages (regression: each sample aged the generations, and soon all were the oldest).
    assert!(faults < 1_500, "{faults} faults on coming back\n{console}");
    assert!(said("operations").parse::<u64>().unwrap() > 20, "the user worked again\n{console}");
    assert_eq!((said("ended"), said("left"), said("high")), ("0", "", "max"), "nothing is left behind");

    assert!(said("marked").contains("/killed/ullage.contributed"), "{console}");
    assert_eq!(said("killed-left"), "", "a killed controller's groups go");
    assert!(!said("sleeper").contains("ullage") && said("sleeper").contains("sleeping"), "{}", said("sleeper"));

    assert!(said("user-group").ends_with("/delegated/ullage.contributed"), "{}", said("user-group"));
    assert_eq!(json("user")["backend"], "cgroup v2");
    assert_eq!((said("user-code"), said("user-left")), ("7", ""));
    assert!(said("undelegated").contains("no part of the hierarchy is delegated to you"), "{}", said("undelegated"));
}
