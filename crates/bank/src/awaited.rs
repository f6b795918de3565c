//! Requests that the core has queued, and who waits for their answers.

use crate::lead::Lead;
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::oneshot;
use ullage_voucher::message::BankToClient;
use ullage_voucher::{Client, Op};

/// Who waits: of several that repeat one request the last.
#[derive(Default)]
pub(crate) struct Waiting {
    requests: HashMap<(Client, Op), (u64, oneshot::Sender<BankToClient>)>,
    next: u64,
}

impl Waiting {
    fn enter(&mut self, request: (Client, Op)) -> (u64, oneshot::Receiver<BankToClient>) {
        let (sender, receiver) = oneshot::channel();
        self.next += 1;
        self.requests.insert(request, (self.next, sender));
        (self.next, receiver)
    }

    /// Another that repeats the request has come in its place.
    fn leave(&mut self, request: (Client, Op), serial: u64) {
        if self.requests.get(&request).is_some_and(|(own, _)| *own == serial) {
            self.requests.remove(&request);
        }
    }

    pub(crate) fn answer(&mut self, request: (Client, Op), message: &BankToClient) {
        if let Some((_, waiting)) = self.requests.remove(&request) {
            // A caller that went away asks again.
            let _ = waiting.send(message.clone());
        }
    }

    pub(crate) fn clear(&mut self) {
        self.requests.clear();
    }
}

/// One that waits, while it is there.
pub(crate) struct Awaited<'a> {
    lead: &'a Lead,
    request: (Client, Op),
    serial: u64,
    receiver: oneshot::Receiver<BankToClient>,
}

impl<'a> Awaited<'a> {
    pub(crate) fn new(lead: &'a Lead, request: (Client, Op)) -> Self {
        let (serial, receiver) = lead.post.lock().waiting.enter(request);
        Self { lead, request, serial, receiver }
    }

    pub(crate) async fn answer(&mut self, patience: Duration) -> Option<BankToClient> {
        tokio::time::timeout(patience, &mut self.receiver).await.ok()?.ok()
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.lead.post.lock().waiting.leave(self.request, self.serial);
    }
}
