//! What an ordinary user's own mount is.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::process::{Command, Stdio};
use std::time::Duration;
use ullage_mount_tests::ground::Ground;
use ullage_mount_tests::process;
use ullage_mount_tests::run::{Outcome, by_user, eventually, run, ullage};
use ullage_mount_tests::space::Space;
use ullage_mount_tests::watchdog::is_mounted;

const NOBODY: u32 = 65534;
/// Who runs nothing else.
const GAMES: u32 = 5;
/// Nor does this one.
const NEWS: u32 = 9;

fn nobody(words: &[&std::ffi::OsStr]) -> Outcome {
    by_user(NOBODY, words)
}

/// A space whose directories are that user's, not yet up.
fn of_nobody(ground: Ground) -> Space {
    of_user(ground, NOBODY)
}

/// `ullage COMMAND` for this space, by nobody.
fn by_nobody(space: &Space, command: &str, more: &[&str]) -> Outcome {
    let binary = ullage_mount_tests::binary::path().as_os_str();
    let own = [binary, command.as_ref(), space.mount.as_os_str(), "--state".as_ref(), space.state.as_os_str()];
    nobody(&own.into_iter().chain(more.iter().map(AsRef::as_ref)).collect::<Vec<_>>())
}

fn of_user(ground: Ground, user: u32) -> Space {
    let disk = ground.directory("disk");
    let space = Space::on(ground, &disk);
    fs::create_dir(&space.mount).unwrap();
    for path in [disk.as_path(), &space.pool(), &space.mount] {
        chown(path, Some(user), Some(user)).unwrap();
    }
    space
}

/// The kernel took root for its owner until somebody looked: touch(1) and a program's chmod(2) were refused after each start.
#[test]
fn who_owns_the_top_directory_changes_it_before_anybody_has_looked_at_it() {
    let mut ground = Ground::new();
    fs::set_permissions(ground.path(), Permissions::from_mode(0o755)).unwrap();
    let disk = ground.ext4("disk", 256);
    let mut space = Space::on(ground, &disk);
    let touch = ["touch", "-d", "2020-01-01T00:00:00Z"].map(std::ffi::OsStr::new);
    for flag in [None, Some("--no-passthrough")] {
        space.flags = flag.map(Into::into).into_iter().collect();
        space.up();
        chown(&space.mount, Some(NOBODY), Some(NOBODY)).unwrap();
        space.down();
        space.up();
        nobody(&[&touch[..], &[space.mount.as_os_str()]].concat()).ok();
        assert_eq!(fs::metadata(&space.mount).unwrap().mtime(), 1_577_836_800);
        space.down_and_check();
    }
}

#[test]
fn an_ordinary_users_mount_is_theirs_alone() {
    let ground = Ground::new();
    fs::set_permissions(ground.path(), Permissions::from_mode(0o755)).unwrap();
    let space = of_nobody(ground);
    let binary = ullage_mount_tests::binary::path();
    let ullage = |words: &[&str]| {
        let mut all = vec![binary.as_os_str(), words[0].as_ref(), space.mount.as_os_str()];
        all.extend(words[1..].iter().map(AsRef::<std::ffi::OsStr>::as_ref));
        nobody(&all)
    };
    let state = space.state.display().to_string();
    ullage(&["up", "--state", &state, "--pool", &space.pools[0]]).ok();
    let script = "cd \"$1\" && mkdir d && echo content > d/file && ln d/file d/name && cat d/name";
    let shell = |script: &str| {
        let words = ["sh", "-c", script, "sh"];
        let mut all: Vec<&std::ffi::OsStr> = words.iter().map(AsRef::as_ref).collect();
        all.push(space.mount.as_os_str());
        nobody(&all)
    };
    assert_eq!(shell(script).ok(), "content\n");
    // Not even root's.
    let refused = fs::metadata(space.path("d/file")).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
    let backing = fs::read_dir(space.pool()).unwrap().flatten().next().unwrap();
    assert_eq!(backing.metadata().unwrap().uid(), NOBODY);
    assert_eq!(shell("stat -c %W \"$1/d/file\"").ok().trim().trim_start_matches('-'), "0", "no birth time");
    let status = ullage(&["status", "--json"]).json();
    assert_eq!(status["passthrough"], false, "{status}");
    ullage(&["down"]).ok();
    eventually("the mount is gone", Duration::from_secs(5), || !is_mounted(&space.mount));
    let check =
        [binary.as_os_str(), "check".as_ref(), space.mount.as_os_str(), "--state".as_ref(), space.state.as_os_str()];
    nobody(&check).ok();
}

