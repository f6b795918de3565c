//! Every decoder is total: random and damaged bytes give a value or an error, never a panic, and never another
//! value's signature.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use ullage_voucher::bank::{BankConfig, BankCore, BankEvent, BankOutput};
use ullage_voucher::message::{BankToClient, BankToStore, ClientToBank, StoreToBank, StoreToClient};
use ullage_voucher::store::{StoreConfig, StoreCore, StoreEvent, StoreOutput};
use ullage_voucher::{
    Client, Epoch, Incarnation, Issuer, KeyId, Keyring, MAX_VALUE, Micros, Node, Op, PIECE_LEN, Params, Piece, Pieces,
    Terms, User, Write, decode_header, encode_header,
};

fn keys() -> Arc<Keyring> {
    Arc::new(Keyring::with_root(KeyId(3), [9; 32]))
}

prop_compose! {
    fn terms()(
        epoch in 0u64..1 << 40, lasts in 0u64..100, user: u64, value in 1..=MAX_VALUE, serial: u64,
        node: u32, incarnation: u32, audience: u32,
    ) -> Terms {
        Terms {
            epoch: Epoch(epoch), expiry: Epoch(epoch + lasts), user: User(user), value, serial,
            issuer: Issuer { node: Node(node), incarnation: Incarnation(incarnation) }, audience: Node(audience),
        }
    }
}

proptest! {
    #[test]
    fn pieces_survive_bytes_text_and_json(terms in terms(), take: u64) {
        let mut piece = keys().sign(terms).unwrap().whole();
        if let Some(part) = piece.split(take) {
            prop_assert_eq!(part.amount + piece.amount, terms.value);
            prop_assert_eq!(Piece::decode(&part.encode()), Ok(part));
            prop_assert_eq!(decode_header(encode_header(&[part, piece]).as_bytes()), Ok(Pieces::from_slice(&[part, piece])));
            let json = serde_json::to_string(&part).unwrap();
            prop_assert_eq!(serde_json::from_str::<Piece>(&json).unwrap(), part);
        }
        prop_assert_eq!(keys().verify(&piece.voucher), Ok(()));
    }

    #[test]
    fn any_flipped_bit_of_the_signed_part_is_noticed(terms in terms(), bit in 0usize..86 * 8) {
        let mut bytes = keys().sign(terms).unwrap().whole().encode();
        bytes[bit / 8] ^= 1 << (bit % 8);
        if let Ok(piece) = Piece::decode(&bytes) {
            prop_assert!(keys().verify(&piece.voucher).is_err());
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(piece) = Piece::decode(&bytes) {
            prop_assert_eq!(piece.encode().to_vec(), bytes.clone());
        }
        let _ = decode_header(&bytes);
    }

    #[test]
    fn truncated_pieces_are_refused(terms in terms(), length in 0usize..PIECE_LEN) {
        let bytes = keys().sign(terms).unwrap().whole().encode();
        prop_assert!(Piece::decode(&bytes[..length]).is_err());
    }

    #[test]
    fn random_messages_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = serde_json::from_slice::<StoreToBank>(&bytes);
        let _ = serde_json::from_slice::<ClientToBank>(&bytes);
        let _ = serde_json::from_slice::<BankToClient>(&bytes);
        let _ = serde_json::from_slice::<BankToStore>(&bytes);
        let _ = serde_json::from_slice::<StoreToClient>(&bytes);
    }

    #[test]
    fn damaged_states_are_an_error_or_a_state(row: usize, byte: usize, flip: u8, cut in 0usize..3) {
        let (bank, store) = states();
        for (which, table) in [(0, bank), (1, store)] {
            let mut rows: Vec<_> = table.clone().into_iter().collect();
            let at = row % rows.len();
            let (key, value) = &mut rows[at];
            let damaged = if cut == 0 { key } else { value };
            if damaged.is_empty() { continue; }
            let at = byte % damaged.len();
            damaged[at] ^= flip;
            if cut == 2 { damaged.truncate(at); }
            let rows = rows.iter().map(|(k, v)| (k.as_slice(), v.as_slice()));
            if which == 0 {
                let config = BankConfig::new(Node(1), Params::default());
                let _ = BankCore::load(config, keys(), Incarnation(1), rows, &mut BankOutput::default());
            } else {
                let _ = StoreCore::load(StoreConfig::new(Node(5), Params::default()), keys(), 1, rows);
            }
        }
    }
}

type Table = BTreeMap<Vec<u8>, Vec<u8>>;

fn apply(table: &mut Table, writes: &[Write]) {
    for write in writes {
        write.apply(table);
    }
}

/// A bank and a store with a row of every kind.
fn states() -> (Table, Table) {
    let (mut bank_table, mut store_table) = (Table::new(), Table::new());
    let mut out = BankOutput::default();
    let mut bank = BankCore::new(BankConfig::new(Node(1), Params::default()), keys(), Incarnation(1), &mut out);
    let mut at_store = StoreOutput::default();
    let config = StoreConfig::new(Node(5), Params::default());
    let base = BTreeMap::from([(User(4), 10)]);
    let mut store = StoreCore::new(config, keys(), 1, Incarnation(1), base, &mut at_store);
    let now = Micros(5);
    bank.step(BankEvent::SetQuota { user: User(1), quota: 1 << 20 }, now, &mut out);
    let request = ClientToBank::Request { user: User(1), op: Op(1), want: 1000, audience: None };
    bank.step(BankEvent::FromClient(Client(1), request), now, &mut out);
    let mut now = now;
    for second in 1..4000 {
        now = Micros::from_secs(second);
        store.step(StoreEvent::Tick, now, &mut at_store);
        bank.step(BankEvent::Tick, now, &mut out);
        for action in std::mem::take(&mut at_store.actions) {
            if let ullage_voucher::store::StoreAction::ToBank(message) = action {
                bank.step(BankEvent::FromStore(message), now, &mut out);
            }
        }
        for action in std::mem::take(&mut out.actions) {
            if let ullage_voucher::bank::BankAction::ToStore(_, message) = action {
                store.step(StoreEvent::FromBank(message), now, &mut at_store);
            }
        }
    }
    out.actions.clear();
    let request = ClientToBank::Request { user: User(1), op: Op(2), want: 1000, audience: None };
    bank.step(BankEvent::FromClient(Client(1), request), now, &mut out);
    let granted = out.actions.iter().find_map(|action| match action {
        ullage_voucher::bank::BankAction::ToClient(_, BankToClient::Granted { pieces, .. }) => Some(pieces.clone()),
        _ => None,
    });
    let mut pieces = granted.unwrap();
    let back = pieces[0].split(10).unwrap();
    let (client, user) = (Client(1), User(1));
    store.step(StoreEvent::Spend { client, user, op: Op(3), pieces, used: 500 }, now, &mut at_store);
    store.step(StoreEvent::Free { client, user, is_users: true, op: Op(4), amount: 100 }, now, &mut at_store);
    let give = ClientToBank::Return { user, op: Op(5), pieces: vec![back] };
    bank.step(BankEvent::FromClient(client, give), now, &mut out);
    apply(&mut bank_table, &out.writes);
    apply(&mut store_table, &at_store.writes);
    (bank_table, store_table)
}
