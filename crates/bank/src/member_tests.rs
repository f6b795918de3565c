//! A shard whose engine completes what is appended when the test says so.

use super::*;
use crate::engine::Done;
use crate::rows::apply;
use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use ullage_journal::Durability;
use ullage_voucher::bank::{Answer, Waits};
use ullage_voucher::message::{Base, Renew, Report, SpentLine};
use ullage_voucher::{Epoch, Incarnation, KeyId, Keyring, Node, Piece, Write};

const U: User = User(1);
const A: Client = Client(1);
const B: Client = Client(2);

#[derive(Default)]
struct Slow {
    holds: AtomicBool,
    held: Mutex<Vec<Done>>,
    given_up: AtomicBool,
    rows: Mutex<Rows>,
}

impl Slow {
    /// Completes what was appended, and holds nothing from now on.
    fn complete(&self) {
        self.holds.store(false, Ordering::SeqCst);
        let held = std::mem::take(&mut *self.held.lock());
        for done in held {
            done(Ok(()));
        }
    }
}

impl Engine for Slow {
    fn append(&self, writes: &[Write], done: Done) {
        apply(&mut self.rows.lock(), writes);
        if self.holds.load(Ordering::SeqCst) {
            self.held.lock().push(done);
        } else {
            done(Ok(()));
        }
    }

    fn snapshot_due(&self) -> bool {
        false
    }

    fn snapshot(&self, _: &Rows) {}

    fn is_leading(&self) -> bool {
        !self.given_up.load(Ordering::SeqCst)
    }

    fn give_up(&self) {
        self.given_up.store(true, Ordering::SeqCst);
    }

    fn has_left(&self) -> bool {
        true
    }
}

fn member() -> Arc<Member> {
    with_hook("")
}

/// A program of the shell's makes smaller what a cheater has.
fn with_hook(hook: &str) -> Arc<Member> {
    let engine = EngineChoice::Embedded { directory: PathBuf::new(), durability: Durability::Process };
    let mut settings = BankSettings::new(engine, Arc::new(Keyring::with_root(KeyId(1), [1; 32])), [2; 32]);
    settings.policy = Policy::Revocation { timeout: Micros::from_secs(20), waits: Waits::Answers };
    settings.answer = Answer::Hook;
    let hook = if hook.is_empty() { Vec::new() } else { ["sh", "-c", hook].map(str::to_owned).to_vec() };
    let (failed, _) = mpsc::unbounded_channel();
    Arc::new(Member::new(0, Arc::new(settings), Answers::new(Vec::new(), hook), failed))
}

/// It leads, and A has all that U may have.
async fn leads() -> (Arc<Member>, Arc<Slow>, Vec<Piece>) {
    leads_with(member()).await
}

async fn leads_with(member: Arc<Member>) -> (Arc<Member>, Arc<Slow>, Vec<Piece>) {
    let engine = Arc::new(Slow::default());
    let known: Arc<dyn Engine> = Arc::<Slow>::clone(&engine);
    member.take_lead(known, Rows::new()).await.unwrap();
    member.step(|_, _, _| {}, vec![BankEvent::SetQuota { user: U, quota: 100 }]).await.unwrap();
    let granted = member.client(A, vec![request(1)]).await.unwrap();
    let [BankToClient::Granted { pieces, .. }] = &granted[..] else { panic!("{granted:?}") };
    (member, engine, pieces.clone())
}

fn request(op: u64) -> ClientToBank {
    ClientToBank::Request { user: U, op: Op(op), want: 100, audience: None }
}

/// Polls it once, which does not complete it.
async fn begin<T>(work: std::pin::Pin<&mut impl Future<Output = T>>) {
    let mut work = work;
    let ended = std::future::poll_fn(|context| std::task::Poll::Ready(work.as_mut().poll(context).is_ready())).await;
    assert!(!ended);
}

/// A client whose connection ended while its request was made durable had others never asked to give back: the commit stood, and what
/// followed from it was lost with the handler.
#[tokio::test]
async fn others_are_told_of_a_request_whose_client_goes_away_before_it_is_durable() {
    let (member, engine, _) = leads().await;
    engine.holds.store(true, Ordering::SeqCst);
    {
        let asks = pin!(member.client(B, vec![request(2)]));
        begin(asks).await;
    }
    engine.complete();
    let mail = member.mail(U, A, Duration::from_secs(5)).await.unwrap();
    assert_eq!(mail, [BankToClient::Revoke { user: U }]);
}

