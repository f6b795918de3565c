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
    let t = T.get(values.len() - 2).copied().unwrap_or_else(|| student(n - 1.0));
    (mean, t * (variance / n).sqrt())
}

/// What bounds the middle 95 % of Student's distribution, for eleven degrees of freedom and more: the first terms of its expansion around
/// the normal one's.
fn student(freedom: f64) -> f64 {
    const Z: f64 = 1.959_964;
    let first = (Z.powi(3) + Z) / 4.0;
    let second = (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / 96.0;
    let third = (3.0 * Z.powi(7) + 19.0 * Z.powi(5) + 17.0 * Z.powi(3) - 15.0 * Z) / 384.0;
    Z + first / freedom + second / freedom.powi(2) + third / freedom.powi(3)
}

/// Runs models on this many threads, results in order.
pub fn run_all(models: &[Model], threads: usize) -> Vec<Measured> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let results = std::sync::Mutex::new(vec![None; models.len()]);
    crate::threads::on_threads(threads, models.len(), &|| {
        loop {
            let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let Some(model) = models.get(at) else { break };
            let measured = run(model);
            if let Ok(mut results) = results.lock() {
                results[at] = Some(measured);
            }
        }
    });
    results.into_inner().unwrap_or_default().into_iter().map(Option::unwrap_or_default).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: all the other figures were simulated, for hours, though the first could not be written.
    #[test]
    fn a_study_ends_with_the_first_error() {
        let scale = Scale { runs: 1, time: 0.01, scientific_time: 0.01, ..Scale::PAPER };
        let mut figures = Vec::new();
        let result = study(scale, None, &mut |figure| {
            figures.push(figure.name);
            Err("no room")
        });
        assert_eq!((result, figures), (Err("no room"), names().take(1).collect()));
    }

    /// Regression: from the twelfth run on the intervals were those of infinitely many.
    #[test]
    fn intervals_are_students_for_any_number_of_runs() {
        // Of this many values, and what tables say.
        for (n, t) in
            [(2, 12.706), (11, 2.228), (12, 2.201), (13, 2.179), (16, 2.131), (21, 2.086), (31, 2.042), (121, 1.980)]
        {
            let values: Vec<f64> = (0..n).map(|value| f64::from(value) * f64::from(value)).collect();
            let mean = values.iter().sum::<f64>() / f64::from(n);
            let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / f64::from(n - 1);
            let (_, half) = confidence(&values);
            let found = half / (variance / f64::from(n)).sqrt();
            assert!((found - t).abs() < 1e-3, "{n} values: {found} instead of {t}");
        }
    }
}
