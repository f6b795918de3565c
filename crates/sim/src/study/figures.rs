//! The paper's figures 4 to 14, and the sweeps of X and K.

use super::chart::{Chart, Line, Point};
use super::model::{Asking, Measured, Model, Scheme};
use super::{confidence, run_all};
use serde::Serialize;
use ullage_voucher::bank::Waits;

/// How much is simulated. The paper: ten runs of an hour, ten minutes measured, epochs of ten minutes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Scale {
    /// Runs of each point.
    pub runs: u32,
    /// Everything that is measured in time (the run, the measured part, epochs, windows) is this part of the paper's.
    pub time: f64,
    /// The same for the scientific load, which has far more writes.
    pub scientific_time: f64,
    /// Threads.
    pub threads: usize,
    /// The first seed; each run takes the next.
    pub seed: u64,
}

impl Scale {
    /// The paper's.
    pub const PAPER: Self = Self { runs: 10, time: 1.0, scientific_time: 1.0, threads: 2, seed: 1 };
}

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Its name: of the files, too.
    pub name: &'static str,
    /// What the paper says.
    pub claim: &'static str,
    /// What was found here, in a sentence.
    pub verdict: String,
    /// The chart.
    pub chart: Chart,
}

impl Figure {
    /// Whether there was something to measure: what was not simulated long enough has no quotients.
    pub fn says_something(&self) -> bool {
        !["NaN", "inf"].iter().any(|none| self.verdict.contains(none))
    }
}

/// A larger request of the scientific load, in bytes.
const LARGER: u64 = 2 << 20;

/// One line: what distinguishes it, its abscissae, and its models.
type Series = (String, Vec<(f64, Model)>);

/// What the runs of a line measured.
type Taken = (String, Vec<(f64, Vec<Measured>)>);

/// One value of each point.
fn lines_of(taken: &[Taken], value: impl Fn(&Measured) -> f64) -> Vec<Line> {
    let point = |(x, runs): &(f64, Vec<Measured>)| {
        let (y, ci) = confidence(&runs.iter().map(&value).collect::<Vec<_>>());
        Point { x: *x, y, ci }
    };
    let line = |(name, points): &Taken| Line { name: name.clone(), points: points.iter().map(point).collect() };
    taken.iter().map(line).collect()
}

fn scaled(model: Model, part: f64) -> Model {
    Model {
        seconds: model.seconds * part,
        measure: model.measure * part,
        epoch: model.epoch * part,
        window: model.window * part,
        ..model
    }
}

struct Study {
    scale: Scale,
}

impl Study {
    fn runs(&self, model: &Model) -> Vec<Measured> {
        let models: Vec<Model> =
            (0..self.scale.runs).map(|run| Model { seed: self.scale.seed + u64::from(run), ..model.clone() }).collect();
        run_all(&models, self.scale.threads)
    }

    /// All runs of all points.
    fn measure(&self, series: Vec<Series>) -> Vec<Taken> {
        let all = series
            .into_iter()
            .map(|(name, points)| (name, points.into_iter().map(|(x, model)| (x, self.runs(&model))).collect()));
        all.collect()
    }

    /// All runs of all points, then one value of each.
    fn lines(&self, series: Vec<Series>, value: impl Fn(&Measured) -> f64) -> Vec<Line> {
        lines_of(&self.measure(series), value)
    }

    fn base(&self) -> Model {
        scaled(Model::default(), self.scale.time)
    }
}

const SCHEMES: [(&str, Scheme); 3] =
    [("no quota", Scheme::None), ("vouchers", Scheme::Voucher), ("centralised", Scheme::Centralized)];

fn at(line: &Line, x: f64) -> f64 {
    line.points.iter().find(|point| (point.x - x).abs() < 1e-9).map_or(f64::NAN, |point| point.y)
}

/// The largest load whose latency is below twice that of the smallest.
fn saturation(line: &Line) -> f64 {
    let first = line.points.first().map_or(f64::NAN, |point| point.y);
    line.points.iter().take_while(|point| point.y < 2.0 * first).last().map_or(f64::NAN, |point| point.x)
}

