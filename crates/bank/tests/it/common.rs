//! How banks are set up and asked here.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use ullage_bank::BankSettings;
use ullage_bank::client::BankClient;
use ullage_bank::config::EngineChoice;
use ullage_journal::Durability;
use ullage_net::client::{Client, Settings};
use ullage_net::token::Bearer;
use ullage_net::{Role, clock};
use ullage_voucher::{KeyId, Keyring};

/// What tokens are signed with that these banks take.
pub const TOKEN_KEY: [u8; 32] = [5; 32];

/// Those of a bank over plain HTTP.
pub fn settings(engine: EngineChoice) -> BankSettings {
    let mut settings = BankSettings::new(engine, Arc::new(Keyring::with_root(KeyId(1), [1; 32])), [2; 32]);
    settings.gate.token_key = Some(TOKEN_KEY);
    settings
}

/// Accounts in a directory.
pub fn embedded(directory: &Path) -> EngineChoice {
    EngineChoice::Embedded { directory: directory.to_owned(), durability: Durability::Process }
}

/// A token that such a bank takes.
pub fn token(name: &str, role: Role) -> String {
    Bearer { name: name.into(), role, expires: clock::now_secs() + 100 }.sign(&TOKEN_KEY)
}

/// Who asks any address with such a token.
pub fn http(name: &str, role: Role) -> Client {
    Client::new(Settings { token: Some(token(name, role)), ..Settings::default() })
}

/// Who asks these banks.
pub fn client(name: &str, role: Role, banks: &[&str], patience: Duration) -> BankClient {
    BankClient::new(Arc::new(http(name, role)), banks.iter().map(|bank| (*bank).to_owned()).collect(), patience)
}
