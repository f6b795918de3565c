//! What is done about findings: programs of the site's choice, which read it as JSON. A cheater can make thousands of
//! findings at once, so few programs run at a time, and for one user never two that make data smaller.

use crate::lead::Lead;
use crate::wire::FindingView;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::ErrorKind;
use std::process::Stdio;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use ullage_voucher::User;

/// A program of the site that hangs is ended after this.
const TIME_MAX: Duration = Duration::from_secs(300);
/// Programs at a time.
const RUNNING_MAX: usize = 4;
/// Findings that wait to be told.
const WAITING_MAX: usize = 10_000;

/// By how much a user is over, what the user is called, and who keeps that it is not seen to yet.
#[derive(Default)]
struct Excess {
    name: Option<String>,
    bytes: u64,
    keeper: Weak<Lead>,
}

#[derive(Default)]
struct Waiting {
    findings: VecDeque<Vec<u8>>,
    /// One each: what is found before the program starts is added up.
    hooks: BTreeMap<User, Excess>,
    hooked: BTreeSet<User>,
    running: usize,
}

/// The programs, and what waits for them.
pub(crate) struct Answers {
    notify: Vec<String>,
    hook: Vec<String>,
    waiting: Mutex<Waiting>,
}

/// One program to run.
struct Job {
    input: Vec<u8>,
    hooked: Option<(User, Excess)>,
}

impl Answers {
    pub(crate) fn new(notify: Vec<String>, hook: Vec<String>) -> Arc<Self> {
        Arc::new(Self { notify, hook, waiting: Mutex::default() })
    }

    /// Tells of a finding, in the background. Nothing secret is in it.
    pub(crate) fn tell(self: &Arc<Self>, finding: &FindingView) {
        let Ok(input) = serde_json::to_vec(finding) else { return };
        if self.notify.is_empty() {
            return;
        }
        let mut waiting = self.waiting.lock();
        if waiting.findings.len() >= WAITING_MAX {
            tracing::warn!("more findings than can be told: the rest is in `ullage bank findings`");
            return;
        }
        waiting.findings.push_back(input);
        self.start(&mut waiting);
    }

    /// Has a user's data made smaller, in the background.
    pub(crate) fn thin(self: &Arc<Self>, user: User, name: Option<String>, excess: u64, keeper: Weak<Lead>) {
        if self.hook.is_empty() {
            return;
        }
        let mut waiting = self.waiting.lock();
        let sum = waiting.hooks.entry(user).or_default();
        sum.name = name;
        // What a lead begins with holds what was found under the one before.
        sum.bytes = if sum.keeper.ptr_eq(&keeper) { sum.bytes.saturating_add(excess) } else { excess };
        sum.keeper = keeper;
        self.start(&mut waiting);
    }

    /// What was found under this lead, and waits, is another's to see to.
    pub(crate) fn leave(&self, lead: &Lead) {
        self.waiting.lock().hooks.retain(|_, excess| !std::ptr::eq(excess.keeper.as_ptr(), lead));
    }

    fn start(self: &Arc<Self>, waiting: &mut Waiting) {
        if waiting.running < RUNNING_MAX {
            waiting.running += 1;
            tokio::spawn(Arc::clone(self).work());
        }
    }

    async fn work(self: Arc<Self>) {
        while let Some(job) = self.next() {
            let program = if job.hooked.is_some() { &self.hook } else { &self.notify };
            let is_done = run(program, &job.input).await;
            if let Some((user, excess)) = job.hooked {
                self.waiting.lock().hooked.remove(&user);
                if let Some(keeper) = excess.keeper.upgrade().filter(|_| is_done) {
                    keeper.settled(user, excess.bytes);
                }
            }
        }
    }

    fn next(&self) -> Option<Job> {
        let mut waiting = self.waiting.lock();
        let user = waiting.hooks.keys().find(|user| !waiting.hooked.contains(user)).copied();
        if let Some((user, excess)) = user.and_then(|user| waiting.hooks.remove_entry(&user)) {
            waiting.hooked.insert(user);
            let input = serde_json::json!({"user": excess.name, "user_number": user, "excess_bytes": excess.bytes});
            return Some(Job { input: input.to_string().into_bytes(), hooked: Some((user, excess)) });
        }
        // Whoever runs a hook that another one waits for comes back here afterwards.
        let input = waiting.findings.pop_front();
        if input.is_none() {
            waiting.running -= 1;
        }
        input.map(|input| Job { input, hooked: None })
    }
}

