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

/// Where answers were not looked for so long this process was stopped, or the machine asleep, and the sampler with it.
const AWAY: Duration = Duration::from_secs(5);

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
    /// Ranges to evict first, where they were asked for.
    pub idle_ranges: Option<Vec<IdleRange>>,
}

/// The worker; dropping it lets its thread end (a thread that hangs in the kernel is left behind).
pub struct Worker {
    name: &'static str,
    orders: Sender<Order>,
    answers: Receiver<(Answer, Duration)>,
    pending: Vec<Duration>,
    polled: Duration,
    failures: u32,
    patience: Duration,
    /// What the orders carried out so far cost in CPU time is earned by then.
    earned: Duration,
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
        Self {
            name,
            orders,
            answers,
            pending: Vec::new(),
            polled: Duration::ZERO,
            failures: 0,
            patience: PATIENCE,
            earned: Duration::ZERO,
        }
    }

    /// The sampler's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether it still works on something.
    pub fn is_busy(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether it may begin something that can wait: the CPU time that all before cost is earned.
    pub fn is_ready(&self, now: Duration) -> bool {
        !self.is_busy() && now >= self.earned
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

    /// What has come in. Its cost is to be earned at `share` of a CPU before the next: but that of a new window, of which there
    /// is one a period at most, and of which the first samples tell more than all later ones.
    pub fn poll(&mut self, now: Duration, share: f64) -> Result<News> {
        let mut news = News::default();
        loop {
            let (answer, cost) = match self.answers.try_recv() {
                Ok(answer) => answer,
                Err(TryRecvError::Disconnected) => return Err(self.silent("its thread ended")),
                Err(TryRecvError::Empty) => break,
            };
            self.pending.remove(0);
            if !matches!(answer, Answer::Begun(_)) {
                self.earned = self.earned.max(now) + cost.div_f64(share);
            }
            let failed = match answer {
                Answer::Begun(result) => result.err(),
                Answer::Sample(Ok(sample)) => {
                    news.sample = Some(sample);
                    None
                }
                Answer::Sample(Err(error)) => Some(error),
                Answer::IdleRanges(ranges) => {
                    news.idle_ranges = Some(ranges);
                    None
                }
            };
            self.failures = if failed.is_some() { self.failures + 1 } else { 0 };
            if let Some(error) = failed.filter(|_| self.failures >= FAILURES) {
                return Err(self.silent(format!("{FAILURES} failures in a row, the last: {error}")));
            }
        }
        if now.saturating_sub(std::mem::replace(&mut self.polled, now)) >= AWAY {
            self.pending.fill(now);
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
            match worker.poll(Duration::ZERO, 1.0) {
                Err(error) => break error,
                Ok(_) => assert!(Instant::now() < until, "no error in time"),
            }
            thread::sleep(Duration::from_millis(5));
        };
        assert!(
            error.to_string().contains("ailing stopped answering") && error.to_string().contains("the file is gone")
        );
    }

    /// Reads the ranges at length.
    struct Thorough;

    impl Sampler for Thorough {
        fn name(&self) -> &'static str {
            "thorough"
        }
        fn begin_window(&mut self, _: &Request) -> Result<()> {
            Ok(())
        }
        fn sample(&mut self, _: &Request) -> Result<Sample> {
            Err(Error::Stopped)
        }
        fn idle_ranges(&mut self, _: &[i32]) -> Vec<IdleRange> {
            let until = sys::thread_cpu() + Duration::from_millis(50);
            while sys::thread_cpu() < until {}
            Vec::new()
        }
    }

    /// Regression: only samples had to be earned, and reading the ranges, every five seconds, costs as much.
    #[test]
    fn what_ranges_cost_is_earned_before_the_next_order() {
        let mut worker = Worker::start(Box::new(Thorough));
        let (began, now) = (Instant::now(), Duration::from_secs(100));
        worker.idle_ranges(Vec::new(), now).unwrap();
        while worker.poll(now, 0.02).unwrap().idle_ranges.is_none() {
            assert!(began.elapsed() < Duration::from_secs(10), "no answer in time");
            thread::sleep(Duration::from_millis(5));
        }
        assert!(!worker.is_busy() && !worker.is_ready(now + Duration::from_millis(2_400)));
        assert!(worker.is_ready(now + Duration::from_secs(60)));
    }

    #[test]
    fn a_sampler_that_hangs_is_noticed_by_the_clock() {
        let mut worker = Worker::start(Box::new(Ailing { hang: true }));
        worker.sample(request(Duration::ZERO)).unwrap();
        for second in 0..=30 {
            assert!(worker.poll(Duration::from_secs(second), 1.0).is_ok());
        }
        let error = worker.poll(Duration::from_secs(31), 1.0).unwrap_err();
        assert!(error.to_string().contains("no answer for 30 s"), "{error}");
    }

    /// Regression: a controller that was stopped for half a minute ended when it went on.
    #[test]
    fn while_nobody_asks_a_sampler_need_not_answer() {
        let mut worker = Worker::start(Box::new(Ailing { hang: true }));
        worker.sample(request(Duration::ZERO)).unwrap();
        for second in [0, 1, 2, 100, 101].into_iter().chain(102..=130) {
            assert!(worker.poll(Duration::from_secs(second), 1.0).is_ok(), "after {second} s");
        }
        assert!(worker.poll(Duration::from_secs(131), 1.0).is_err());
    }
}