/// The largest load that the management servers can carry, from how busy they are with a lower one: what comes must take them no
/// more time than passes.
fn carried(busy: &Line, load: f64) -> f64 {
    load / at(busy, load)
}

type Maker = fn(&Study) -> Figure;

const FIGURES: [(&str, Maker); 14] = [
    ("figure-05", Study::figure_5),
    ("figure-06", Study::figure_6),
    ("figure-07", Study::figure_7),
    ("figure-04", Study::figure_4),
    ("figure-12", Study::figure_12),
    ("figure-12-window", Study::figure_12_window),
    ("figure-10", Study::figure_10),
    ("figure-11", Study::figure_11),
    ("figure-08", Study::figure_8),
    ("figure-13", Study::figure_13),
    ("figure-14", Study::figure_14),
    ("figure-09", Study::figure_9),
    ("sweep-x", Study::sweep_x),
    ("sweep-k", Study::sweep_k),
];

/// What figures there are, by name.
pub fn names() -> impl Iterator<Item = &'static str> {
    FIGURES.iter().map(|(name, _)| *name)
}

/// Runs every figure, or the one of this name; `each` gets them as they are done, until it has an error.
pub fn study<E>(scale: Scale, only: Option<&str>, each: &mut dyn FnMut(Figure) -> Result<(), E>) -> Result<(), E> {
    let study = Study { scale };
    let wanted = FIGURES.iter().filter(|(name, _)| only.is_none_or(|only| only == *name));
    wanted.map(|(_, figure)| figure(&study)).try_for_each(each)
}

impl Study {
    fn figure_4(&self) -> Figure {
        let model = Model { seconds: 600.0, measure: 300.0, ..Model::default() };
        let runs = self.runs(&model);
        let points: Vec<Point> = (0..20)
            .map(|bin| {
                let values: Vec<f64> = runs.iter().map(|run| run.series_ms[bin]).collect();
                let (y, ci) = confidence(&values);
                Point { x: bin as f64 * 30.0, y, ci }
            })
            .collect();
        let later: Vec<f64> = points[2..].iter().map(|point| point.y).collect();
        let (mean, _) = confidence(&later);
        let apart = later.iter().map(|y| (y / mean - 1.0).abs()).fold(0.0, f64::max);
        Figure {
            name: "figure-04",
            claim: "The system stabilises in the first minute.",
            verdict: format!(
                "After the first minute every 30 s mean is within {:.2} % of the later mean of {mean:.3} ms: {}.",
                apart * 100.0,
                holds(apart < 0.02)
            ),
            chart: Chart {
                title: "Figure 4: latency over time, 1000 users".into(),
                x: "simulated seconds".into(),
                y: "ms".into(),
                top: None,
                lines: vec![Line { name: "vouchers".into(), points }],
            },
        }
    }

    fn figure_5(&self) -> Figure {
        let service = Model::default().metadata_service;
        let users: [u32; 7] = [400, 800, 1000, 1200, 1400, 1500, 1600];
        let points = users.iter().map(|users| {
            let model = Model { scheme: Scheme::None, reads: 0.0, writes: 0.0, ..self.base() }.users(*users);
            (f64::from(*users), model)
        });
        let lines = self.lines(vec![("simulated".into(), points.collect())], |run| run.queue_ms);
        let theory: Vec<Point> = users
            .iter()
            .map(|users| {
                let (lambda, mu) = (f64::from(*users), 1.0 / service);
                Point { x: f64::from(*users), y: lambda / (mu - lambda) / (2.0 * mu) * 1e3, ci: 0.0 }
            })
            .collect();
        let worst = theory.iter().map(|p| (at(&lines[0], p.x) / p.y - 1.0).abs()).fold(0.0, f64::max);
        let mut lines = lines;
        lines.push(Line { name: "M/D/1".into(), points: theory });
        Figure {
            name: "figure-05",
            claim: "Queue time at the management server agrees with M/D/1.",
            verdict: format!(
                "The largest deviation from λ/(μ−λ)·1/(2μ) is {:.1} % (at the highest load): {}.",
                worst * 100.0,
                holds(worst < 0.1)
            ),
            chart: Chart {
                title: "Figure 5: queue time at a management server".into(),
                x: "I/Os a second at each server".into(),
                y: "ms".into(),
                top: None,
                lines,
            },
        }
    }