/// Regression: a file that its owner may not write, as every repository of git has, refused the whole import.
#[test]
fn an_ordinary_user_imports_what_he_may_not_write_himself() {
    let ground = Ground::new();
    fs::set_permissions(ground.path(), Permissions::from_mode(0o755)).unwrap();
    let space = of_nobody(ground);
    let binary = ullage_mount_tests::binary::path().display();
    let script = format!(
        "cd \"$3\" && mkdir -p objects closed && echo sealed > objects/one && echo secret > two && echo in > closed/three &&
        chmod 444 objects/one && chmod 0 two && chmod 555 objects closed || exit
        '{binary}' up \"$1\" --state \"$2\" --pool main=\"$3\",layout=mirror --import >&2 || exit
        cd \"$1\" && stat -c '%a %s' objects objects/one two closed/three && cat objects/one && echo more 2>/dev/null >>objects/one
        rm -f two && chmod u+w closed && echo new > closed/four && cat closed/three closed/four"
    );
    let pool = space.pool();
    let words = ["sh", "-c", &script, "sh"].into_iter().map(AsRef::as_ref);
    let places = [space.mount.as_os_str(), space.state.as_os_str(), pool.as_os_str()];
    let told = nobody(&words.chain(places).collect::<Vec<_>>());
    let modes = told.ok();
    let kept = modes.lines().map(|line| line.split(' ').next().unwrap_or_default()).take(4).collect::<Vec<_>>();
    assert_eq!(kept, ["555", "444", "0", "644"], "{modes}");
    assert!(modes.ends_with("sealed\nin\nnew\n"), "{modes}");
    by_nobody(&space, "down", &[]).ok();
    by_nobody(&space, "check", &[]).ok();
}

/// What was lent to an import that was refused stayed, and was taken for what there had been by the next one; and an ACL was read after that.
#[test]
fn an_import_of_an_ordinary_user_that_is_refused_leaves_permissions_as_they_were() {
    let ground = Ground::new();
    fs::set_permissions(ground.path(), Permissions::from_mode(0o755)).unwrap();
    let mut space = of_nobody(ground);
    let pool = space.pool();
    space.pools = vec![format!("main={},layout=mirror", pool.display())];
    let script = "cd \"$1\" && mkdir -p a/sealed a/closed && echo in > a/sealed/one && echo in > a/closed/two && echo in > a/three &&
        setfacl -m u:1234:r a/three && chmod 444 a/sealed/one a/three && chmod 555 a/sealed && chmod 111 a/closed && chmod 555 a";
    nobody(&["sh".as_ref(), "-c".as_ref(), script.as_ref(), "sh".as_ref(), pool.as_os_str()]).ok();
    let foreign = pool.join("a/sealed/of-root");
    fs::write(&foreign, "root's").unwrap();
    fs::set_permissions(&foreign, Permissions::from_mode(0o400)).unwrap();
    let binary = ullage_mount_tests::binary::path();
    let up = || {
        let import = (!space.state.join("space.toml").exists()).then(|| "--import".into());
        let words: Vec<_> = space.up_arguments().into_iter().chain(import).collect();
        nobody(&[binary.as_os_str()].into_iter().chain(words.iter().map(AsRef::as_ref)).collect::<Vec<_>>())
    };
    let modes = || {
        let names = ["a", "a/sealed", "a/sealed/one", "a/closed", "a/closed/two", "a/three"];
        names.map(|name| format!("{:o}", pool.join(name).metadata().unwrap().mode() & 0o7777))
    };
    let before = ["555", "555", "444", "111", "644", "444"];
    for _ in 0..2 {
        up().refused("of-root");
        assert_eq!(modes(), before);
    }
    chown(&foreign, Some(NOBODY), Some(NOBODY)).unwrap();
    up().ok();
    let told = "cd \"$1\" && stat -c %a a a/sealed a/sealed/one a/closed a/closed/two a/three && getfacl -c a/three";
    let told = nobody(&["sh".as_ref(), "-c".as_ref(), told.as_ref(), "sh".as_ref(), space.mount.as_os_str()]).ok();
    assert_eq!(told.lines().take(6).collect::<Vec<_>>(), before, "{told}");
    assert!(told.contains("user::r--\n") && told.contains("user:1234:r--\n"), "{told}");
    let down =
        [binary.as_os_str(), "down".as_ref(), space.mount.as_os_str(), "--state".as_ref(), space.state.as_os_str()];
    nobody(&down).ok();
}

