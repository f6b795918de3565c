//! A space of a test's own.

use crate::ground::Ground;
use crate::run::{Outcome, eventually, ullage};
use crate::watchdog::{Watchdog, end_connection, is_mounted};
use crate::{process, run};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use ullage_posix_tests::random::Random;

/// No test takes longer.
const TEST_LIMIT: Duration = Duration::from_secs(100);

/// A space: up or down. Taken down by force at its end, whatever became of the test.
#[derive(Debug)]
pub struct Space {
    /// Where it is mounted.
    pub mount: PathBuf,
    /// Its state directory.
    pub state: PathBuf,
    /// Its pools, as `NAME=PATH…`.
    pub pools: Vec<String>,
    /// Further flags of `up`.
    pub flags: Vec<OsString>,
    /// Everything it stands on. Last, so that it goes last.
    pub ground: Ground,
    watchdog: Option<Watchdog>,
}

impl Space {
    /// On an ext4 of its own, pool and state both, and up.
    pub fn new() -> Self {
        let mut ground = Ground::new();
        let disk = ground.ext4("disk", 512);
        let space = Self::on(ground, &disk);
        space.up();
        space
    }

    /// In an ordinary temporary directory, and up.
    pub fn plain() -> Self {
        let ground = Ground::new();
        let disk = ground.directory("disk");
        let space = Self::on(ground, &disk);
        space.up();
        space
    }

    /// With state and one pool in a directory of a ground; not yet up.
    pub fn on(ground: Ground, disk: &Path) -> Self {
        let pool = disk.join("pool");
        std::fs::create_dir_all(&pool).expect("a directory can be made");
        let mount = ground.path().canonicalize().expect("it exists").join("mnt");
        // It may have to be built first, which is not of the time a test has.
        crate::binary::path();
        Self {
            watchdog: Some(Watchdog::new(&mount, TEST_LIMIT)),
            mount,
            state: disk.join("state"),
            pools: vec![format!("main={}", pool.display())],
            flags: Vec::new(),
            ground,
        }
    }

    /// Runs `ullage pool` with an action and what else that takes, whether it is up or down.
    #[track_caller]
    pub fn pool_command(&self, action: &str, rest: &[&str]) -> Outcome {
        let head = ["pool".as_ref(), action.as_ref(), self.mount.as_os_str()];
        let state = ["--state".as_ref(), self.state.as_os_str()];
        ullage(head.into_iter().chain(rest.iter().map(AsRef::as_ref)).chain(state))
    }

    /// Gives it a second pool beside the first, before its first use; files are spread over both.
    pub fn add_beside(&mut self) {
        let beside = self.pool().with_file_name("beside");
        std::fs::create_dir_all(&beside).expect("a directory can be made");
        self.pools.push(format!("beside={}", beside.display()));
        self.flags.extend(["--spread".into(), "round-robin".into()]);
    }

    /// Where it has two pools, has one of them emptied from now on, and waits a while.
    #[track_caller]
    pub fn drain_a_while(&self, seed: u64, random: &mut Random) {
        if self.pools.len() > 1 {
            let name = if seed.is_multiple_of(2) { "main" } else { "beside" };
            self.pool_command("remove", &[name, "--no-wait"]).ok();
            std::thread::sleep(Duration::from_millis(random.below(300)));
        }
    }

    /// Where it has two pools, keeps both.
    #[track_caller]
    pub fn keep_pools(&self) {
        if self.pools.len() > 1 {
            for name in ["main", "beside"] {
                self.pool_command("remove", &[name, "--cancel"]).ok();
            }
        }
    }

    /// Its time begins anew, with another limit: for tests of many rounds.
    pub fn limit(&mut self, limit: Duration) {
        self.watchdog = Some(Watchdog::new(&self.mount, limit));
    }