    fn figure_6(&self) -> Figure {
        let users: [u32; 7] = [400, 800, 1200, 1400, 1500, 1600, 1700];
        let series = SCHEMES
            .iter()
            .map(|(name, scheme)| {
                let points = users
                    .iter()
                    .map(|users| (f64::from(*users), Model { scheme: *scheme, ..self.base() }.users(*users)));
                ((*name).to_owned(), points.collect())
            })
            .collect();
        let taken = self.measure(series);
        let lines = lines_of(&taken, |run| run.latency_ms);
        let most: Vec<f64> = lines_of(&taken, |run| run.busy).iter().map(|busy| carried(busy, 1400.0)).collect();
        let (vouchers, centralised) = (most[1] / most[0], most[2] / most[0]);
        let over = |line: &Line, x| (at(line, x) / at(&lines[0], x) - 1.0) * 100.0;
        let below: Vec<String> =
            [400.0, 800.0, 1200.0, 1400.0].iter().map(|x| format!("{:+.2}", over(&lines[1], *x))).collect();
        let central: Vec<String> =
            [400.0, 800.0, 1200.0].iter().map(|x| format!("{:+.2}", over(&lines[2], *x))).collect();
        let ok = [400.0, 800.0, 1200.0, 1400.0].iter().all(|x| over(&lines[1], *x) < 0.2);
        Figure {
            name: "figure-06",
            claim: "Below saturation both schemes cost less than 0.2 %; vouchers saturate with no quota at 1600 users, \
                    the centralised scheme at 1500.",
            verdict: format!(
                "Vouchers cost {} % at 400, 800, 1200 and 1400 users ({}); centralised {} % at 400, 800, 1200. The servers can \
                 carry {:.0} (none), {:.0} (vouchers), {:.0} (centralised) users, {vouchers:.3} and {centralised:.3} of those without \
                 quota (claim 1 and 1500 of 1600, 0.94: {}). The last load below twice the unloaded latency is \
                 {} (none), {} (vouchers), {} (centralised) users.",
                below.join(", "),
                holds(ok),
                central.join(", "),
                most[0],
                most[1],
                most[2],
                holds((vouchers - 1.0).abs() < 0.005 && (centralised - 0.9375).abs() < 0.015),
                saturation(&lines[0]),
                saturation(&lines[1]),
                saturation(&lines[2]),
            ),
            chart: Chart {
                title: "Figure 6: user workload".into(),
                x: "users, 10 I/Os a second each".into(),
                y: "mean latency, ms".into(),
                top: Some(20.0),
                lines,
            },
        }
    }

    fn figure_7(&self) -> Figure {
        let rates = [500.0, 1000.0, 1500.0, 2000.0, 3000.0, 4000.0, 5000.0, 5500.0];
        let base = scaled(Model::default(), self.scale.scientific_time);
        let series = SCHEMES
            .iter()
            .map(|(name, scheme)| {
                let points =
                    rates.iter().map(|rate| (*rate, Model { scheme: *scheme, ..base.clone() }.scientific(*rate)));
                ((*name).to_owned(), points.collect())
            })
            .collect();
        let lines = self.lines(series, |run| run.latency_ms);
        let over = |line: &Line, x| (at(line, x) / at(&lines[0], x) - 1.0) * 100.0;
        // The paper gives no size of a request, and the cost of a transaction is in proportion to how long one takes.
        let larger = |scheme| {
            let model = Model { scheme, ..base.clone() }.scientific(500.0);
            let runs = self.runs(&Model { request: LARGER, ..model });
            confidence(&runs.iter().map(|run| run.latency_ms).collect::<Vec<_>>()).0
        };
        let over_larger = (larger(Scheme::Centralized) / larger(Scheme::None) - 1.0) * 100.0;
        Figure {
            name: "figure-07",
            claim: "Vouchers cost nothing and saturate with no quota at 5000 I/Os a second; the centralised scheme costs \
                    about 8 % and saturates at a third to a half of that.",
            verdict: format!(
                "At 500, 1000, 3000 I/Os a second vouchers cost {:+.2}, {:+.2}, {:+.2} % (claim of under 0.2 %: {}); \
                 centralised {:+.1} % at 500, and {over_larger:+.1} % with requests of 2 MiB instead of \
                 1. The last load below twice the unloaded latency is {} (none), {} (vouchers), {} (centralised).",
                over(&lines[1], 500.0),
                over(&lines[1], 1000.0),
                over(&lines[1], 3000.0),
                holds([500.0, 1000.0, 3000.0].iter().all(|x| over(&lines[1], *x) < 0.2)),
                over(&lines[2], 500.0),
                saturation(&lines[0]),
                saturation(&lines[1]),
                saturation(&lines[2]),
            ),
            chart: Chart {
                title: "Figure 7: scientific workload".into(),
                x: "I/Os a second, on average".into(),
                y: "mean latency, ms".into(),
                top: Some(30.0),
                lines,
            },
        }
    }

