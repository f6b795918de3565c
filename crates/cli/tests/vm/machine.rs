//! A machine under QEMU: Debian's kernel or another, this program, busybox, and scripts that say what they found. The tests of mounts
//! use it too.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// From any package of the workspace.
const SCRIPTS: &str = "../../crates/cli/tests/vm";
/// Emulation is slow, and other tests run beside it.
const LIMIT_S: &str = "400";

/// The newest kernel below a directory in `target`, with its modules.
fn kernel(directory: &str) -> Option<(PathBuf, PathBuf)> {
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target").join(directory);
    let boot = fs::read_dir(unpacked.join("boot")).ok()?;
    let image =
        boot.flatten().map(|entry| entry.path()).filter(|path| path.to_string_lossy().contains("vmlinuz")).max()?;
    let version = image.file_name()?.to_str()?.strip_prefix("vmlinuz-")?.to_owned();
    // Packages of Debian 13 and later have their modules below `usr`.
    let modules = ["lib/modules", "usr/lib/modules"].map(|place| unpacked.join(place).join(&version).join("kernel"));
    Some((image, modules.into_iter().find(|path| path.exists())?))
}

fn has(program: &str) -> bool {
    Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status().unwrap().success()
}

#[track_caller]
fn shell(script: &str, arguments: &[&Path]) {
    let status = Command::new("sh").args(["-ec", script, "sh"]).args(arguments).status().unwrap();
    assert!(status.success(), "{script}");
}

/// What a machine has beside busybox.
pub struct Parts<'a> {
    /// Programs, each with its name in `/bin`; their libraries come with them.
    pub programs: &'a [(&'a str, &'a Path)],
    /// Kernel modules, in this order, as far as the kernel does not have them built in.
    pub modules: &'a str,
}

/// The first file system: programs with their libraries, busybox, modules, scripts.
fn pack(root: &Path, modules: &Path, parts: &Parts<'_>) -> PathBuf {
    for directory in ["bin", "proc", "sys", "dev", "tmp", "run", "lib/modules", "scripts"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join(SCRIPTS);
    for (name, program) in parts.programs {
        shell(r#"strip -o "$1" "$2" 2>/dev/null || cp -L "$2" "$1""#, &[&root.join("bin").join(name), program]);
    }
    fs::write(root.join("modules"), parts.modules).unwrap();
    shell(
        r#"
        cp "$2/init" "$1/init"; chmod 755 "$1/init"; cp -r "$2"/*/ "$1/scripts/"
        cp "$(command -v busybox)" "$1/bin/busybox"
        place=100 # As many digits in each name: that is their order.
        for module in $(cat "$1/modules"); do
            place=$((place + 1))
            found=$(find "$3" -name $module.ko -o -name $module.ko.xz)
            case "$found" in
                '') ;; # Built into this kernel.
                *.xz) xz -dc "$found" > "$1/lib/modules/$place-$module.ko" ;;
                *) cp "$found" "$1/lib/modules/$place-$module.ko" ;;
            esac
        done
        for library in $(ldd "$1"/bin/* 2>/dev/null | grep -oE '/[^ :]+' | sort -u); do
            case "$library" in "$1"/*) continue ;; esac
            mkdir -p "$1$(dirname "$library")"; cp -L "$library" "$1$library"
        done
        cd "$1"; find . | cpio -o -H newc --quiet | gzip -1 > "$1.gz"
        "#,
        &[root, &scripts, modules],
    );
    root.with_extension("gz")
}

/// What a machine said, by name.
pub struct Told {
    pub console: String,
    said: HashMap<String, String>,
}

impl Told {
    #[track_caller]
    pub fn said(&self, name: &str) -> &str {
        self.said.get(name).unwrap_or_else(|| panic!("nothing was said of {name}:\n{}", self.console))
    }

    #[allow(dead_code, reason = "not by all who use this")]
    #[track_caller]
    pub fn json(&self, name: &str) -> serde_json::Value {
        serde_json::from_str(self.said(name)).unwrap()
    }
}

/// Boots a kernel and runs the scripts. `words` become variables of the first process. `None` where it cannot be done.
pub fn boot(directory: &str, made_by: &str, words: &str, parts: &Parts<'_>) -> Option<Told> {
    let Some((image, modules)) = kernel(directory) else {
        eprintln!("skipped: there is no kernel below target/{directory} (`make {made_by}`)");
        return None;
    };
    for program in ["qemu-system-x86_64", "busybox", "cpio", "xz"] {
        if !has(program) {
            eprintln!("skipped: {program} is missing (`make tools` installs it)");
            return None;
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let initrd = pack(&dir.path().join("root"), &modules, parts);
    let mut told = run(&image, &initrd, words);
    if told.said.is_empty() && told.console.contains("Oops: int3") {
        // While a kernel that boots changes its own code, the emulator may run what is half changed.
        eprintln!("the emulated kernel died while it booted: once more");
        told = run(&image, &initrd, words);
    }
    told.said("end");
    Some(told)
}

fn run(image: &Path, initrd: &Path, words: &str) -> Told {
    let machine = Command::new("timeout")
        .args([
            LIMIT_S,
            "qemu-system-x86_64",
            "-nographic",
            "-no-reboot",
            "-m",
            "768",
            "-smp",
            "2,maxcpus=4",
            "-kernel",
        ])
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
    Told { console, said }
}
