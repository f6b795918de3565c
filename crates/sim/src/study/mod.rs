//! The paper's simulation study with the shipping code (voucher-quotas, section 4).

mod chart;
mod engine;
mod figures;
mod model;
mod plan;
mod vouchers;

pub use chart::{Chart, Line, Point};
pub use engine::run;
pub use figures::{Figure, Scale, names, study};
pub use model::{Asking, Measured, Model, Scheme, Workload};
pub use plan::{Advice, AdvicePlan, Candidate, PlanError};

/// Mean and half-width of the 95 % confidence interval (Student's t).
pub fn confidence(values: &[f64]) -> (f64, f64) {
    const T: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n.max(1.0);
    if values.len() < 2 {
        return (mean, 0.0);
    }
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let t = T.get(values.len() - 2).copied().unwrap_or(1.96);
    (mean, t * (variance / n).sqrt())
}

/// Runs models on this many threads, results in order.
pub fn run_all(models: &[Model], threads: usize) -> Vec<Measured> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let results = std::sync::Mutex::new(vec![None; models.len()]);
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some(model) = models.get(at) else { break };
                    let measured = run(model);
                    if let Ok(mut results) = results.lock() {
                        results[at] = Some(measured);
                    }
                }
            });
        }
    });
    results.into_inner().unwrap_or_default().into_iter().map(Option::unwrap_or_default).collect()
}
