//! The results as tables in Markdown.

use std::fmt::Write as _;

use onlyonce_bench::figures::{as_float, median, milliseconds, rounded, spread, thousands};
use onlyonce_bench::machine;
use onlyonce_bench::measured::Measured;

use crate::run::{LOADS, Results};
use crate::service::{Load, Store, Woken};

/// What a load is called.
pub(crate) fn name(load: Load) -> String {
    let connections =
        if load.connections == 1 { "1 connection" } else { &format!("{} connections", load.connections) };
    match load.batch {
        1 => format!("claim, then complete; {connections}"),
        batch => format!("batches of {batch}; {connections}"),
    }
}

/// All tables.
pub(crate) fn all(results: &Results) -> String {
    let mut text = conditions(results);
    for store in Store::ALL {
        text += &rates(results, store);
    }
    text + &woken(results) + &results.commands
}

fn conditions(results: &Results) -> String {
    let conditions = &results.conditions;
    let foreign: Vec<_> = results.measurements.iter().map(|one| one.measured.foreign).collect();
    format!(
        "Median of {} of {:.0} s after a warm-up, HTTP/1.1 with connections kept alive; {} processors, {}; {}; {:.0} minutes in \
         all. {} CPU is that of the service alone; a pair is a claim and its completion, which are two requests (or two in a \
         hundred pairs).\n",
        conditions.counted_rounds(),
        conditions.window.as_secs_f64(),
        machine::processors(),
        if conditions.is_pinned {
            "the first for the service, the second for the callers"
        } else {
            "nothing pinned"
        },
        conditions.file_system,
        conditions.took.as_secs_f64() / 60.0,
        conditions.meanwhile(&foreign),
    )
}

fn rates(results: &Results, store: Store) -> String {
    let mut table = format!(
        "\n**onlyonce serve, {}**\n\n| | pairs/s | lowest–highest | p50 ms | p99 ms | CPU µs/pair | busy % of one processor | \
         others' CPU % |\n|---|---:|---:|---:|---:|---:|---:|---:|\n",
        store.name()
    );
    for load in LOADS {
        let rounds: Vec<_> =
            results.measurements.iter().filter(|one| one.store == store && one.load == load).collect();
        let middle = |figure: fn(&Measured) -> f64| {
            median(rounds.iter().map(|one| figure(&one.measured))).unwrap_or_default()
        };
        let (slowest, fastest) = spread(rounds.iter().map(|one| one.measured.requests_per_second));
        let _ = writeln!(
            table,
            "| {} | {} | {}–{} | {:.2} | {:.2} | {:.1} | {:.0} | {:.0} |",
            name(load),
            rounded(middle(|one| one.requests_per_second)),
            rounded(slowest),
            rounded(fastest),
            middle(|one| milliseconds(one.p50_micros)),
            middle(|one| milliseconds(one.p99_micros)),
            middle(|one| one.processor_micros),
            middle(|one| one.busy) * 100.0,
            middle(|one| one.foreign) * 100.0,
        );
    }
    table
}

fn woken(results: &Results) -> String {
    let mut table = format!(
        "\n**{} long polls on one record: from the completion's first byte to each answer**\n\n| | p50 ms | p99 ms | last ms | \
         lowest–highest of the last | memory before, MiB | while all wait, MiB | KiB a long poll | others' CPU % |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        thousands(u64::from(results.waiters))
    );
    for store in Store::ALL {
        let rounds: Vec<&Woken> =
            results.woken.iter().filter(|(of, _)| *of == store).map(|(_, woken)| woken).collect();
        let middle =
            |figure: fn(&Woken) -> f64| median(rounds.iter().map(|one| figure(one))).unwrap_or_default();
        let (soonest, latest) = spread(rounds.iter().map(|one| milliseconds(one.last_micros)));
        let grown = middle(|one| as_float(one.memory[1].saturating_sub(one.memory[0])));
        let _ = writeln!(
            table,
            "| onlyonce serve, {} | {:.0} | {:.0} | {:.0} | {soonest:.0}–{latest:.0} | {:.0} | {:.0} | {:.1} | {:.0} |",
            store.name(),
            middle(|one| milliseconds(one.p50_micros)),
            middle(|one| milliseconds(one.p99_micros)),
            middle(|one| milliseconds(one.last_micros)),
            mebibytes(middle(|one| as_float(one.memory[0]))),
            mebibytes(middle(|one| as_float(one.memory[1]))),
            grown / 1024.0 / f64::from(results.waiters.max(1)),
            middle(|one| one.foreign) * 100.0,
        );
    }
    table
}

fn mebibytes(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Measurement;

    #[test]
    fn rows_tell_rates_and_what_a_long_poll_costs() {
        let measured = Measured { requests_per_second: 12_345.4, p50_micros: 250, ..Measured::default() };
        let woken = Woken { last_micros: 90_000, memory: [10 << 20, 30 << 20], ..Woken::default() };
        let results = Results {
            measurements: vec![Measurement { store: Store::File, load: LOADS[3], measured }],
            waiters: 1024,
            woken: vec![(Store::Memory, woken)],
            ..Results::default()
        };
        let text = all(&results);
        assert!(text.contains("| batches of 100; 8 connections | 12,345 | 12,345–12,345 | 0.25 |"), "{text}");
        assert!(
            text.contains("| onlyonce serve, memory: | 0 | 0 | 90 | 90–90 | 10 | 30 | 20.0 | 0 |"),
            "{text}"
        );
    }
}