/// A client that repeated its request over another connection was never told of its vouchers: whoever had asked before it went, and took
/// away who waited now.
#[tokio::test]
async fn who_repeats_a_request_is_answered_though_the_first_goes() {
    let (member, _, pieces) = leads().await;
    let mut first = pin!(member.client(B, vec![request(2)]));
    begin(first.as_mut()).await;
    tokio::task::yield_now().await;
    begin(first.as_mut()).await;
    let mut second = pin!(member.client(B, vec![request(2)]));
    begin(second.as_mut()).await;
    assert_eq!(first.await.unwrap(), []);
    member.client(A, vec![ClientToBank::Return { user: U, op: Op(3), pieces }]).await.unwrap();
    let answered = tokio::time::timeout(Duration::from_secs(5), second).await.expect("nobody tells").unwrap();
    assert!(matches!(answered[..], [BankToClient::Granted { op: Op(2), .. }]), "{answered:?}");
}

/// A bank that ended while it read the accounts of a lead that it had just won kept that lead, which then nobody had until its lease was over.
#[tokio::test]
async fn a_bank_that_ends_while_it_takes_the_lead_leaves_it() {
    let (member, engine) = (member(), Arc::new(Slow::default()));
    engine.holds.store(true, Ordering::SeqCst);
    let known: Arc<dyn Engine> = Arc::<Slow>::clone(&engine);
    let mut takes = pin!(member.take_lead(known, Rows::new()));
    begin(takes.as_mut()).await;
    member.stop().await;
    engine.complete();
    takes.await.unwrap();
    assert!(!engine.is_leading() && member.current().is_none());
}

/// A bank that ended before the site's program had, which was ended with it, never told it again by how much the user was over.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_cheater_is_over_is_told_again_by_the_next_bank_where_the_program_had_not_ended() {
    let directory = tempfile::tempdir().unwrap();
    let (begun, input) = (directory.path().join("begun"), directory.path().join("input"));
    let (member, engine, pieces) = leads_with(with_hook(&format!("touch {}; exec sleep 60", begun.display()))).await;
    let (store, incarnation, bank, epoch) = (Node(101), Incarnation(1), Incarnation(0), Epoch(1));
    let base = Some(Base { fresh: true, epoch: Epoch(0), used: Vec::new() });
    let (before, boot, beat) = (Vec::new(), 1, 1);
    let renew = Renew { store, incarnation, boot, beat, bank, before, epoch, free: 0, total: 0, base };
    let (voucher, terms) = (pieces[0].id(), pieces[0].voucher.terms);
    let line = SpentLine { voucher, epoch: terms.epoch, user: U, value: terms.value, client: A, amount: 150 };
    let mut told = vec![StoreToBank::Renew(renew)];
    for epoch in (2..=terms.epoch.0).map(Epoch) {
        let (used, spent) = if epoch == terms.epoch { (vec![(U, 150)], vec![line]) } else { Default::default() };
        told.push(StoreToBank::Report(Report { store, incarnation, epoch, used, spent, refunds: Vec::new() }));
    }
    member.store(told).await.unwrap();
    let come = |file: PathBuf| async move {
        let until = Instant::now() + Duration::from_secs(10);
        while !file.exists() {
            assert!(Instant::now() < until, "{} does not come", file.display());
            tokio::time::sleep(TICK).await;
        }
    };
    come(begun).await;
    let rows = engine.rows.lock().clone();
    let (next, engine) =
        (with_hook(&format!("cat > {0}.new; mv {0}.new {0}", input.display())), Arc::new(Slow::default()));
    *engine.rows.lock() = rows.clone();
    let known: Arc<dyn Engine> = Arc::<Slow>::clone(&engine);
    next.take_lead(known, rows).await.unwrap();
    come(input.clone()).await;
    let told: serde_json::Value = serde_json::from_slice(&std::fs::read(input).unwrap()).unwrap();
    assert_eq!(told["excess_bytes"], 50);
    let until = Instant::now() + Duration::from_secs(10);
    while engine.rows.lock().keys().any(|key| key.starts_with(b"~X")) {
        assert!(Instant::now() < until, "it would be told once more");
        tokio::time::sleep(TICK).await;
    }
}