    /// A path in the mount.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.mount.join(name)
    }

    /// The directory of its first pool.
    pub fn pool(&self) -> PathBuf {
        let (_, path) = self.pools[0].split_once('=').expect("NAME=PATH");
        path.split(',').next().unwrap_or_default().into()
    }

    /// Runs `ullage up`.
    pub fn try_up(&self) -> Outcome {
        ullage(self.up_arguments())
    }

    /// The arguments of `ullage up`; the pools are named at the first use only.
    pub fn up_arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["up".into(), self.mount.clone().into()];
        arguments.extend(["--state".into(), self.state.clone().into()]);
        if !self.state.join("space.toml").exists() {
            for pool in &self.pools {
                arguments.extend(["--pool".into(), pool.into()]);
            }
        }
        arguments.extend(self.flags.iter().cloned());
        arguments
    }

    /// Runs `ullage up`, which succeeds.
    #[track_caller]
    pub fn up(&self) {
        self.try_up().ok();
        assert!(is_mounted(&self.mount), "`up` returned before the mount was there");
    }

    /// The daemon's process, as `status` says.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        let status = ullage(["status".as_ref(), self.mount.as_os_str(), "--json".as_ref()]).json();
        status["pid"].as_u64().expect("the status has a pid") as u32
    }

    /// Whether data moves in the kernel, as `status` says.
    #[track_caller]
    pub fn uses_passthrough(&self) -> bool {
        ullage(["status".as_ref(), self.mount.as_os_str(), "--json".as_ref()]).json()["passthrough"] == true
    }

    /// Data moves in the kernel wherever the kernel can do that.
    #[track_caller]
    pub fn assert_passthrough(&self) {
        assert_eq!(self.uses_passthrough(), ullage_posix_tests::sys::kernel() >= (6, 9));
    }

    /// Kills the daemon. The dead mount stays.
    #[track_caller]
    pub fn kill(&self) {
        process::kill(self.pid());
    }

    /// Runs `ullage down`.
    pub fn try_down(&self) -> Outcome {
        ullage(["down".as_ref(), self.mount.as_os_str()])
    }

    /// Runs `ullage down`, which succeeds. A child that is just being started by another test may hold a copy of a
    /// descriptor for a moment.
    #[track_caller]
    pub fn down(&self) {
        let mut last = None;
        for _ in 0..200 {
            let outcome = self.try_down();
            if outcome.code == Some(0) {
                assert!(!is_mounted(&self.mount), "`down` returned before the mount was gone");
                return;
            }
            last = Some(outcome);
            std::thread::sleep(Duration::from_millis(50));
        }
        let holders = run::program("fuser", ["-vm".as_ref(), self.mount.as_os_str()]);
        panic!("{}{}{}", last.map_or_else(String::new, |outcome| outcome.err), holders.out, holders.err);
    }

    /// Runs `ullage check` on the space, which is down; every finding fails the test.
    #[track_caller]
    pub fn check(&self) {
        let outcome = self.try_check(&[]);
        let (text, code) = (format!("{}{}", outcome.out, outcome.err), outcome.code);
        assert_eq!(code, Some(0), "not clean: {text}");
    }

    /// Runs `ullage check --json` with further flags.
    #[track_caller]
    pub fn try_check(&self, flags: &[&str]) -> Outcome {
        let own = ["check".as_ref(), self.mount.as_os_str(), "--state".as_ref(), self.state.as_os_str()];
        ullage(own.into_iter().chain(["--json".as_ref()]).chain(flags.iter().map(AsRef::as_ref)))
    }

    /// Takes it down and checks it.
    #[track_caller]
    pub fn down_and_check(&self) {
        self.down();
        self.check();
    }

    /// What `ullage stat --json` says of a file.
    #[track_caller]
    pub fn stat(&self, path: &Path) -> serde_json::Value {
        let mut answer = ullage(["stat".as_ref(), path.as_os_str(), "--json".as_ref()]).json();
        answer["files"][0]["file"].take()
    }

    /// The backing file of a file.
    #[track_caller]
    pub fn backing(&self, path: &Path) -> PathBuf {
        self.stat(path)["backing"].as_str().expect("it has a backing file").into()
    }

    /// Every name durable, so that what waits for that goes on. By fsync of a directory: the kernel sends syncfs(2) to
    /// virtiofs servers only, never to ours.
    pub fn sync(&self) {
        std::fs::File::open(&self.mount).and_then(|root| root.sync_all()).expect("the mount can be synced");
    }

    /// What `ullage du` says of a directory is what counting says, at the latest after settling.
    #[track_caller]
    pub fn compare_du(&self, directory: &Path) {
        let mut last = (crate::recount::Use::default(), crate::recount::Use::default());
        for _ in 0..250 {
            last = (crate::recount::told(directory), crate::recount::counted(directory));
            if last.0 == last.1 {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("`du` says {:?} of {}, counting says {:?}", last.0, directory.display(), last.1);
    }

    /// What is charged for each file is what it takes in its pool, at the latest after settling.
    #[track_caller]
    pub fn compare_pools(&self) {
        let pool = self.pool();
        let beside = pool.parent().expect("it lies in a directory, as those beside it");
        let mut last = Vec::new();
        for _ in 0..100 {
            last = crate::recount::unlike_pools(&self.mount, beside);
            if last.is_empty() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("what is charged is not what is in the pools: {last:?}");
    }

    /// What the daemon wrote into its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.state.join("ullage.log")).unwrap_or_default()
    }
}

impl Default for Space {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        self.watchdog = None;
        if std::thread::panicking() {
            eprintln!("the daemon's log:\n{}", self.log());
        }
        // By our own knowledge of the process, since the mount may hang.
        for _ in 0..4 {
            if !is_mounted(&self.mount) {
                break;
            }
            end_connection(&self.mount);
            let _ = std::process::Command::new("umount").arg("-l").arg(&self.mount).output();
        }
        for pid in daemons(&self.state) {
            process::signal(pid, rustix::process::Signal::KILL);
        }
        if !std::thread::panicking() {
            eventually("the daemon ends", run::LIMIT, || daemons(&self.state).is_empty());
        }
    }
}

/// Processes that serve this state; found by their own command line, which names it.
pub(crate) fn daemons(state: &Path) -> Vec<u32> {
    let state = state.as_os_str().as_encoded_bytes();
    let serves = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        words.contains(&state) && words.contains(&&b"--foreground"[..]) && process::runs(*pid)
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(serves).collect()
}