    fn figure_8(&self) -> Figure {
        let users: [u32; 4] = [400, 800, 1200, 1500];
        let kinds = [("fixed, 64 KiB", Asking::Fixed), ("adaptive", Asking::Adaptive), ("expected", Asking::Expected)];
        let series = kinds
            .iter()
            .map(|(name, asking)| {
                let points = users
                    .iter()
                    .map(|users| (f64::from(*users), Model { asking: *asking, ..self.base() }.users(*users)));
                ((*name).to_owned(), points.collect())
            })
            .collect();
        let lines = self.lines(series, |run| run.messages);
        let ratio = at(&lines[1], 1200.0) / at(&lines[2], 1200.0);
        Figure {
            name: "figure-08",
            claim: "The adaptive policy sends about as many messages as the expected one.",
            verdict: format!(
                "At 1200 users adaptive sends {:.2} messages a second that ride on no other, expected {:.2}, fixed {:.2}: \
                 a ratio of {ratio:.2}, {}.",
                at(&lines[1], 1200.0),
                at(&lines[2], 1200.0),
                at(&lines[0], 1200.0),
                holds(ratio < 1.5)
            ),
            chart: Chart {
                title: "Figure 8: voucher requests that ride on no other message".into(),
                x: "users".into(),
                y: "messages a second".into(),
                top: None,
                lines,
            },
        }
    }

    fn figure_9(&self) -> Figure {
        let windows = [60.0, 300.0, 600.0, 1200.0];
        let points = windows.iter().map(|w| (*w, Model { window: w * self.scale.time, ..self.base() }));
        let lines = self.lines(vec![("adaptive, 1000 users".into(), points.collect())], |run| run.latency_ms);
        let spread = spread(&lines[0]);
        Figure {
            name: "figure-09",
            claim: "The adaptive policy is insensitive to its window.",
            verdict: format!(
                "Mean latency differs by {spread:.2} % over windows of 1 to 20 min: {}.",
                holds(spread < 1.0)
            ),
            chart: Chart {
                title: "Figure 9: window of the adaptive policy".into(),
                x: "window, seconds of the paper's time".into(),
                y: "mean latency, ms".into(),
                top: None,
                lines,
            },
        }
    }

    fn exhausted(&self, revocation: Option<Waits>) -> (Vec<Line>, f64, f64) {
        let half_hour = 1800.0 * Model::default().rate * 0.02 * 4096.0;
        let model = Model { revocation, quota: Some(half_hour as u64), ..Model::default() };
        let runs = self.runs(&model);
        let bins = (model.seconds / 30.0) as usize;
        let line = |name: &str, series: fn(&Measured) -> &Vec<f64>| {
            let points = (0..bins)
                .map(|bin| {
                    let values: Vec<f64> =
                        runs.iter().map(|run| series(run)[bin]).filter(|value| value.is_finite()).collect();
                    let (y, ci) = confidence(&values);
                    Point { x: bin as f64 * 0.5, y, ci }
                })
                .collect();
            Line { name: name.to_owned(), points }
        };
        let lines = vec![
            line("the user whose quota runs out", |run| &run.special_ms),
            line("all others", |run| &run.series_ms),
        ];
        let before: Vec<f64> = lines[0].points.iter().filter(|p| (5.0..20.0).contains(&p.x)).map(|p| p.y).collect();
        let usual = before.iter().copied().fold(0.0, f64::max);
        let peak = lines[0].points.iter().filter(|p| p.x >= 20.0).map(|p| p.y).fold(0.0, f64::max);
        (lines, usual, peak)
    }

