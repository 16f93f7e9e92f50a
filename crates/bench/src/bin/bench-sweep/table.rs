//! The results: a table and goals for people, JSON for whoever draws pictures of them.

use std::fmt::Write as _;
use std::time::Duration;

use onlyonce_bench::conditions::Conditions;
use onlyonce_bench::figures::{as_float, errors, median, milliseconds, readable, rounded, spread, thousands};
use onlyonce_bench::goal::{self, Goal, Verdict};
use onlyonce_bench::measured::FOREIGN_MAX;
use serde_json::{Value, json};

use crate::load::Seen;
use crate::measure::Measurement;
use crate::run::Results;
use crate::waits;

/// How many times the latency without a sweep that with one may be.
const TIMES_MAX: f64 = 1.5;
/// How long anybody may wait for another transaction.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// Everything, as Markdown.
pub(crate) fn all(results: &Results) -> String {
    let mut text = String::from(
        "| store | expired | swept/s | without: p50 | p99 | while sweeping: p50 | p99 | times | batches | longest | live \
         looked for | errors |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n",
    );
    for one in &results.measurements {
        let (idle, sweeping) = (&one.idle, &one.sweeping);
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            one.kind.name(),
            thousands(one.records),
            rounded(rate(one)),
            ms(idle, 50.0),
            ms(idle, 99.0),
            ms(sweeping, 50.0),
            ms(sweeping, 99.0),
            times(one).map_or_else(|| "-".to_owned(), |times| format!("{times:.2} ×")),
            thousands(one.counted.batches),
            readable(one.counted.longest),
            thousands(one.live),
            errors(&one.faults),
        );
    }
    let Conditions { rounds, window, file_system, took, .. } = &results.conditions;
    let foreign: Vec<_> = results.measurements.iter().map(|one| one.foreign).collect();
    let _ = writeln!(
        text,
        "\nLatencies in milliseconds, of a claim and its completion, {} begun a second whatever became of those before. \
         {rounds} turns of {} without a sweep and with one, then sweeps six times as long until nothing was left; \
         {file_system}; {:.0} minutes in all. {} {}.",
        thousands(results.rate),
        readable(*window),
        took.as_secs_f64() / 60.0,
        results.conditions.meanwhile(&foreign),
        results.servers.join("; "),
    );
    for one in &results.measurements {
        let [idle, sweeping] = one.turns.each_ref().map(|turns| told(turns));
        let _ = writeln!(
            text,
            "\n`{}`, p99 of each turn: without {idle}; while sweeping {sweeping}.",
            one.kind.name()
        );
    }
    text + &goal::table(&goals(results))
}

/// The median of some turns, the lowest and the highest.
fn told(turns: &[u32]) -> String {
    let turns = turns.iter().map(|micros| milliseconds((*micros).into()));
    let (count, middle) = (turns.len(), median(turns.clone()).unwrap_or_default());
    let (lowest, highest) = spread(turns);
    format!("{middle:.2} ({lowest:.2}–{highest:.2}, {count} turns)")
}

fn goals(results: &Results) -> Vec<Goal> {
    let mut goals = Vec::new();
    for one in &results.measurements {
        let name = one.kind.name();
        if let Some(times) = times(one) {
            goals.push(Goal {
                name: format!("`{name}`: p99 while sweeping at most {TIMES_MAX} × that without"),
                measured: format!("{times:.2} ×"),
                verdict: verdict(one, times <= TIMES_MAX),
            });
        }
        goals.push(Goal {
            name: format!("`{name}`: every expired record goes, no live one does"),
            measured: format!(
                "{} went, {} live ones are there",
                thousands(one.counted.removed),
                thousands(one.live)
            ),
            verdict: Verdict::of(one.faults.is_empty()),
        });
        if let Some(waited) = one.waited {
            goals.push(Goal {
                name: format!(
                    "`{name}`: nobody waits for another transaction longer than {}",
                    readable(WAIT_MAX)
                ),
                measured: format!("{} (looked at every {})", readable(waited), readable(waits::LOOK_EVERY)),
                verdict: Verdict::of(waited + waits::LOOK_EVERY <= WAIT_MAX),
            });
        }
    }
    goals
}

