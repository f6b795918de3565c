//! `ullage memory` on other kernels, booted under QEMU: Debian's, with cgroup v2 and MGLRU (`make tools` unpacks it below
//! `target/vm`), and one with the idle-page bitmap (`make idle-kernel` builds it below `target/vm-idle`). Skipped, with a
//! message, where QEMU, busybox, cpio or the kernel cannot be had.

#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Emulation is slow, and other tests run beside it.
const LIMIT_S: &str = "400";

/// The newest kernel below a directory in `target`, with its modules.
fn kernel(directory: &str) -> Option<(PathBuf, PathBuf)> {
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target").join(directory);
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

/// What a machine said, by name.
struct Told {
    console: String,
    said: HashMap<String, String>,
}

impl Told {
    #[track_caller]
    fn said(&self, name: &str) -> &str {
        self.said.get(name).unwrap_or_else(|| panic!("nothing was said of {name}:\n{}", self.console))
    }

    #[track_caller]
    fn json(&self, name: &str) -> serde_json::Value {
        serde_json::from_str(self.said(name)).unwrap()
    }
}

/// Boots a kernel and runs the scripts. `words` become variables of the first process. `None` where it cannot be done.
fn boot(directory: &str, made_by: &str, words: &str) -> Option<Told> {
    let Some((image, modules)) = kernel(directory) else {
        eprintln!("skipped: there is no kernel below target/{directory} (`make {made_by}`)");
        return None;
    };
    for program in ["qemu-system-x86_64", "busybox", "cpio", "setpriv"] {
        if !has(program) {
            eprintln!("skipped: {program} is missing (`make tools` installs it)");
            return None;
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let initrd = pack(&dir.path().join("root"), &modules);
    let machine = Command::new("timeout")
        .args([LIMIT_S, "qemu-system-x86_64", "-nographic", "-no-reboot", "-m", "768", "-smp", "2", "-kernel"])
        .arg(image)
        .arg("-initrd")
        .arg(initrd)
        .args(["-append", &format!("console=ttyS0 panic=-1 quiet {words}")])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let console = String::from_utf8_lossy(&machine.stdout).replace('\r', "");
    let said = console
        .lines()
        .filter_map(|line| line.split_once("@@").map(|(_, said)| said.split_once(' ').unwrap_or((said, ""))))
        .map(|(name, said)| (name.to_owned(), said.trim().to_owned()))
        .collect();
    let told = Told { console, said };
    told.said("end");
    Some(told)
}

/// A user of 57 MiB in a box of 256 MiB went away, and came back beside a hog.
fn lent_and_taken_back(told: &Told, sampler: &str) {
    let away = told.json("away");
    assert_eq!((away["backend"].as_str(), away["sampler"].as_str()), (Some("cgroup v2"), Some(sampler)));
    let lent = away["report"]["picture"]["contributed"].as_u64().unwrap() * 4096;
    let oracle = (256 << 20) - 60_000_000;
    assert!(lent as f64 >= 0.85 * f64::from(oracle), "{lent} of {oracle} bytes were lent: {}", away["report"]);
    assert!(
        away["evicted"].as_u64().unwrap() * 4096 > 20 << 20,
        "what was touched once was evicted: {}",
        away["report"]
    );
    let faults: u64 = told.said("faults").parse().unwrap();
    // Emulated clocks jump and periods are of three seconds: some are evicted in vain. Chosen blindly it would be three
    // quarters of the 14,648 pages (regression: each sample aged the generations, and soon all were the oldest).
    let console = &told.console;
    assert!(faults < 1_500, "{faults} faults on coming back\n{console}");
    assert!(told.said("operations").parse::<u64>().unwrap() > 20, "the user worked again\n{console}");
    assert_eq!((told.said("ended"), told.said("left"), told.said("high")), ("0", "", "max"), "nothing is left behind");
}

#[test]
fn memory_is_lent_and_taken_back_with_the_idle_page_bitmap() {
    // Under emulation a sample takes a second, and a period must have a few.
    let words = "SAMPLER=idle-bitmap SCRIPTS=1-away SPEED=6 WORK=70";
    if let Some(told) = boot("vm-idle", "idle-kernel", words) {
        lent_and_taken_back(&told, "idle-page bitmap");
    }
}

#[test]
fn memory_is_lent_and_taken_back_on_cgroup_v2_with_generations() {
    let Some(told) = boot("vm", "tools", "") else { return };
    lent_and_taken_back(&told, "MGLRU (debugfs lru_gen)");
    let (said, json, console) = (|name: &str| told.said(name), |name: &str| told.json(name), &told.console);
    assert!(said("marked").contains("/killed/ullage.contributed"), "{console}");
    assert_eq!(said("killed-left"), "", "a killed controller's groups go");
    assert!(!said("sleeper").contains("ullage") && said("sleeper").contains("sleeping"), "{}", said("sleeper"));

    assert!(said("user-group").ends_with("/delegated/ullage.contributed"), "{}", said("user-group"));
    assert_eq!(json("user")["backend"], "cgroup v2");
    assert_eq!((said("user-code"), said("user-left")), ("7", ""));
    assert!(said("undelegated").contains("no part of the hierarchy is delegated to you"), "{}", said("undelegated"));
}
