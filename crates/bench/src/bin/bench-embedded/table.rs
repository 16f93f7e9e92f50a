//! The results as Markdown, for a terminal and for `docs/performance.md`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use onlyonce_bench::figures::{median, readable, rounded, thousands};
use onlyonce_bench::machine;

use crate::callers::{Latency, Level, THREADS};
use crate::engine::Kind;
use crate::goals;
use crate::run::{Recovery, Results, Retained};
use crate::task::{Kept, Opened};

type Rounds = BTreeMap<Kind, Vec<Opened>>;

/// Every table.
pub(crate) fn all(results: &Results) -> String {
    let mut text = head(results);
    for (state, rounds) in
        [("empty at first".to_owned(), &results.empty), (stored(results.records), &results.loaded)]
    {
        for &callers in &results.callers {
            text += &throughput(&state, callers, rounds);
        }
    }
    text += &space(results);
    text += &results.recovery.map(recovery).unwrap_or_default();
    text += &results.retained.as_ref().map(retention).unwrap_or_default();
    text += &goals::table(results);
    for (kind, reason) in &results.failed {
        let _ = writeln!(text, "\n**{} FAILED** and is not shown: {reason}", kind.name());
    }
    text
}

fn stored(records: u64) -> String {
    format!("{} records stored", thousands(records))
}

fn head(results: &Results) -> String {
    let (foreign, worst) = results.foreign();
    format!(
        "Median of {} rounds of {}, engines in another order each time; callers on {THREADS} threads; {} processors, \
         {}; {:.0} minutes in all. Others used {:.0} % of the processors meanwhile, {:.0} % at worst (load average {} \
         before the run). Latencies in milliseconds.\n",
        results.rounds,
        readable(results.window),
        machine::processors(),
        results.file_system,
        results.took.as_secs_f64() / 60.0,
        foreign * 100.0,
        worst * 100.0,
        results.load_before,
    )
}

fn throughput(state: &str, callers: usize, rounds: &Rounds) -> String {
    let plural = if callers == 1 { "" } else { "s" };
    let mut table = format!(
        "\n**{callers} caller{plural}, {state}**\n\n\
         | engine | pairs/s | lowest–highest | of the bare log | CPU µs/pair | others' CPU % | claim p50 | p99 | p99.9 | complete p50 | p99 | p99.9 |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
    );
    let ceiling = rounds.get(&Kind::Log).and_then(|rounds| pairs_per_second(rounds, callers));
    for (kind, rounds) in rounds {
        let Some(pairs) = pairs_per_second(rounds, callers) else { continue };
        let rates: Vec<_> = at(rounds, callers).map(|level| level.pairs_per_second).collect();
        let (low, high) =
            rates.iter().fold((f64::MAX, 0.0_f64), |(low, high), rate| (low.min(*rate), high.max(*rate)));
        let share = ceiling.map_or("–".into(), |ceiling| format!("{:.2}", pairs / ceiling));
        let _ = writeln!(
            table,
            "| {} | {} | {}–{} | {share} | {:.1} | {:.0} | {} | {} |",
            kind.name(),
            rounded(pairs),
            rounded(low),
            rounded(high),
            median(at(rounds, callers).map(|level| level.processor_micros)).unwrap_or_default(),
            median(at(rounds, callers).map(|level| level.foreign)).unwrap_or_default() * 100.0,
            latencies(rounds, callers, |level| level.claim),
            latencies(rounds, callers, |level| level.complete),
        );
    }
    table
}

/// What was measured at `callers` in each round.
fn at(rounds: &[Opened], callers: usize) -> impl Iterator<Item = &Level> {
    rounds.iter().flat_map(|opened| &opened.levels).filter(move |level| level.callers == callers)
}

pub(crate) fn pairs_per_second(rounds: &[Opened], callers: usize) -> Option<f64> {
    median(at(rounds, callers).map(|level| level.pairs_per_second))
}

/// The slowest of a thousand claims or completions, whichever is slower, in microseconds.
pub(crate) fn slowest(rounds: &[Opened], callers: usize) -> Option<u32> {
    median(at(rounds, callers).map(|level| level.claim.p999.max(level.complete.p999)))
}

