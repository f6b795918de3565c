//! The discrete-event engine. Requests go client → management server → store; queues are first come, first
//! served, so that a queue is one number: when its server is free.

use super::model::{Measured, Model, Scheme, Workload};
use super::vouchers::Vouchers;
use crate::Rng;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Nanoseconds.
pub(super) type Time = u64;

pub(super) fn nanos(seconds: f64) -> Time {
    (seconds * 1e9) as Time
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Meta,
    Read,
    Write,
    Delete,
}

/// One request of a user.
#[derive(Clone, Copy, Debug)]
pub(super) struct Io {
    pub(super) start: Time,
    pub(super) user: u32,
    pub(super) client: u32,
    pub(super) store: u32,
    pub(super) kind: Kind,
    /// The management server that has its metadata.
    bank: u32,
    /// Whether the client has what is read, or the store in memory what is asked of it.
    client_has: bool,
    store_has: bool,
    /// Which payment pays for it.
    pub(super) op: u64,
}

/// What happens next to what.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Arrives at the management server for its metadata.
    Metadata(Io),
    /// Arrives at its store.
    Store(Io),
    /// A message to a bank or a wallet, by number.
    Message(u32),
}

struct Event {
    time: Time,
    order: u64,
    step: Step,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Event {}
impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.time, other.order).cmp(&(self.time, self.order))
    }
}

/// Queues, the clock, what is measured.
pub(super) struct Engine {
    pub(super) model: Model,
    /// The load's alone, so that all schemes are compared under the same one.
    rng: Rng,
    /// For what the scheme does beside it.
    pub(super) scheme_rng: Rng,
    heap: BinaryHeap<Event>,
    order: u64,
    bank_free: Vec<Time>,
    disk_free: Vec<Time>,
    pub(super) network: Time,
    transfer: Time,
    from: Time,
    sum: f64,
    count: u64,
    queued: f64,
    visits: u64,
    busy: Time,
    series: Vec<(f64, u64)>,
    special: Vec<(f64, u64)>,
    pub(super) messages: u64,
    pub(super) withdrawals: u64,
    pub(super) returns: u64,
    pub(super) refused: u64,
}

impl Engine {
    fn new(model: Model) -> Self {
        let bins = (model.seconds / 30.0).ceil() as usize + 1;
        Self {
            rng: Rng::new(model.seed),
            scheme_rng: Rng::new(model.seed ^ SCHEME),
            heap: BinaryHeap::with_capacity(4096),
            order: 0,
            bank_free: vec![0; model.banks as usize],
            disk_free: vec![0; model.stores as usize],
            network: nanos(model.network),
            from: nanos(model.seconds - model.measure),
            sum: 0.0,
            count: 0,
            queued: 0.0,
            visits: 0,
            busy: 0,
            series: vec![(0.0, 0); bins],
            special: vec![(0.0, 0); bins],
            messages: 0,
            withdrawals: 0,
            returns: 0,
            transfer: nanos(model.request as f64 / model.link_rate),
            refused: 0,
            model,
        }
    }

    pub(super) fn at(&mut self, time: Time, step: Step) {
        self.order += 1;
        self.heap.push(Event { time, order: self.order, step });
    }

    pub(super) fn measuring(&self, time: Time) -> bool {
        time >= self.from
    }

    /// One visit to a management server; when it is done.
    pub(super) fn visit(&mut self, bank: u32, arrival: Time, service: f64) -> Time {
        let free = &mut self.bank_free[bank as usize];
        let start = arrival.max(*free);
        let service = nanos(service);
        *free = start + service;
        let done = *free;
        if arrival >= self.from {
            self.queued += (start - arrival) as f64;
            self.visits += 1;
            self.busy += service;
        }
        done
    }

    /// The metadata part: an extra `service` rides on it.
    pub(super) fn metadata(&mut self, io: Io, arrival: Time, extra: f64) {
        let done = self.visit(io.bank, arrival, self.model.metadata_service + extra);
        if io.kind == Kind::Meta {
            self.finish(&io, done + self.network);
        } else {
            let data = if io.kind == Kind::Write { self.transfer } else { 0 };
            self.at(done + 2 * self.network + data, Step::Store(io));
        }
    }

    /// The store's part; when the answer is back.
    fn serve(&mut self, io: &Io, arrival: Time) -> Time {
        let done = if io.kind == Kind::Delete || io.store_has {
            arrival + 100_000
        } else {
            let access = nanos(self.model.seek + self.model.request as f64 / self.model.disk_rate);
            let free = &mut self.disk_free[io.store as usize];
            *free = arrival.max(*free) + access;
            *free
        };
        let data = if io.kind == Kind::Read { self.transfer } else { 0 };
        let back = done + self.network + data;
        self.finish(io, back);
        back
    }

    pub(super) fn finish(&mut self, io: &Io, end: Time) {
        let latency = (end - io.start) as f64;
        if io.start >= self.from {
            self.sum += latency;
            self.count += 1;
        }
        let bin = (io.start / 30_000_000_000) as usize;
        let series = if io.user == 0 { &mut self.special } else { &mut self.series };
        if let Some((sum, count)) = series.get_mut(bin) {
            *sum += latency;
            *count += 1;
        }
    }

