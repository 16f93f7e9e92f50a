//! The results as Markdown, for a terminal and for `docs/performance.md`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use onlyonce_bench::figures::{errors, median, milliseconds, rounded, spread, thousands};
use onlyonce_bench::measured::{Measured, rounds_of};
use onlyonce_bench::wrk::Mode;

use crate::goals;
use crate::measure::Measurement;
use crate::memory::Watched;
use crate::run::Results;
use crate::subject::Subject;

/// Every table.
pub(crate) fn all(results: &Results) -> String {
    let mut text = head(results);
    for subjects in [&Subject::PROXIES[..], &Subject::LAYERS[..]] {
        let measured = results.measurements.iter().filter(|one| subjects.contains(&one.subject));
        let rows: BTreeSet<_> = measured.map(|one| (one.mode, one.connections)).collect();
        for (mode, connections) in rows {
            text += &load(results, subjects, mode, connections);
        }
    }
    text += &memory(&results.watched);
    text += &goals::table(results);
    text + &results.commands
}

fn head(results: &Results) -> String {
    let foreign: Vec<_> = results.measurements.iter().map(|one| one.measured.foreign).collect();
    let pinned = "what is measured on the first, wrk and the upstream on the second";
    results.conditions.told("", pinned, &foreign)
}

/// What was measured of a subject, round by round.
pub(crate) fn of(results: &Results, subject: Subject, mode: Mode, connections: u32) -> Vec<&Measurement> {
    rounds_of(&results.measurements, subject, mode, connections)
}

/// A figure as so many times that of the first of its table, nginx or the bare handler, in the same round.
pub(crate) fn ratios(
    results: &Results,
    subject: Subject,
    mode: Mode,
    connections: u32,
    figure: fn(&Measured) -> f64,
) -> Vec<f64> {
    let first = if Subject::LAYERS.contains(&subject) { Subject::LAYERS[0] } else { Subject::PROXIES[0] };
    let theirs = of(results, first, mode, connections);
    let ratio = |ours: &Measurement| {
        let theirs = theirs.iter().find(|theirs| theirs.round == ours.round)?;
        Some(figure(&ours.measured) / figure(&theirs.measured))
    };
    of(results, subject, mode, connections).into_iter().filter_map(ratio).collect()
}

/// Whether nothing was wrong with it, nor with what it is compared with.
pub(crate) fn is_sound(results: &Results, subject: Subject, mode: Mode, connections: u32) -> bool {
    let with = [subject, Subject::Nginx];
    with.iter()
        .all(|one| of(results, *one, mode, connections).iter().all(|one| one.measured.faults.is_empty()))
}

fn load(results: &Results, subjects: &[Subject], mode: Mode, connections: u32) -> String {
    let first = subjects.first().map_or("", |subject| subject.name());
    let part = if subjects.contains(&Subject::Nginx) { "Proxy" } else { "Layer in axum" };
    let mut table = format!(
        "\n**{part}: {}, {connections} connections**\n\n\
         | | requests/s | lowest–highest | × {first} | p50 ms | p99 ms | CPU µs/request | lowest–highest | × {first} | busy % of one processor | others' CPU % | errors |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n",
        mode.name()
    );
    for &subject in subjects {
        let rounds = of(results, subject, mode, connections);
        if rounds.is_empty() {
            continue;
        }
        let middle = |figure: fn(&Measured) -> f64| {
            median(rounds.iter().map(|one| figure(&one.measured))).unwrap_or_default()
        };
        let times = |figure: fn(&Measured) -> f64| {
            let ratios = ratios(results, subject, mode, connections, figure);
            let (low, high) = spread(ratios.iter().copied());
            median(ratios).map_or("–".into(), |middle| format!("{middle:.2} ({low:.2}–{high:.2})"))
        };
        let (slowest, fastest) = spread(rounds.iter().map(|one| one.measured.requests_per_second));
        let (least, most) = spread(rounds.iter().map(|one| one.measured.processor_micros));
        let _ = writeln!(
            table,
            "| {} | {} | {}–{} | {} | {:.2} | {:.2} | {:.1} | {least:.1}–{most:.1} | {} | {:.0} | {:.0} | {} |",
            subject.name(),
            rounded(middle(|one| one.requests_per_second)),
            rounded(slowest),
            rounded(fastest),
            times(|one| one.requests_per_second),
            middle(|one| milliseconds(one.p50_micros)),
            middle(|one| milliseconds(one.p99_micros)),
            middle(|one| one.processor_micros),
            times(|one| one.processor_micros),
            middle(|one| one.busy) * 100.0,
            middle(|one| one.foreign) * 100.0,
            errors(rounds.iter().flat_map(|one| &one.measured.faults)),
        );
    }
    table
}

fn memory(watched: &[Watched]) -> String {
    if watched.is_empty() {
        return String::new();
    }
    let mut table = String::from(
        "\n**Memory under mixed load, records kept for five seconds, in MiB**\n\n\
         | | minutes | requests | at the start | second quarter | last quarter | end | peak | errors |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---|\n",
    );
    for one in watched {
        let mebibytes = |bytes: u64| format!("{}", bytes >> 20);
        let faults = errors(&one.faults);
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {faults} |",
            one.subject.name(),
            one.minutes,
            thousands(one.requests),
            mebibytes(one.start_bytes),
            mebibytes(one.quarter(1)),
            mebibytes(one.quarter(3)),
            mebibytes(one.end_bytes()),
            mebibytes(one.peak_bytes()),
        );
    }
    table
}

/// Results of one round of fresh keys at 64 connections: subject, requests per second, CPU of a request, faults.
#[cfg(test)]
pub(crate) fn sample(rows: &[(Subject, f64, f64, &[&str])]) -> Results {
    let measurement = |&(subject, requests_per_second, processor_micros, faults): &(_, _, _, &[&str])| {
        let faults = faults.iter().map(|&fault| fault.to_owned()).collect();
        Measurement {
            subject,
            mode: Mode::Fresh,
            connections: 64,
            round: 0,
            measured: Measured {
                requests_per_second,
                p50_micros: 1500,
                p99_micros: 4000,
                processor_micros,
                busy: 0.98,
                foreign: 0.03,
                faults,
                ..Measured::default()
            },
            more: (),
        }
    };
    Results {
        conditions: onlyonce_bench::conditions::Conditions::default(),
        measurements: rows.iter().map(measurement).collect(),
        watched: Vec::new(),
        commands: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_beside_nginx_and_what_is_broken_says_so() {
        let results = sample(&[
            (Subject::Nginx, 30_000.0, 28.0, &[]),
            (Subject::Memory, 24_000.0, 42.0, &["7 answers of 400 or more"]),
        ]);
        let text = all(&results);
        assert!(
            text.contains("| nginx | 30,000 | 30,000–30,000 | 1.00 (1.00–1.00) | 1.50 | 4.00 | 28.0 |"),
            "{text}"
        );
        assert!(text.contains("| onlyonce, memory: | 24,000 | 24,000–24,000 | 0.80 (0.80–0.80) |"), "{text}");
        assert!(
            text.contains("| 1.50 (1.50–1.50) | 98 | 3 | **BROKEN: 7 answers of 400 or more** |"),
            "{text}"
        );
        assert!(!text.contains("Layer in axum"), "it was not measured: {text}");
    }
}
