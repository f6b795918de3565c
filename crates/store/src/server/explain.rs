//! How it is told that a request failed.

use super::accounts::Unpaid;
use super::request::problem;
use crate::chunk::OpError;
use hyper::StatusCode;
use ullage_net::{Problem, Seldom};
use ullage_voucher::message::Refusal;

/// Which failures were put in the log lately: on a full disk whoever writes has one each time.
static SAID: Seldom = Seldom::new();

/// Every way a chunk operation can fail, and how it is told.
pub(crate) fn explain(error: OpError<Unpaid>) -> Problem {
    let (status, code) = match &error {
        OpError::NotFound(_) => (StatusCode::NOT_FOUND, "not_found"),
        OpError::Forbidden(_) => (StatusCode::FORBIDDEN, "mode"),
        OpError::Exists(_) => (StatusCode::CONFLICT, "exists"),
        OpError::Crowded(_) => (StatusCode::CONFLICT, "crowded"),
        OpError::Changed(_) => (StatusCode::PRECONDITION_FAILED, "changed"),
        OpError::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
        OpError::Damaged { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "damaged"),
        OpError::NoSpace => (StatusCode::INSUFFICIENT_STORAGE, "no_space"),
        OpError::Io { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "io"),
        OpError::Journal(_) | OpError::Stopped(_) => (StatusCode::SERVICE_UNAVAILABLE, "stopped"),
        OpError::Refused(Unpaid::Earlier(_)) => (StatusCode::CONFLICT, "earlier"),
        OpError::Refused(Unpaid::Refused { reason, needed_bytes, epoch }) => {
            let detail = serde_json::json!({"reason": reason, "needed_bytes": needed_bytes, "epoch": epoch});
            return problem(StatusCode::PAYMENT_REQUIRED, "voucher", describe(*reason)).with_detail(detail);
        }
    };
    if status.is_server_error() && SAID.is_due(code) {
        tracing::error!(%error, "a request fails");
    }
    problem(status, code, error)
}

fn describe(reason: Refusal) -> &'static str {
    match reason {
        Refusal::NoLease => "the store has no lease of the bank; try again",
        Refusal::NotYetOpen => "the store starts a new life; try again after an epoch",
        Refusal::TooMany => {
            "too many vouchers in one request, or more vouchers, clients or requests of one user than are remembered: try again when epochs have passed"
        }
        Refusal::ForeignUser => {
            "a voucher of another user than the one charged: the owner pays, unless this store is started with --charge-by writer"
        }
        Refusal::ForeignAudience => {
            "a voucher addressed to another store, or to none where only those count that are addressed to this one: clients ask for such with `addressed = true` beside its address"
        }
        Refusal::Future => "a voucher of an epoch to come",
        Refusal::Expired => "an expired voucher",
        Refusal::Reported => "a voucher of an epoch that this store has closed",
        Refusal::Malformed => "a voucher that contradicts itself",
        Refusal::BadSignature => "a voucher with a wrong signature",
        Refusal::Overspent => "more than the voucher's value would be spent",
        Refusal::Short => "the vouchers do not cover the request",
        Refusal::UnknownOp => "no such request is held",
        Refusal::Cancelled => "the request was cancelled",
        Refusal::Settled => "a request that the client has said to be settled",
        Refusal::MoreThanHeld => "more would be refunded than is charged",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Instant;
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    /// Counts what is put in the log.
    #[derive(Default)]
    struct Lines(Arc<AtomicU64>);

    impl Subscriber for Lines {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, _: &Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    /// Regression: whoever wrote to a full store filled its log, a line for each request.
    #[test]
    fn what_fails_again_and_again_is_said_once_a_second() {
        let lines = Lines::default();
        let count = Arc::clone(&lines.0);
        let begun = Instant::now();
        tracing::subscriber::with_default(lines, || {
            for _ in 0..1000 {
                assert_eq!(explain(OpError::NoSpace).status, 507);
            }
            explain(OpError::Stopped("why".into()));
        });
        let most = 2 + begun.elapsed().as_secs();
        let said = count.load(Ordering::Relaxed);
        assert!((1..=most).contains(&said), "{said} lines");
    }
}