fn latencies(rounds: &[Opened], callers: usize, of: fn(&Level) -> Latency) -> String {
    let column = |pick: fn(Latency) -> u32| {
        let micros = median(at(rounds, callers).map(|level| pick(of(level)))).unwrap_or_default();
        format!("{:.2}", f64::from(micros) / 1000.0)
    };
    [column(|latency| latency.p50), column(|latency| latency.p99), column(|latency| latency.p999)].join(" | ")
}

fn space(results: &Results) -> String {
    let mut table = format!(
        "\n**Space and opening, {}**\n\n\
         | engine | disk B/record | memory B/record, grown | memory B/record, as it says | open | loaded in |\n\
         |---|---:|---:|---:|---:|---:|\n",
        stored(results.records)
    );
    let bytes = |value: Option<f64>| value.map_or("–".into(), |value| format!("{value:.0}"));
    for (kind, (loaded, _)) in &results.loaded_space {
        let opens = results.loaded.get(kind).into_iter().flatten().map(|opened| opened.open);
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} | {} | {} |",
            kind.name(),
            bytes(results.disk_per_record(*kind)),
            bytes(results.memory_per_record(*kind)),
            bytes(results.own_per_record(*kind)),
            median(opens).map_or("–".into(), readable),
            readable(loaded.took),
        );
    }
    table
}

fn recovery(recovery: Recovery) -> String {
    format!(
        "\n**Opening onlyonce again**: {} with nothing in memory, {} with everything, {} after `kill -9` under load \
         (all of {} answered pairs were there).\n",
        readable(recovery.cold),
        readable(recovery.warm),
        readable(recovery.killed),
        thousands(recovery.answered)
    )
}

fn retention(retained: &Retained) -> String {
    let mut table = String::from(
        "\n**Retention while writing, onlyonce**\n\n\
         | records | pairs/s | lowest–highest | claim p99.9 | complete p99.9 | swept | longest sweep | left on disk |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for (name, kept) in [("kept for a day", &retained.kept), ("expire after 0.5 s", &retained.expired)] {
        let rates: Vec<_> = kept.iter().map(|kept| kept.level.pairs_per_second).collect();
        let low = rates.iter().copied().fold(f64::MAX, f64::min);
        let high = rates.iter().copied().fold(0.0, f64::max);
        let of = |pick: fn(&Kept) -> u64| thousands(median(kept.iter().map(pick)).unwrap_or_default());
        let slow =
            |pick: fn(&Kept) -> u32| f64::from(median(kept.iter().map(pick)).unwrap_or_default()) / 1000.0;
        let _ = writeln!(
            table,
            "| {name} | {} | {}–{} | {:.2} | {:.2} | {} in {} sweeps | {} | {} KiB |",
            rounded(median(rates).unwrap_or_default()),
            rounded(low),
            rounded(high),
            slow(|kept| kept.level.claim.p999),
            slow(|kept| kept.level.complete.p999),
            of(|kept| kept.swept),
            of(|kept| kept.sweeps),
            readable(kept.iter().map(|kept| kept.longest_sweep).max().unwrap_or_default()),
            of(|kept| kept.bytes >> 10),
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_the_rounds_is_shown() {
        let round = |pairs_per_second, p999| Opened {
            open: std::time::Duration::from_secs(1),
            memory_bytes: 0,
            own_bytes: None,
            records: 0,
            levels: vec![Level {
                callers: 64,
                pairs: 10,
                pairs_per_second,
                processor_micros: 12.34,
                foreign: 0.07,
                claim: Latency { p50: 1000, p99: 2000, p999 },
                complete: Latency { p50: 500, p99: 600, p999: 700 },
            }],
        };
        let ours = vec![round(10.0, 3000), round(30.0, 5000), round(20.0, 4000)];
        assert_eq!(slowest(&ours, 64), Some(4000));
        let rounds = BTreeMap::from([(Kind::Onlyonce, ours), (Kind::Log, vec![round(40.0, 1)])]);
        let table = throughput("empty", 64, &rounds);
        assert!(
            table.contains(
                "| onlyonce | 20 | 10–30 | 0.50 | 12.3 | 7 | 1.00 | 2.00 | 4.00 | 0.50 | 0.60 | 0.70 |"
            ),
            "{table}"
        );
        assert!(throughput("empty", 16, &rounds).ends_with(":|\n"), "nothing was measured at 16");
    }
}