/// Regression: a directory that its owner may list and not enter refused the whole import, at once and after one that was refused; and what he may
/// not read refused every later start.
#[test]
fn an_ordinary_users_import_that_was_refused_goes_on_over_what_is_closed_to_himself() {
    let ground = Ground::new();
    fs::set_permissions(ground.path(), Permissions::from_mode(0o755)).unwrap();
    let mut space = of_nobody(ground);
    let trees = [space.pool(), space.pool().with_file_name("other")];
    fs::create_dir(&trees[1]).unwrap();
    chown(&trees[1], Some(NOBODY), Some(NOBODY)).unwrap();
    space.pools = ["main", "other"]
        .iter()
        .zip(&trees)
        .map(|(name, tree)| format!("{name}={},layout=mirror", tree.display()))
        .collect();
    let run = |script: &str| {
        let words = ["sh", "-c", script, "sh"].into_iter().map(AsRef::as_ref);
        let places = trees.iter().map(|tree| tree.as_os_str()).chain([space.mount.as_os_str()]);
        nobody(&words.chain(places).collect::<Vec<_>>())
    };
    run("cd \"$1\" && for mode in 600 400 300 0; do mkdir dir-$mode && echo in >dir-$mode/file && chmod $mode dir-$mode || exit; done &&
        mkdir later && echo in >later/file && for mode in 400 200 0; do echo in >file-$mode && chmod $mode file-$mode || exit; done &&
        echo 1 >both && echo 2 >\"$2/both\"").ok();
    let binary = ullage_mount_tests::binary::path();
    let up = || {
        let import = (!space.state.join("space.toml").exists()).then(|| "--import".into());
        let words: Vec<_> = space.up_arguments().into_iter().chain(import).collect();
        nobody(&[binary.as_os_str()].into_iter().chain(words.iter().map(AsRef::as_ref)).collect::<Vec<_>>())
    };
    up().refused("both has the name of something else");
    run("mv \"$2/both\" \"$2/renamed\" && chmod 600 \"$1/later\"").ok();
    up().ok();
    let told = run("cd \"$3\" && stat -c %a dir-* later file-* && chmod -R u+rwX . && cat */file file-*").ok();
    let expected = "0\n300\n400\n600\n600\n0\n200\n400\n".to_owned() + &"in\n".repeat(8);
    assert_eq!(told, expected);
    by_nobody(&space, "down", &[]).ok();
    by_nobody(&space, "check", &[]).ok();
}

/// Containers of theirs have it so: mode and capabilities went with the owner, which an overlay gives a file last.
#[test]
fn an_ordinary_users_overlay_copies_programs_up_as_they_are() {
    let ground = Ground::new();
    fs::set_permissions(ground.path(), Permissions::from_mode(0o755)).unwrap();
    let space = of_nobody(ground);
    let binary = ullage_mount_tests::binary::path().display();
    let script = format!(
        "'{binary}' up \"$1\" --state \"$2\" --pool \"$3\" >&2 || exit
        unshare -Urm sh -c '
            cd \"$1\" && mkdir below above work point && cd below && echo x | tee touched moved >given && chmod 6755 * &&
            setcap cap_net_raw+ep touched && setcap cap_net_raw+ep moved && setcap cap_net_raw+ep given && cd .. &&
            mount -t overlay o -o lowerdir=below,upperdir=above,workdir=work,userxattr point && cd point &&
            touch touched && mv moved there && chown 0:0 given && stat -c %a touched there given && getcap *
        ' sh \"$1\"
        '{binary}' down \"$1\" >&2"
    );
    let words: Vec<std::ffi::OsString> = ["sh", "-c", &script, "sh"].map(Into::into).into();
    let paths = [space.mount.clone().into(), space.state.clone().into(), space.pools[0].clone().into()];
    let words: Vec<_> = words.into_iter().chain(paths).collect();
    let told = nobody(&words.iter().map(std::ffi::OsString::as_os_str).collect::<Vec<_>>());
    assert_eq!(told.out, "6755\n6755\n755\nthere cap_net_raw=ep\ntouched cap_net_raw=ep\n", "{}", told.err);
}