    fn generate(&mut self, start: Time) -> Io {
        let model = &self.model;
        let user = if model.users == 1 { 0 } else { self.rng.below(model.users.into()) as u32 };
        let at = self.rng.below(model.clients_per_user.into()) as u32;
        let client = (user.wrapping_mul(7919) % model.clients + at) % model.clients;
        let pick = self.rng.unit();
        let kind = if pick < model.writes + model.deletes {
            self.write_or_delete(start, pick)
        } else if pick < model.writes + model.deletes + model.reads {
            Kind::Read
        } else {
            Kind::Meta
        };
        let model = &self.model;
        let store = self.rng.below(model.stores.into()) as u32;
        let bank = match model.workload {
            Workload::User => user % model.banks,
            Workload::Scientific => self.rng.below(model.banks.into()) as u32,
        };
        let (client_has, store_has) = (self.rng.chance(model.client_hit), self.rng.chance(model.store_hit));
        Io { start, user, client, store, kind, bank, client_has, store_has, op: 0 }
    }
}

impl Engine {
    /// The scientific load writes a checkpoint, then deletes the one before it; the first has none before it.
    fn write_or_delete(&self, start: Time, pick: f64) -> Kind {
        let model = &self.model;
        let share = model.writes / (model.writes + model.deletes);
        let is_write = if model.workload == Workload::Scientific {
            (start % CYCLE) as f64 <= CYCLE as f64 * model.duty * share
        } else {
            pick < model.writes
        };
        match is_write {
            true => Kind::Write,
            false if start < CYCLE && model.workload == Workload::Scientific => Kind::Meta,
            false => Kind::Delete,
        }
    }
}

/// Sets the second random sequence apart from the first.
const SCHEME: u64 = 0x9e37_79b9_7f4a_7c15;

/// A minute of computing and writing a checkpoint: the burst is at its start.
const CYCLE: Time = 60_000_000_000;

/// The time of the next request: Poisson, in bursts if the load has them.
fn next_arrival(engine: &mut Engine, now: Time) -> Time {
    let mean = 1.0 / engine.model.peak();
    let next = now + nanos(engine.rng.exponential(mean)).max(1);
    if engine.model.duty >= 1.0 {
        return next;
    }
    let burst = (CYCLE as f64 * engine.model.duty) as Time;
    if next % CYCLE < burst { next } else { (next / CYCLE + 1) * CYCLE + next % 1000 }
}

/// Runs a model.
pub fn run(model: &Model) -> Measured {
    let mut engine = Engine::new(model.clone());
    let mut vouchers = (model.scheme == Scheme::Voucher).then(|| Vouchers::new(model));
    let end = nanos(model.seconds);
    let mut start = next_arrival(&mut engine, 0);
    loop {
        // Everything is handled in the order in which it reaches a server.
        let arrival = start + engine.network;
        match engine.heap.peek() {
            Some(event) if event.time <= arrival => {
                let Some(Event { time, step, .. }) = engine.heap.pop() else { break };
                handle(&mut engine, vouchers.as_mut(), time, step);
            }
            _ if start >= end => break,
            _ => {
                let io = engine.generate(start);
                issue(&mut engine, vouchers.as_mut(), io, arrival);
                start = next_arrival(&mut engine, start);
            }
        }
    }
    measured(&engine)
}

fn issue(engine: &mut Engine, vouchers: Option<&mut Vouchers>, io: Io, arrival: Time) {
    if io.kind == Kind::Read && io.client_has {
        engine.finish(&io, io.start + 50_000);
        return;
    }
    match (io.kind, engine.model.scheme, vouchers) {
        (Kind::Write, Scheme::Voucher, Some(vouchers)) => vouchers.write(engine, io, arrival),
        (Kind::Write | Kind::Delete, Scheme::Centralized, _) => {
            let transaction = engine.model.transaction_service;
            engine.withdrawals += u64::from(engine.measuring(arrival));
            if engine.scheme_rng.chance(engine.model.grouped) {
                engine.metadata(io, arrival, transaction);
            } else {
                engine.messages += u64::from(engine.measuring(arrival));
                let done = engine.visit(io.bank, arrival, transaction);
                let again = done + 2 * engine.network;
                engine.at(again, Step::Metadata(io));
            }
        }
        _ => engine.metadata(io, arrival, 0.0),
    }
}

fn handle(engine: &mut Engine, vouchers: Option<&mut Vouchers>, time: Time, step: Step) {
    match step {
        Step::Metadata(io) => engine.metadata(io, time, 0.0),
        Step::Store(io) => {
            let back = engine.serve(&io, time);
            if let Some(vouchers) = vouchers {
                vouchers.at_store(engine, &io, time, back);
            }
        }
        Step::Message(number) => {
            if let Some(vouchers) = vouchers {
                vouchers.deliver(engine, number, time);
            }
        }
    }
}

fn measured(engine: &Engine) -> Measured {
    let ms = |(sum, count): &(f64, u64)| if *count == 0 { f64::NAN } else { sum / *count as f64 / 1e6 };
    let measure = engine.model.measure;
    Measured {
        latency_ms: engine.sum / engine.count.max(1) as f64 / 1e6,
        queue_ms: engine.queued / engine.visits.max(1) as f64 / 1e6,
        busy: engine.busy as f64 / 1e9 / measure / f64::from(engine.model.banks),
        messages: engine.messages as f64 / measure,
        withdrawals: engine.withdrawals as f64 / measure,
        returns: engine.returns as f64 / measure,
        series_ms: engine.series.iter().map(ms).collect(),
        special_ms: engine.special.iter().map(ms).collect(),
        requests: engine.count,
        refused: engine.refused,
    }
}
