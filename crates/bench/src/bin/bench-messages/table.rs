//! The results as Markdown, for a terminal and for `docs/performance.md`.

use std::fmt::Write as _;

use onlyonce_bench::figures::{errors, median, rounded, spread, thousands};
use onlyonce_bench::machine;
use onlyonce_bench::measured::Measured;

use crate::goals;
use crate::measure::Measurement;
use crate::pair::{Pair, Way};
use crate::run::Results;

/// Every table.
pub(crate) fn all(results: &Results) -> String {
    let mut text = head(results);
    for pair in Pair::ALL {
        text += &table(results, pair);
    }
    text + &goals::table(results)
}

fn head(results: &Results) -> String {
    let Results { conditions, messages: [ours, naive], bounds: (batch, lanes), servers, measurements } =
        results;
    let foreign: Vec<_> = measurements.iter().map(|one| one.measured.foreign).collect();
    format!(
        "Median of {} of {} messages (naive loops: {}), one in ten a duplicate, all published beforehand; from the first \
         delivery to the last acknowledgement, in another order each time; ratios are those within a round. Up to {batch} \
         messages in a transaction on PostgreSQL, {lanes} at a time. {}. Brokers, stores and consumers share {} \
         processors; {}; {:.0} minutes in all. {} CPU is that of all of them.\n",
        conditions.counted_rounds(),
        thousands(*ours),
        thousands(*naive),
        servers.join(". "),
        machine::processors(),
        conditions.file_system,
        conditions.took.as_secs_f64() / 60.0,
        conditions.meanwhile(&foreign),
    )
}

/// What was measured of one way, round by round.
pub(crate) fn of(results: &Results, pair: Pair, way: Way) -> Vec<&Measurement> {
    results.measurements.iter().filter(|one| one.pair == pair && one.way == way).collect()
}

/// One figure of ours and one of the naive loop as a ratio within each round, the middle of all.
pub(crate) fn times_naive(results: &Results, pair: Pair) -> Option<f64> {
    let naive = of(results, pair, Way::Naive);
    let ratios = of(results, pair, Way::Ours).into_iter().filter_map(|ours| {
        let naive = naive.iter().find(|naive| naive.round == ours.round)?;
        Some(ours.measured.requests_per_second / naive.measured.requests_per_second)
    });
    median(ratios)
}

fn table(results: &Results, pair: Pair) -> String {
    if results.measurements.iter().all(|one| one.pair != pair) {
        return String::new();
    }
    let mut table = format!(
        "\n**{}** (the effect is {})\n\n| | messages/s | lowest–highest | × the naive loop | CPU µs/message | \
         others' CPU % | errors |\n|---|---:|---:|---:|---:|---:|---|\n",
        pair.name(),
        pair.effect()
    );
    for way in Way::ALL {
        let rounds = of(results, pair, way);
        let middle = |figure: fn(&Measured) -> f64| {
            median(rounds.iter().map(|one| figure(&one.measured))).unwrap_or_default()
        };
        let (slowest, fastest) = spread(rounds.iter().map(|one| one.measured.requests_per_second));
        let times = match way {
            Way::Ours => {
                times_naive(results, pair).map_or_else(|| "–".to_owned(), |times| format!("{times:.1}"))
            }
            Way::Naive => "1".to_owned(),
        };
        let _ = writeln!(
            table,
            "| {} | {} | {}–{} | {times} | {:.1} | {:.0} | {} |",
            pair.way(way),
            rounded(middle(|one| one.requests_per_second)),
            rounded(slowest),
            rounded(fastest),
            middle(|one| one.processor_micros),
            middle(|one| one.foreign) * 100.0,
            errors(rounds.iter().flat_map(|one| &one.measured.faults)),
        );
    }
    table
}

/// Results of one round: pair, way, messages a second, faults.
#[cfg(test)]
pub(crate) fn sample(rows: &[(Pair, Way, f64, &[&str])]) -> Results {
    let measurement = |&(pair, way, requests_per_second, faults): &(Pair, Way, f64, &[&str])| Measurement {
        pair,
        way,
        round: 0,
        measured: Measured {
            requests_per_second,
            processor_micros: 20.0,
            foreign: 0.02,
            faults: faults.iter().map(|&fault| fault.to_owned()).collect(),
            ..Measured::default()
        },
    };
    Results {
        servers: vec!["PostgreSQL 15".into()],
        messages: [1000, 100],
        measurements: rows.iter().map(measurement).collect(),
        ..Results::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_tell_the_ratio_and_what_is_broken_says_so() {
        let text = all(&sample(&[
            (Pair::KafkaPostgres, Way::Ours, 40_000.0, &[]),
            (Pair::KafkaPostgres, Way::Naive, 1_000.0, &["1 effect twice"]),
        ]));
        let ours = "| onlyonce, batches in one transaction | 40,000 | 40,000–40,000 | 40.0 | 20.0 | 2 | 0 |";
        assert!(text.contains(ours), "{text}");
        assert!(text.contains("| **BROKEN: 1 effect twice** |"), "{text}");
        assert!(text.contains("mock cluster") && text.contains("PostgreSQL 15"), "{text}");
        assert!(!text.contains("JetStream + Redis"), "it was not measured: {text}");
    }
}