/// Only the helper may unmount for them; it was not asked to do so lazily, and a signal to a space in use was forgotten.
#[test]
fn an_ordinary_users_space_that_is_in_use_goes_lazily_and_by_a_signal() {
    let ground = Ground::new();
    let space = of_nobody(ground);
    let ullage = |words: &[&str]| by_nobody(&space, words[0], &words[1..]);
    for signal in [false, true] {
        let first = ["up", "--pool", &space.pools[0]];
        ullage(if signal { &first[..1] } else { &first }).ok();
        let pid = ullage(&["status", "--json"]).json()["pid"].as_u64().unwrap() as u32;
        let mut user = Command::new("setpriv");
        user.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c"]);
        user.arg("exec 3>$0/file; echo; exec head -c 1 >&3").arg(&space.mount);
        let mut user = user.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        std::io::Read::read_exact(user.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        if signal {
            process::signal(pid, rustix::process::Signal::TERM);
        } else {
            ullage(&["down"]).refused("in use");
            ullage(&["down", "--lazy"]).ok();
        }
        eventually("the mount is gone", Duration::from_secs(10), || !is_mounted(&space.mount));
        assert!(process::runs(pid));
        drop(user.stdin.take());
        user.wait().unwrap();
        process::wait(pid);
    }
}

/// Regression: mount(8) leaves no PATH to who is not root, and a line with `user` in fstab(5) was refused for want of a helper that was there.
#[test]
fn an_ordinary_user_mounts_without_a_path_to_look_in() {
    let ground = Ground::new();
    fs::set_permissions(ground.path(), Permissions::from_mode(0o755)).unwrap();
    let space = of_nobody(ground);
    let own: Vec<std::ffi::OsString> = space.up_arguments();
    let head = ["env", "-u", "PATH"].map(std::ffi::OsStr::new);
    let binary = ullage_mount_tests::binary::path().as_os_str();
    let words = head.into_iter().chain([binary]).chain(own.iter().map(AsRef::as_ref));
    nobody(&words.collect::<Vec<_>>()).ok();
    assert!(is_mounted(&space.mount));
    nobody(&[binary, "down".as_ref(), space.mount.as_os_str()]).ok();
    space.check();
}

/// Regression: what root wrote there root alone could read, and the user was kept out of their own space.
#[test]
fn root_changes_no_space_of_an_ordinary_user_that_is_down() {
    let ground = Ground::new();
    fs::set_permissions(ground.path(), Permissions::from_mode(0o755)).unwrap();
    let space = of_nobody(ground);
    let up = || by_nobody(&space, "up", &["--pool", &space.pools[0]]).ok();
    let down = || by_nobody(&space, "down", &[]).ok();
    up();
    down();
    let more = format!("more={}", space.ground.directory("more").display());
    for flags in [&[][..], &["--foreground".into()]] {
        let words = space.up_arguments().into_iter().chain(flags.iter().cloned());
        ullage(words).refused("belongs to user 65534");
    }
    space.pool_command("add", &[&more]).refused("belongs to user 65534");
    space.pool_command("remove", &["main"]).refused("belongs to user 65534");
    space.try_check(&["--repair"]).refused("belongs to user 65534");
    let other = space.ground.join("other");
    let words = ["rebuild".as_ref(), space.mount.as_os_str(), "--state".as_ref(), other.as_os_str(), "--pool".as_ref()];
    ullage(words.into_iter().chain([space.pools[0].as_ref()])).refused("belongs to user 65534");
    space.check();
    up();
    down();
    // One may have been given to root.
    chown(space.state.join("space.toml"), Some(0), Some(0)).unwrap();
    space.up();
    space.down_and_check();
}

/// Root's check wrote there as root: what it replayed after a kill its user could not read any more, and where the user had put a link it
/// made files for him.
#[test]
fn root_looks_at_a_space_of_an_ordinary_user_as_that_user() {
    let ground = Ground::new();
    fs::set_permissions(ground.path(), Permissions::from_mode(0o755)).unwrap();
    let space = of_nobody(ground);
    by_nobody(&space, "up", &["--pool", &space.pools[0]]).ok();
    by_nobody(&space, "down", &[]).ok();
    let closed = space.ground.directory("closed");
    fs::set_permissions(&closed, Permissions::from_mode(0o700)).unwrap();
    let lock = space.state.join("catalog/lock");
    let (aside, made) = (lock.with_extension("aside"), closed.join("made"));
    nobody(&["mv".as_ref(), lock.as_os_str(), aside.as_os_str()]).ok();
    nobody(&["ln".as_ref(), "-s".as_ref(), made.as_os_str(), lock.as_os_str()]).ok();
    space.try_check(&[]).refused("Permission denied");
    assert!(!made.exists(), "root made a file where its user may not");
    nobody(&["mv".as_ref(), aside.as_os_str(), lock.as_os_str()]).ok();
    space.check();
}

fn gone_is_fine(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// Regression: without settings a state directory counted as root's, whoever had made it. What its user had put links to there root
/// emptied, filled or closed.
#[test]
fn root_makes_no_space_in_a_state_directory_of_an_ordinary_user() {
    let ground = Ground::new();
    let disk = ground.directory("disk");
    let mut space = Space::on(ground, &disk);
    // There is a pool to rebuild from.
    space.up();
    space.down();
    let (pool, more) = (space.pools[0].clone(), space.ground.directory("more"));
    let (kept, theirs) = (space.ground.join("kept"), space.ground.directory("theirs"));
    fs::write(&kept, "content").unwrap();
    fs::set_permissions(&kept, Permissions::from_mode(0o640)).unwrap();
    let names = ["ullage.log", "ballast", "ballast.inodes", "uuid.new", "space.toml.new", "turns.new", "trees-in-step"];
    for name in names {
        symlink(&kept, theirs.join(name)).unwrap();
    }
    chown(&theirs, Some(NOBODY), Some(NOBODY)).unwrap();
    let own = space.ground.directory("own");
    let link = space.ground.join("link");
    symlink(&own, &link).unwrap();
    lchown(&link, Some(NOBODY), Some(NOBODY)).unwrap();
    space.pools = vec![format!("main={}", more.display())];
    let settled = std::mem::replace(&mut space.state, theirs.clone());
    for state in [&theirs, &link] {
        space.state.clone_from(state);
        for flags in [&[][..], &["--foreground".into()]] {
            let words = space.up_arguments().into_iter().chain(flags.iter().cloned());
            ullage(words).refused("belongs to user 65534");
        }
        let words =
            ["rebuild".as_ref(), space.mount.as_os_str(), "--state".as_ref(), state.as_os_str(), "--pool".as_ref()];
        ullage(words.into_iter().chain([pool.as_ref()])).refused("belongs to user 65534");
    }
    let untouched = || {
        assert_eq!(fs::read(&kept).unwrap(), b"content");
        assert_eq!(fs::metadata(&kept).unwrap().mode() & 0o7777, 0o640);
    };
    untouched();
    assert_eq!(fs::read_dir(&theirs).unwrap().count(), names.len());
    assert_eq!(fs::read_dir(&own).unwrap().count() + fs::read_dir(&more).unwrap().count(), 0);
    // Root's own link leads wherever it likes, and what a start of root's made is root's, whoever has the directory by then.
    lchown(&link, Some(0), Some(0)).unwrap();
    space.up();
    space.down();
    for path in [&link, &own] {
        lchown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    space.up();
    space.down_and_check();
    // Nor does a link lead it elsewhere there.
    let aside = space.ground.directory("aside");
    fs::remove_dir_all(own.join("ballast.inodes")).or_else(gone_is_fine).unwrap();
    symlink(&aside, own.join("ballast.inodes")).unwrap();
    for name in ["ullage.log", "ballast", "space.toml.new", "turns.new"] {
        fs::remove_file(own.join(name)).or_else(gone_is_fine).unwrap();
        symlink(&kept, own.join(name)).unwrap();
    }
    space.try_up().refused("ullage.log");
    fs::remove_file(own.join("ullage.log")).unwrap();
    space.up();
    space.down_and_check();
    untouched();
    assert_eq!(fs::read_dir(&aside).unwrap().count(), 0);
    (space.state, space.pools) = (settled, vec![pool]);
    space.up();
    space.down_and_check();
}

/// Seventy-five threads were started at the mount. Where so many cannot be, that was dead at once, and `up` said nothing of it; and
/// their buffers took 165 MiB and more.
#[test]
fn an_ordinary_users_space_takes_little_memory_and_no_more_threads_than_there_may_be() {
    let ground = Ground::new();
    fs::set_permissions(ground.path(), Permissions::from_mode(0o755)).unwrap();
    let space = of_user(ground, GAMES);
    let state = space.state.display().to_string();
    let user = |threads: u32, words: &[&std::ffi::OsStr]| {
        let limit = ["prlimit".to_owned(), format!("--nproc={threads}:{threads}")];
        by_user(GAMES, limit.iter().map(AsRef::as_ref).chain(words.iter().copied()))
    };
    let ullage = |threads: u32, words: &[&str]| {
        let own = [ullage_mount_tests::binary::path().as_os_str(), words[0].as_ref(), space.mount.as_os_str()];
        let more = words[1..].iter().map(AsRef::<std::ffi::OsStr>::as_ref);
        user(threads, &own.into_iter().chain(more).collect::<Vec<_>>())
    };
    let up = |threads| ullage(threads, &["up", "--state", &state, "--pool", &space.pools[0]]);
    up(15).refused("allow this user more processes");
    assert!(!is_mounted(&space.mount));
    let script = "for n in $(seq 100); do echo content > $0/$n && sync $0/$n || exit 1; done; cat $0/*";
    for threads in [22, 30, 1000] {
        up(threads).ok();
        let words = ["sh".as_ref(), "-c".as_ref(), script.as_ref(), space.mount.as_os_str()];
        assert_eq!(user(1000, &words).ok(), "content\n".repeat(100));
        let pid = ullage(1000, &["status", "--json"]).json()["pid"].as_u64().unwrap();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let number = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().parse().unwrap()
        };
        assert!(number("VmRSS:") < 50 << 10, "{} KiB", number("VmRSS:"));
        assert!(number("Threads:") < 40, "{} threads", number("Threads:"));
        ullage(1000, &["down", "--state", &state]).ok();
    }
}

/// Such an `up` changes nothing: once the reason is gone the same command works.
#[test]
fn an_ordinary_user_who_cannot_mount_is_told_why_and_nothing_is_made() {
    let ground = Ground::new();
    fs::set_permissions(ground.path(), Permissions::from_mode(0o755)).unwrap();
    let disk = ground.directory("disk");
    let closed = ground.path().join("fuse");
    let space = Space::on(ground, &disk);
    for path in [disk.as_path(), &space.pool()] {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    fs::create_dir(&space.mount).unwrap();
    chown(&space.mount, Some(NOBODY), Some(NOBODY)).unwrap();
    let state = space.state.display().to_string();
    let made = run(Command::new("mknod").args(["-m", "600"]).arg(&closed).args(["c", "10", "229"]));
    made.ok();
    let script = "$2; PATH=$3 exec /usr/bin/setpriv --reuid=65534 --regid=65534 --clear-groups \"$0\" up \"$1\" --state \"$4\" --pool \"$5\"";
    let up = |before: &str, path: &str| {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script]).arg(ullage_mount_tests::binary::path()).arg(&space.mount);
        run(command.args([before, path, &state, &space.pools[0]]))
    };
    let bind = format!("mount --bind {} /dev/fuse", closed.display());
    let untouched = || assert!(!space.state.exists() && fs::read_dir(space.pool()).unwrap().next().is_none());
    up("true", "/nowhere").refused("fusermount3 is not installed");
    untouched();
    up(&bind, "/usr/bin:/bin").refused("chmod a+rw /dev/fuse");
    untouched();
}

/// It was said to move in the kernel until the first file was opened.
#[test]
fn how_data_moves_in_a_user_namespace_is_said_before_any_file_is_opened() {
    let ground = Ground::new();
    fs::set_permissions(ground.path(), Permissions::from_mode(0o755)).unwrap();
    let space = of_nobody(ground);
    let script = "trap '\"$0\" down \"$1\" --state \"$2\" >&2' EXIT; \"$0\" up \"$1\" --state \"$2\" --pool \"$3\" --transport \"$4\" >&2 &&
        \"$0\" status \"$1\" --state \"$2\" --json";
    for transport in ["device", "fuser"] {
        let own = ["unshare", "-Urm", "sh", "-c", script].map(std::ffi::OsStr::new);
        let paths = [ullage_mount_tests::binary::path().as_os_str(), space.mount.as_os_str(), space.state.as_os_str()];
        let more = [space.pools[0].as_ref(), std::ffi::OsStr::new(transport)];
        let told = nobody(&[&own[..], &paths, &more].concat()).json();
        assert_eq!(told["passthrough"], false, "{transport}");
    }
}

#[test]
fn root_without_the_right_to_mount_is_told_so_and_nothing_is_made() {
    let ground = Ground::new();
    let disk = ground.directory("disk");
    let space = Space::on(ground, &disk);
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]).arg(ullage_mount_tests::binary::path());
    command.arg("up").arg(&space.mount).arg("--state").arg(&space.state).args(["--pool", &space.pools[0]]);
    run(&mut command).refused("CAP_SYS_ADMIN");
    assert!(!space.state.exists() && !space.mount.exists() && fs::read_dir(space.pool()).unwrap().next().is_none());
}

