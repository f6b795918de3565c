//! A sampler on a thread of its own: a read that hangs must not stop the controller.

use super::{IdleRange, Request, Sampler};
use crate::control::Sample;
use crate::error::{Error, Result};
use crate::sys;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;
use std::time::Duration;

/// A sampler that does not answer within this time, or fails this often in a row, has stopped answering.
const PATIENCE: Duration = Duration::from_secs(30);
const FAILURES: u32 = 3;

enum Order {
    Begin(Request),
    Sample(Request),
    IdleRanges(Vec<i32>),
}

enum Answer {
    Begun(Result<()>),
    Sample(Result<Sample>),
    IdleRanges(Vec<IdleRange>),
}

/// What came of an order.
#[derive(Debug, Default)]
pub struct News {
    /// A sample.
    pub sample: Option<Sample>,
    /// Ranges to evict first.
    pub idle_ranges: Vec<IdleRange>,
}

/// The worker; dropping it lets its thread end (a thread that hangs in the kernel is left behind).
pub struct Worker {
    name: &'static str,
    orders: Sender<Order>,
    answers: Receiver<(Answer, Duration)>,
    pending: Vec<Duration>,
    failures: u32,
    patience: Duration,
    /// CPU time the latest answer cost.
    last_cost: Duration,
}

impl Worker {
    /// Starts the thread.
    pub fn start(mut sampler: Box<dyn Sampler>) -> Self {
        let (orders, inbox) = channel::<Order>();
        let (outbox, answers) = channel();
        let name = sampler.name();
        thread::spawn(move || {
            for order in inbox {
                let before = sys::thread_cpu();
                let answer = match order {
                    Order::Begin(request) => Answer::Begun(sampler.begin_window(&request)),
                    Order::Sample(request) => Answer::Sample(sampler.sample(&request)),
                    Order::IdleRanges(pids) => Answer::IdleRanges(sampler.idle_ranges(&pids)),
                };
                if outbox.send((answer, sys::thread_cpu().saturating_sub(before))).is_err() {
                    break;
                }
            }
        });
        Self { name, orders, answers, pending: Vec::new(), failures: 0, patience: PATIENCE, last_cost: Duration::ZERO }
    }

    /// The sampler's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether it still works on something.
    pub fn is_busy(&self) -> bool {
        !self.pending.is_empty()
    }

    /// CPU time the latest answer cost.
    pub fn last_cost(&self) -> Duration {
        self.last_cost
    }

    /// Asks for a new window.
    pub fn begin_window(&mut self, request: Request) -> Result<()> {
        self.order(request.now, Order::Begin(request))
    }

    /// Asks for a sample.
    pub fn sample(&mut self, request: Request) -> Result<()> {
        self.order(request.now, Order::Sample(request))
    }

    /// Asks for idle ranges.
    pub fn idle_ranges(&mut self, pids: Vec<i32>, now: Duration) -> Result<()> {
        self.order(now, Order::IdleRanges(pids))
    }

    fn order(&mut self, now: Duration, order: Order) -> Result<()> {
        self.pending.push(now);
        self.orders.send(order).map_err(|_| self.silent("its thread ended"))
    }

    fn silent(&self, why: impl Into<String>) -> Error {
        Error::SamplerSilent { name: self.name, why: why.into() }
    }

    /// What has come in.
    pub fn poll(&mut self, now: Duration) -> Result<News> {
        let mut news = News::default();
        loop {
            let (answer, cost) = match self.answers.try_recv() {
                Ok(answer) => answer,
                Err(TryRecvError::Disconnected) => return Err(self.silent("its thread ended")),
                Err(TryRecvError::Empty) => break,
            };
            self.pending.remove(0);
            self.last_cost = cost;
            let failed = match answer {
                Answer::Begun(result) => result.err(),
                Answer::Sample(Ok(sample)) => {
                    news.sample = Some(sample);
                    None
                }
                Answer::Sample(Err(error)) => Some(error),
                Answer::IdleRanges(ranges) => {
                    news.idle_ranges = ranges;
                    None
                }
            };
            self.failures = if failed.is_some() { self.failures + 1 } else { 0 };
            if let Some(error) = failed.filter(|_| self.failures >= FAILURES) {
                return Err(self.silent(format!("{FAILURES} failures in a row, the last: {error}")));
            }
        }
        match self.pending.first() {
            Some(&asked) if now.saturating_sub(asked) > self.patience => {
                Err(self.silent(format!("no answer for {} s", self.patience.as_secs())))
            }
            _ => Ok(news),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Histogram;
    use std::time::Instant;

    /// Answers, fails or hangs as told.
    struct Ailing {
        hang: bool,
    }

    impl Sampler for Ailing {
        fn name(&self) -> &'static str {
            "ailing"
        }
        fn begin_window(&mut self, _: &Request) -> Result<()> {
            Ok(())
        }
        fn sample(&mut self, _: &Request) -> Result<Sample> {
            if self.hang {
                thread::sleep(Duration::from_secs(3600));
            }
            Err(Error::Invalid("the file is gone".into()))
        }
    }

    fn request(now: Duration) -> Request {
        let shape = Histogram::for_memory(10);
        Request { pids: vec![], shape, noise_position: 1, period: Duration::from_secs(60), idle_cpus: 0.05, now }
    }

    #[test]
    fn a_sampler_that_keeps_failing_is_named_after_three_times() {
        let mut worker = Worker::start(Box::new(Ailing { hang: false }));
        for _ in 0..FAILURES {
            worker.sample(request(Duration::ZERO)).unwrap();
        }
        let until = Instant::now() + Duration::from_secs(10);
        let error = loop {
            match worker.poll(Duration::ZERO) {
                Err(error) => break error,
                Ok(_) => assert!(Instant::now() < until, "no error in time"),
            }
            thread::sleep(Duration::from_millis(5));
        };
        assert!(
            error.to_string().contains("ailing stopped answering") && error.to_string().contains("the file is gone")
        );
    }

    #[test]
    fn a_sampler_that_hangs_is_noticed_by_the_clock() {
        let mut worker = Worker::start(Box::new(Ailing { hang: true }));
        worker.sample(request(Duration::ZERO)).unwrap();
        assert!(worker.poll(Duration::from_secs(29)).is_ok());
        let error = worker.poll(Duration::from_secs(31)).unwrap_err();
        assert!(error.to_string().contains("no answer for 30 s"), "{error}");
    }
}
