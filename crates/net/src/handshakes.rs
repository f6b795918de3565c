//! Connections that have not shown yet who they are. They have no place among the connections: anybody can open them.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use tokio::sync::oneshot;

/// So many at a time, and half of them from one address. Who comes beyond ends the oldest: an honest one takes milliseconds, and who says
/// nothing is the oldest soon.
pub(crate) struct Handshakes {
    most: usize,
    begun: Mutex<Begun>,
}

#[derive(Default)]
struct Begun {
    next: u64,
    all: BTreeMap<u64, (IpAddr, oneshot::Sender<()>)>,
    from: HashMap<IpAddr, BTreeSet<u64>>,
}

impl Begun {
    fn remove(&mut self, number: u64) {
        let Some((from, _)) = self.all.remove(&number) else { return };
        if let Some(numbers) = self.from.get_mut(&from) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.from.remove(&from);
            }
        }
    }
}

/// One that is under way, until it is dropped.
pub(crate) struct Handshake {
    number: u64,
    ended: oneshot::Receiver<()>,
    of: Arc<Handshakes>,
}

impl Handshakes {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most: most.max(1), begun: Mutex::default() })
    }

    pub(crate) fn begin(self: &Arc<Self>, from: IpAddr) -> Handshake {
        let from = party(from);
        let (ends, ended) = oneshot::channel();
        let mut begun = self.begun.lock();
        let own = begun.from.get(&from).filter(|own| own.len() >= self.most.div_ceil(2));
        let oldest = own.and_then(BTreeSet::first).copied();
        let full = begun.all.len() >= self.most;
        let oldest = oldest.or_else(|| begun.all.first_key_value().filter(|_| full).map(|(number, _)| *number));
        if let Some(oldest) = oldest {
            begun.remove(oldest);
        }
        let number = begun.next;
        begun.next += 1;
        begun.all.insert(number, (from, ends));
        begun.from.entry(from).or_default().insert(number);
        Handshake { number, ended, of: Arc::clone(self) }
    }
}

impl Handshake {
    /// Completes when others need its place.
    pub(crate) async fn ended(&mut self) {
        let _ = (&mut self.ended).await;
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.of.begun.lock().remove(self.number);
    }
}

/// Of IPv6 everybody has a whole network of 64 bits.
fn party(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_ended(handshake: &mut Handshake) -> bool {
        handshake.ended.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn who_comes_beyond_the_share_of_an_address_or_of_all_ends_the_oldest() {
        let (handshakes, one): (_, IpAddr) = (Handshakes::new(4), "10.0.0.1".parse().unwrap());
        let mut of_one: Vec<_> = (0..3).map(|_| handshakes.begin(one)).collect();
        assert_eq!(of_one.iter_mut().map(is_ended).collect::<Vec<_>>(), [true, false, false]);
        let [mut a, mut b, mut c] =
            ["2001:db8::1", "2001:db8::2", "2001:db8::3"].map(|address| handshakes.begin(address.parse().unwrap()));
        assert!(is_ended(&mut a) && !is_ended(&mut b) && !is_ended(&mut c), "one network");
        let mut other = handshakes.begin("10.0.0.2".parse().unwrap());
        assert!(is_ended(&mut of_one[1]) && !is_ended(&mut of_one[2]) && !is_ended(&mut other), "the oldest of all");
        drop((of_one, a, b, c, other));
        let begun = handshakes.begun.lock();
        assert!(begun.all.is_empty() && begun.from.is_empty());
    }
}