/// Met or not; what is not sound is not met, and what others disturbed says nothing.
fn verdict(one: &Measurement, met: bool) -> Verdict {
    if !one.faults.is_empty() {
        Verdict::NotMet
    } else if one.foreign > FOREIGN_MAX {
        Verdict::Disturbed(one.foreign)
    } else {
        Verdict::of(met)
    }
}

fn rate(one: &Measurement) -> f64 {
    as_float(one.counted.removed) / one.swept_in.as_secs_f64().max(f64::MIN_POSITIVE)
}

fn ms(seen: &Seen, percent: f64) -> String {
    seen.percentile(percent)
        .map_or_else(|| "-".to_owned(), |micros| format!("{:.2}", milliseconds(micros.into())))
}

fn times(one: &Measurement) -> Option<f64> {
    Some(f64::from(one.sweeping.percentile(99.0)?) / f64::from(one.idle.percentile(99.0)?.max(1)))
}

/// Everything, as JSON.
pub(crate) fn value(results: &Results) -> Value {
    let Conditions { file_system, load_before, took, .. } = &results.conditions;
    json!({
        "rate": results.rate,
        "file_system": file_system,
        "load_before": load_before,
        "minutes": took.as_secs_f64() / 60.0,
        "servers": results.servers,
        "measurements": results.measurements.iter().map(measurement).collect::<Vec<_>>(),
    })
}

fn measurement(one: &Measurement) -> Value {
    let latency = |seen: &Seen| {
        json!({
            "operations": seen.micros.len(),
            "p50_micros": seen.percentile(50.0),
            "p99_micros": seen.percentile(99.0),
            "p999_micros": seen.percentile(99.9),
        })
    };
    json!({
        "store": one.kind.name(),
        "records": one.records,
        "live": one.live,
        "idle": latency(&one.idle),
        "sweeping": latency(&one.sweeping),
        "times": times(one),
        "turns_p99_micros": { "idle": one.turns[0], "sweeping": one.turns[1] },
        "swept_per_second": rate(one),
        "batches": one.counted.batches,
        "largest_batch": one.counted.largest,
        "longest_batch_ms": u64::try_from(one.counted.longest.as_millis()).unwrap_or(u64::MAX),
        "removed": one.counted.removed,
        "longest_wait_ms": one.waited.map(|waited| waited.as_secs_f64() * 1000.0),
        "foreign": one.foreign,
        "faults": one.faults,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batches::Counted;
    use crate::place::Kind;

    fn sample(sweeping: u32, waited: u64, faults: &[&str]) -> Results {
        let seen = |micros| Seen { micros: vec![micros; 100], faults: Vec::new() };
        let one = Measurement {
            kind: Kind::Postgres,
            records: 1000,
            live: 10,
            idle: seen(1000),
            sweeping: seen(sweeping),
            turns: [vec![900, 1100, 1000], vec![sweeping]],
            swept_in: Duration::from_secs(2),
            counted: Counted { removed: 1000, batches: 2, ..Counted::default() },
            waited: Some(Duration::from_millis(waited)),
            foreign: 0.0,
            faults: faults.iter().map(|fault| (*fault).to_owned()).collect(),
        };
        Results { rate: 500, measurements: vec![one], ..Results::default() }
    }

    #[test]
    fn goals_are_met_only_by_sound_figures() {
        let met = all(&sample(1500, 70, &[]));
        assert_eq!(met.matches("| yes |").count(), 3, "{met}");
        assert!(met.contains("| 1.50 × | yes |") && met.contains("| 500 |"), "{met}");
        assert!(
            met.contains("without 1.00 (0.90–1.10, 3 turns); while sweeping 1.50 (1.50–1.50, 1 turns)"),
            "{met}"
        );
        let slow = all(&sample(1501, 90, &[]));
        assert_eq!(slow.matches("NOT met").count(), 2, "{slow}");
        let broken = all(&sample(1000, 0, &["3 of 10 live records went"]));
        assert_eq!(broken.matches("NOT met").count(), 2, "{broken}");
        assert!(broken.contains("BROKEN: 3 of 10"), "{broken}");
    }

    #[test]
    fn every_measurement_is_told_with_what_was_wrong_with_it() {
        let told = value(&sample(1500, 1, &["lost"]));
        assert_eq!(told["measurements"][0]["times"], 1.5);
        assert_eq!(told["measurements"][0]["faults"][0], "lost");
    }
}