    fn figure_10(&self) -> Figure {
        let (mut lines, usual, peak) = self.exhausted(Some(Waits::Enough));
        let (answers, _, peak_of_answers) = self.exhausted(Some(Waits::Answers));
        lines.extend(
            answers.into_iter().take(1).map(|line| Line { name: format!("{}, answers only", line.name), ..line }),
        );
        Figure {
            name: "figure-10",
            claim: "With revocation the user who runs out suffers a large increase in latency at the end.",
            verdict: format!(
                "The highest 30 s mean is {peak:.1} ms from minute 20 on against {usual:.1} ms before: {}. Where requests wait \
                 for no more than the answers of the other clients it is {peak_of_answers:.1} ms.",
                holds(peak > 2.0 * usual)
            ),
            chart: Chart {
                title: "Figure 10: running out of quota, revocation".into(),
                x: "simulated minutes".into(),
                y: "mean latency, ms".into(),
                top: None,
                lines,
            },
        }
    }

    fn figure_11(&self) -> Figure {
        let (lines, usual, peak) = self.exhausted(None);
        Figure {
            name: "figure-11",
            claim: "With limiting there is no noticeable difference as the quota runs out.",
            verdict: format!(
                "The highest 30 s mean is {peak:.2} ms from minute 20 on against {usual:.2} ms before: {}.",
                holds(peak < 1.25 * usual)
            ),
            chart: Chart {
                title: "Figure 11: running out of quota, limiting".into(),
                x: "simulated minutes".into(),
                y: "mean latency, ms".into(),
                top: None,
                lines,
            },
        }
    }

    fn figure_12(&self) -> Figure {
        let rates = [250.0, 500.0, 1000.0];
        let base = scaled(Model::default(), self.scale.scientific_time);
        let series = [("writes only", false), ("writes and deletes balanced", true)]
            .iter()
            .map(|(name, balanced)| {
                let points = rates.iter().map(|rate| {
                    let model = base.clone().scientific(*rate);
                    let deletes = if *balanced { 0.3 } else { 0.0 };
                    (*rate, Model { writes: 0.3, deletes, ..model })
                });
                ((*name).to_owned(), points.collect())
            })
            .collect();
        let lines = self.lines(series, |run| run.withdrawals);
        let ratio = at(&lines[1], 1000.0) / at(&lines[0], 1000.0);
        Figure {
            name: "figure-12",
            claim: "Requests to the quota server are drastically reduced when writes and deletes balance.",
            verdict: format!(
                "At 1000 I/Os a second {:.2} requests a second become {:.2}, a factor of {ratio:.2}: {}.",
                at(&lines[0], 1000.0),
                at(&lines[1], 1000.0),
                holds(ratio < 0.7)
            ),
            chart: Chart {
                title: "Figure 12: balanced deletes, scientific workload".into(),
                x: "I/Os a second".into(),
                y: "voucher requests a second".into(),
                top: None,
                lines,
            },
        }
    }

    /// Why figure 12 turns round at small scales, where the window shrinks and the minute between two checkpoints does not.
    fn figure_12_window(&self) -> Figure {
        let windows = [12.0, 30.0, 60.0, 120.0, 300.0, 600.0];
        let series = [("writes only", 0.0), ("writes and deletes balanced", 0.3)].iter().map(|(name, deletes)| {
            let points = windows.iter().map(|window| {
                let base = Model { seconds: 1800.0, window: *window, ..Model::default() }.scientific(250.0);
                (*window, Model { writes: 0.3, deletes: *deletes, ..base })
            });
            ((*name).to_owned(), points.collect())
        });
        let lines = self.lines(series.collect(), |run| run.withdrawals);
        let ratios: Vec<f64> = windows.iter().map(|window| at(&lines[1], *window) / at(&lines[0], *window)).collect();
        let told: Vec<String> = windows.iter().zip(&ratios).map(|(w, ratio)| format!("{ratio:.2} at {w} s")).collect();
        Figure {
            name: "figure-12-window",
            claim: "(Not in the paper: its window is ten minutes.) Balanced deletes save requests whatever the window.",
            verdict: format!(
                "Requests with balanced deletes over those without: {}; the load repeats every 60 s: {}.",
                told.join(", "),
                holds(ratios.iter().all(|ratio| *ratio < 0.7))
            ),
            chart: Chart {
                title: "Figure 12 over the window of the policy, 250 I/Os a second".into(),
                x: "window, seconds".into(),
                y: "voucher requests a second".into(),
                top: None,
                lines,
            },
        }
    }

