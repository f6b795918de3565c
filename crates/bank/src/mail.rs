//! What clients are to be told without having asked: to whoever listens at once, else kept for a while.

use std::collections::HashMap;
use ullage_voucher::message::BankToClient;
use ullage_voucher::{Client, User};

/// Messages kept for a client that does not listen; it can always ask again.
const MESSAGES_MAX: usize = 64;
/// A user's clients for which any are kept while they do not listen: their numbers are the user's choice.
const KEPT_MAX: usize = 1024;

#[derive(Debug, Default)]
struct Mailbox {
    messages: Vec<BankToClient>,
    /// Requests that wait for any.
    listening: usize,
    /// Epochs since anything came.
    age: u64,
}

/// The boxes of all clients, by user.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    users: HashMap<User, HashMap<Client, Mailbox>>,
}

impl Mail {
    /// Keeps a message, unless too much is kept already of a user who does not listen.
    pub(crate) fn put(&mut self, user: User, client: Client, message: &BankToClient) {
        let boxes = self.users.entry(user).or_default();
        if boxes.len() >= KEPT_MAX && !boxes.contains_key(&client) {
            return;
        }
        let mailbox = boxes.entry(client).or_default();
        mailbox.age = 0;
        if mailbox.messages.len() < MESSAGES_MAX && !mailbox.messages.contains(message) {
            mailbox.messages.push(message.clone());
        }
    }

    /// What there is.
    pub(crate) fn take(&mut self, user: User, client: Client) -> Option<Vec<BankToClient>> {
        let mailbox = self.users.get_mut(&user)?.get_mut(&client)?;
        let messages = std::mem::take(&mut mailbox.messages);
        self.tidy(user, client);
        if messages.is_empty() { None } else { Some(messages) }
    }

    /// From now on this client has a box, however many there are.
    pub(crate) fn listen(&mut self, user: User, client: Client) {
        self.users.entry(user).or_default().entry(client).or_default().listening += 1;
    }

    /// No more, as often as it was called.
    pub(crate) fn unlisten(&mut self, user: User, client: Client) {
        if let Some(mailbox) = self.users.get_mut(&user).and_then(|boxes| boxes.get_mut(&client)) {
            mailbox.listening -= 1;
        }
        self.tidy(user, client);
    }

    /// An epoch has passed: what is kept for longer than vouchers are valid is of no use.
    pub(crate) fn age(&mut self, expiry: u64) {
        self.users.retain(|_, boxes| {
            boxes.retain(|_, mailbox| {
                mailbox.age += 1;
                mailbox.listening > 0 || mailbox.age <= expiry
            });
            !boxes.is_empty()
        });
    }

    fn tidy(&mut self, user: User, client: Client) {
        let Some(boxes) = self.users.get_mut(&user) else { return };
        if boxes.get(&client).is_some_and(|mailbox| mailbox.listening == 0 && mailbox.messages.is_empty()) {
            boxes.remove(&client);
        }
        if boxes.is_empty() {
            self.users.remove(&user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const U: User = User(1);
    const REVOKE: BankToClient = BankToClient::Revoke { user: U };

    /// Ten thousand clients of one user that never listened kept everybody else from hearing anything.
    #[test]
    fn who_does_not_listen_takes_nothing_from_others_nor_from_those_who_do() {
        let mut mail = Mail::default();
        mail.listen(U, Client(7));
        for client in 100..20_000 {
            mail.put(U, Client(client), &REVOKE);
        }
        assert_eq!(mail.users[&U].len(), KEPT_MAX);
        mail.listen(U, Client(8));
        for client in [7, 8] {
            mail.put(U, Client(client), &REVOKE);
            assert_eq!(mail.take(U, Client(client)), Some(vec![REVOKE]));
        }
        mail.put(User(2), Client(1), &REVOKE);
        assert_eq!(mail.take(User(2), Client(1)), Some(vec![REVOKE]));
    }

    #[test]
    fn what_nobody_fetches_is_forgotten_and_nothing_is_left() {
        let mut mail = Mail::default();
        mail.put(U, Client(1), &REVOKE);
        mail.listen(U, Client(2));
        for _ in 0..3 {
            assert_eq!(mail.users[&U].len(), 2);
            mail.age(2);
        }
        assert_eq!(mail.take(U, Client(1)), None);
        mail.put(U, Client(2), &REVOKE);
        mail.unlisten(U, Client(2));
        assert_eq!(mail.take(U, Client(2)), Some(vec![REVOKE]), "it was told, and had not taken it");
        assert!(mail.users.is_empty());
    }
}