/// Whether it ended well.
async fn run(command: &[String], input: &[u8]) -> bool {
    let Some((program, arguments)) = command.split_first() else { return false };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).kill_on_drop(true);
    let run = async {
        let mut child = command.spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            match stdin.write_all(input).await {
                // It does what it does without reading all, or anything.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
                written => written?,
            }
        }
        child.wait().await
    };
    match tokio::time::timeout(TIME_MAX, run).await {
        Ok(Ok(status)) if status.success() => return true,
        Ok(Ok(status)) => tracing::warn!(%program, %status, "the answer to a finding fails"),
        Ok(Err(error)) => tracing::warn!(%program, %error, "the answer to a finding cannot be run"),
        Err(_) => tracing::warn!(%program, "the answer to a finding takes too long"),
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use ullage_voucher::bank::Finding;
    use ullage_voucher::{Client, Epoch, Node, VoucherId};

    /// A program that leaves a file for every time it was begun, and one for the most at a time, and then does this.
    fn program(directory: &Path, then: &str) -> Vec<String> {
        let at = directory.display();
        let script = format!(
            "touch {at}/running.$$; ls {at} | grep -c running > {at}/most.$$; cat > {at}/input.$$; {then}; rm {at}/running.$$"
        );
        vec!["sh".into(), "-c".into(), script]
    }

    fn files(directory: &Path, kind: &str) -> Vec<String> {
        let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let of = names.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(kind));
        of.filter_map(|path| std::fs::read_to_string(path).ok()).collect()
    }

    async fn done(answers: &Answers) {
        let until = tokio::time::Instant::now() + Duration::from_secs(30);
        while answers.waiting.lock().running > 0 {
            assert!(tokio::time::Instant::now() < until);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// One program a finding, all at once: 1772 were seen.
    #[tokio::test(flavor = "multi_thread")]
    async fn every_finding_is_told_and_few_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let answers = Answers::new(program(directory.path(), "sleep 0.3"), Vec::new());
        for number in 0..20 {
            let finding = Finding::StoreLied { store: Node(number), epoch: Epoch(1), why: String::new() };
            answers.tell(&FindingView { at_ms: 0, user: None, finding });
        }
        done(&answers).await;
        assert_eq!(files(directory.path(), "input").len(), 20);
        let most = files(directory.path(), "most").iter().map(|most| most.trim().parse().unwrap()).max();
        assert!(most.is_some_and(|most: usize| most <= RUNNING_MAX), "{most:?}");
    }

    /// Regression: a program that closed its input before all of a long finding was written was killed in the middle of its work.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_program_that_does_not_read_its_input_is_let_work() {
        let directory = tempfile::tempdir().unwrap();
        let done_file = directory.path().join("done");
        let script = format!("exec <&-; sleep 0.3; touch {}", done_file.display());
        let answers = Answers::new(vec!["sh".into(), "-c".into(), script], Vec::new());
        let clients = (0..20_000).map(|number| Client(u64::MAX - number)).collect();
        let (user, voucher, epoch, stores) = (User(1), VoucherId::default(), Epoch(1), Vec::new());
        let finding = Finding::Overspent { user, voucher, epoch, value: 1, spent: 2, clients, stores };
        answers.tell(&FindingView { at_ms: 0, user: None, finding });
        done(&answers).await;
        assert!(done_file.exists());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn one_users_data_is_made_smaller_once_at_a_time_by_all_that_was_found_meanwhile() {
        let directory = tempfile::tempdir().unwrap();
        let go = directory.path().join("go");
        let then = format!("until [ -e {} ]; do sleep 0.02; done", go.display());
        let answers = Answers::new(Vec::new(), program(directory.path(), &then));
        answers.thin(User(1), Some("alice".into()), 1, Weak::new());
        let until = tokio::time::Instant::now() + Duration::from_secs(30);
        while files(directory.path(), "input").is_empty() {
            assert!(tokio::time::Instant::now() < until, "the program does not begin");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for _ in 0..100 {
            answers.thin(User(1), Some("alice".into()), 10, Weak::new());
        }
        std::fs::write(go, "").unwrap();
        done(&answers).await;
        let most = files(directory.path(), "most");
        assert_eq!(most.iter().map(|most| most.trim()).collect::<Vec<_>>(), ["1", "1"]);
        let mut sums: Vec<u64> = Vec::new();
        for input in files(directory.path(), "input") {
            let input: serde_json::Value = serde_json::from_str(&input).unwrap();
            sums.push(input["excess_bytes"].as_u64().unwrap());
        }
        sums.sort_unstable();
        assert_eq!(sums, [1, 1000]);
    }
}
