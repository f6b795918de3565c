//! A shard whose engine completes what is appended when the test says so.

use super::*;
use crate::engine::Done;
use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use ullage_journal::Durability;
use ullage_voucher::bank::Waits;
use ullage_voucher::{KeyId, Keyring, Piece, Write};

const U: User = User(1);
const A: Client = Client(1);
const B: Client = Client(2);

#[derive(Default)]
struct Slow {
    holds: AtomicBool,
    held: Mutex<Vec<Done>>,
    given_up: AtomicBool,
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
    fn append(&self, _: &[Write], done: Done) {
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
    let engine = EngineChoice::Embedded { directory: PathBuf::new(), durability: Durability::Process };
    let mut settings = BankSettings::new(engine, Arc::new(Keyring::with_root(KeyId(1), [1; 32])), [2; 32]);
    settings.policy = Policy::Revocation { timeout: Micros::from_secs(20), waits: Waits::Answers };
    let (failed, _) = mpsc::unbounded_channel();
    Arc::new(Member::new(0, Arc::new(settings), Answers::new(Vec::new(), Vec::new()), failed))
}

/// It leads, and A has all that U may have.
async fn leads() -> (Arc<Member>, Arc<Slow>, Vec<Piece>) {
    let (member, engine) = (member(), Arc::new(Slow::default()));
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
