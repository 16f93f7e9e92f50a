//! What consumers must reach, and whether they did.

use onlyonce_bench::figures::{median, rounded};
use onlyonce_bench::goal::{self, Goal, Verdict};
use onlyonce_bench::measured::FOREIGN_MAX;

use crate::pair::{Pair, Way};
use crate::run::Results;
use crate::table::{of, times_naive};

/// Messages a second with the inbox in `PostgreSQL`, in batches.
const POSTGRES: f64 = 30_000.0;
/// How many times as fast as the naive loop.
const NAIVE: f64 = 8.0;

/// The goals as a table; nothing when nothing was measured.
pub(crate) fn table(results: &Results) -> String {
    let mut goals: Vec<Goal> = postgres_rate(results).into_iter().collect();
    goals.extend(Pair::ALL.into_iter().filter_map(|pair| beside_naive(results, pair)));
    goal::table(&goals)
}

fn postgres_rate(results: &Results) -> Option<Goal> {
    let rounds = of(results, Pair::KafkaPostgres, Way::Ours);
    let rate = median(rounds.iter().map(|one| one.measured.requests_per_second))?;
    Some(Goal {
        name: format!("at least {} messages/s with the inbox in PostgreSQL, in batches", rounded(POSTGRES)),
        measured: rounded(rate),
        verdict: verdict(results, Pair::KafkaPostgres, rate >= POSTGRES),
    })
}

fn beside_naive(results: &Results, pair: Pair) -> Option<Goal> {
    let times = times_naive(results, pair)?;
    Some(Goal {
        name: format!("{}: at least {NAIVE} × the naive loop", pair.name()),
        measured: format!("{times:.1} ×"),
        verdict: verdict(results, pair, times >= NAIVE),
    })
}

/// Met or not; what is not sound is not met, and what others disturbed says nothing.
fn verdict(results: &Results, pair: Pair, met: bool) -> Verdict {
    let rounds: Vec<_> = Way::ALL.into_iter().flat_map(|way| of(results, pair, way)).collect();
    if rounds.iter().any(|one| !one.measured.faults.is_empty()) {
        return Verdict::NotMet;
    }
    let foreign = median(rounds.iter().map(|one| one.measured.foreign)).unwrap_or_default();
    if foreign > FOREIGN_MAX { Verdict::Disturbed(foreign) } else { Verdict::of(met) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::sample;

    #[test]
    fn goals_are_met_only_by_sound_figures() {
        let rows = |ours, faults| {
            let rows: [(Pair, Way, f64, &[&str]); 2] = [
                (Pair::KafkaPostgres, Way::Ours, ours, &[]),
                (Pair::KafkaPostgres, Way::Naive, 2_000.0, faults),
            ];
            table(&sample(&rows))
        };
        let met = rows(40_000.0, &[]);
        assert_eq!(met.matches("| yes |").count(), 2, "{met}");
        assert!(met.contains("| 20.0 × | yes |"), "{met}");
        let slow = rows(15_000.0, &[]);
        assert_eq!(slow.matches("NOT met").count(), 2, "{slow}");
        let broken = rows(40_000.0, &["an effect twice"]);
        assert_eq!(broken.matches("NOT met").count(), 2, "{broken}");
        assert_eq!(table(&sample(&[])), "");
    }
}