    fn figure_13(&self) -> Figure {
        let epochs = [60.0, 300.0, 600.0, 1200.0];
        let points = epochs.iter().map(|e| (*e, Model { epoch: e * self.scale.time, ..self.base() }));
        let lines = self.lines(vec![("vouchers, 1000 users".into(), points.collect())], |run| run.latency_ms);
        let spread = spread(&lines[0]);
        Figure {
            name: "figure-13",
            claim: "Performance improves very slightly for longer epochs.",
            verdict: format!(
                "From epochs of 1 min to 20 min mean latency goes from {:.4} to {:.4} ms (all within {spread:.2} %): {}.",
                at(&lines[0], 60.0),
                at(&lines[0], 1200.0),
                if at(&lines[0], 60.0) >= at(&lines[0], 1200.0) && spread < 1.0 {
                    "holds"
                } else {
                    "no improvement beyond the noise, nor harm"
                }
            ),
            chart: Chart {
                title: "Figure 13: length of an epoch".into(),
                x: "epoch, seconds of the paper's time".into(),
                y: "mean latency, ms".into(),
                top: None,
                lines,
            },
        }
    }

    fn figure_14(&self) -> Figure {
        let clients: [u32; 5] = [1, 10, 25, 50, 100];
        let points = clients.iter().map(|n| (f64::from(*n), Model { clients_per_user: *n, ..self.base() })).collect();
        let lines = self.lines(vec![("vouchers, 1000 users".into(), points)], |run| run.latency_ms);
        let more = (at(&lines[0], 100.0) / at(&lines[0], 1.0) - 1.0) * 100.0;
        Figure {
            name: "figure-14",
            claim: "Less than 0.5 % more latency from 0 to 100 clients a user.",
            verdict: format!(
                "From 1 to 100 clients a user mean latency changes by {more:+.2} %: {}.",
                holds(more < 0.5)
            ),
            chart: Chart {
                title: "Figure 14: users over more clients".into(),
                x: "clients of each user".into(),
                y: "mean latency, ms".into(),
                top: None,
                lines,
            },
        }
    }

    fn sweep_x(&self) -> Figure {
        let points = (1..=4).map(|x| (x as f64, Model { expiry: x, reconcile: x + 1, ..self.base() })).collect();
        self.sweep("sweep-x", "Sweep of X, K = X + 1", "X, epochs", points)
    }

    fn sweep_k(&self) -> Figure {
        let points = (3..=6).map(|k| (k as f64, Model { reconcile: k, ..self.base() })).collect();
        self.sweep("sweep-k", "Sweep of K, X = 2", "K, epochs", points)
    }

    fn sweep(&self, name: &'static str, title: &str, x: &str, points: Vec<(f64, Model)>) -> Figure {
        let lines = self.lines(vec![("vouchers, 1000 users".into(), points)], |run| run.latency_ms);
        let spread = spread(&lines[0]);
        Figure {
            name,
            claim: "No significant effect on performance (the paper omits the figure).",
            verdict: format!("Mean latency differs by {spread:.2} %: {}.", holds(spread < 1.0)),
            chart: Chart { title: title.into(), x: x.into(), y: "mean latency, ms".into(), top: None, lines },
        }
    }
}

fn holds(holds: bool) -> &'static str {
    if holds { "holds" } else { "does not hold here" }
}

/// The largest difference between two points, in per cent of the smallest.
fn spread(line: &Line) -> f64 {
    let low = line.points.iter().map(|point| point.y).fold(f64::INFINITY, f64::min);
    let high = line.points.iter().map(|point| point.y).fold(0.0, f64::max);
    (high / low - 1.0) * 100.0
}
