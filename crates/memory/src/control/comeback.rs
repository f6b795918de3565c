//! When the user comes back and memory is short: freeze, shrink, thaw; kill only as configured.

use super::action::Action;
use super::config::Config;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Where the contributed group stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Running within its limit.
    #[default]
    Running,
    /// Frozen since then, shrinking to its limit.
    Shrinking {
        /// Time of freezing, since the controller's start.
        since: Duration,
    },
}

/// Freezing starts only beyond this share over the limit: within it the kernel alone keeps the bound.
const SLACK: f64 = 0.02;

impl Phase {
    /// Moves on. `short` says that opaque work is waiting for memory or about to.
    pub fn step(&mut self, config: &Config, short: bool, used: u64, limit: u64, now: Duration) -> Vec<Action> {
        let over = used as f64 > limit as f64 * (1.0 + SLACK) + 256.0;
        match *self {
            Self::Running if short && over => {
                *self = Self::Shrinking { since: now };
                vec![Action::Freeze, Action::Limit(limit)]
            }
            Self::Running => vec![Action::Limit(limit)],
            Self::Shrinking { .. } if !over => {
                *self = Self::Running;
                vec![Action::Limit(limit), Action::Thaw]
            }
            Self::Shrinking { since } => match config.kill_after {
                Some(patience) if now.saturating_sub(since) >= patience => {
                    *self = Self::Running;
                    vec![Action::Kill, Action::Thaw]
                }
                _ => vec![Action::Limit(limit)],
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn shortage_freezes_then_shrinks_then_thaws() {
        let config = Config::default();
        let mut phase = Phase::default();
        assert_eq!(phase.step(&config, true, 50_000, 20_000, S), [Action::Freeze, Action::Limit(20_000)]);
        assert_eq!(phase.step(&config, true, 30_000, 20_000, 2 * S), [Action::Limit(20_000)]);
        assert_eq!(phase.step(&config, true, 20_100, 20_000, 3 * S), [Action::Limit(20_000), Action::Thaw]);
    }

    #[test]
    fn nothing_is_killed_unless_configured() {
        let mut phase = Phase::default();
        let patient = Config::default();
        phase.step(&patient, true, 50_000, 20_000, S);
        assert_eq!(phase.step(&patient, true, 50_000, 20_000, 1000 * S), [Action::Limit(20_000)]);
        let strict = Config { kill_after: Some(5 * S), ..Config::default() };
        assert_eq!(phase.step(&strict, true, 50_000, 20_000, 7 * S), [Action::Kill, Action::Thaw]);
    }

    #[test]
    fn without_shortage_the_bound_alone_does_it() {
        let mut phase = Phase::default();
        assert_eq!(phase.step(&Config::default(), false, 50_000, 20_000, S), [Action::Limit(20_000)]);
    }
}
