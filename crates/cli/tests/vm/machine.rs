//! A machine under QEMU: Debian's kernel or another, this program, busybox, and scripts that say what they found.

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
        cp "$2/init" "$1/init"; chmod 755 "$1/init"; cp -r "$2/memory" "$2/mount" "$1/scripts/"
        cp "$(command -v busybox)" "$1/bin/busybox"
        cp "$(command -v setpriv)" "$1/bin/setpriv.real"
        strip -o "$1/bin/ullage" "$3" 2>/dev/null || cp "$3" "$1/bin/ullage"
        place=0
        for module in zsmalloc zram fuse; do
            place=$((place + 1))
            found=$(find "$4" -name $module.ko -o -name $module.ko.xz)
            case "$found" in
                '') ;; # Built into this kernel.
                *.xz) xz -dc "$found" > "$1/lib/modules/$place-$module.ko" ;;
                *) cp "$found" "$1/lib/modules/$place-$module.ko" ;;
            esac
        done
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
pub struct Told {
    pub console: String,
    said: HashMap<String, String>,
}

impl Told {
    #[track_caller]
    pub fn said(&self, name: &str) -> &str {
        self.said.get(name).unwrap_or_else(|| panic!("nothing was said of {name}:\n{}", self.console))
    }

    #[track_caller]
    pub fn json(&self, name: &str) -> serde_json::Value {
        serde_json::from_str(self.said(name)).unwrap()
    }
}

/// Boots a kernel and runs the scripts. `words` become variables of the first process. `None` where it cannot be done.
pub fn boot(directory: &str, made_by: &str, words: &str) -> Option<Told> {
    let Some((image, modules)) = kernel(directory) else {
        eprintln!("skipped: there is no kernel below target/{directory} (`make {made_by}`)");
        return None;
    };
    for program in ["qemu-system-x86_64", "busybox", "cpio", "setpriv", "xz"] {
        if !has(program) {
            eprintln!("skipped: {program} is missing (`make tools` installs it)");
            return None;
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let initrd = pack(&dir.path().join("root"), &modules);
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
    let told = Told { console, said };
    told.said("end");
    Some(told)
}