/// The signal was forgotten, and the daemon went on for ever; whoever asked it something was told that it had ended.
#[test]
fn an_ordinary_users_space_that_can_start_nothing_says_so_and_ends_by_a_signal_once_it_can() {
    let ground = Ground::new();
    fs::set_permissions(ground.path(), Permissions::from_mode(0o755)).unwrap();
    let space = of_nobody(ground);
    let state = space.state.display().to_string();
    let ullage = |words: &[&str]| {
        let own = [ullage_mount_tests::binary::path().as_os_str(), words[0].as_ref(), space.mount.as_os_str()];
        let more =
            ["--state", &state].into_iter().chain(words[1..].iter().copied()).map(AsRef::<std::ffi::OsStr>::as_ref);
        nobody(&own.into_iter().chain(more).collect::<Vec<_>>())
    };
    ullage(&["up", "--pool", &space.pools[0]]).ok();
    let pid = ullage(&["status", "--json"]).json()["pid"].as_u64().unwrap() as u32;
    let processes = |most: &str| {
        let words = ["prlimit", "--pid", &pid.to_string(), &format!("--nproc={most}")];
        nobody(&words.map(AsRef::<std::ffi::OsStr>::as_ref)).ok();
    };
    processes("1:");
    ullage(&["status"]).refused("can start no thread");
    process::signal(pid, rustix::process::Signal::TERM);
    std::thread::sleep(Duration::from_secs(1));
    assert!(is_mounted(&space.mount) && process::runs(pid));
    processes("1000:");
    process::wait(pid);
    assert!(!is_mounted(&space.mount));
}

/// Regression: it was refused, and the next start emptied the pool all the same, and took it out of the space.
#[test]
fn a_pool_that_could_not_be_begun_to_be_emptied_stays_as_it_is() {
    let ground = Ground::new();
    fs::set_permissions(ground.path(), Permissions::from_mode(0o755)).unwrap();
    let mut space = of_user(ground, NEWS);
    space.add_beside();
    for path in [space.state.parent().unwrap(), &space.pool().with_file_name("beside")] {
        chown(path, Some(NEWS), Some(NEWS)).unwrap();
    }
    let up = std::iter::once(ullage_mount_tests::binary::path().as_os_str().to_owned()).chain(space.up_arguments());
    by_user(NEWS, up).ok();
    let pid = space.pid().to_string();
    let processes = |most: &str| by_user(NEWS, ["prlimit", "--pid", &pid, &format!("--nproc={most}")]).ok();
    // Those that there are, one that answers, and none beside it.
    let refusal = (2..60)
        .map(|most| {
            processes(&format!("{most}:"));
            space.pool_command("remove", &["beside"])
        })
        .find(|outcome| !outcome.err.contains("no thread to answer this"));
    refusal.unwrap().refused("cannot start a thread that empties");
    let settings = fs::read_to_string(space.state.join("space.toml")).unwrap();
    processes("1000:");
    space.down();
    assert!(!settings.contains("draining"), "{settings}");
}
