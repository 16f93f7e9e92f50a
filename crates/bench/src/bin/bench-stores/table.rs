//! The results as Markdown, for a terminal and for `docs/performance.md`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use onlyonce_bench::figures::{errors, median, milliseconds, rounded, spread};
use onlyonce_bench::measured::{Measured, rounds_of};
use onlyonce_bench::wrk::Mode;

use crate::goals;
use crate::measure::{Behind, Measurement};
use crate::run::Results;
use crate::subject::{Part, Subject};

/// Every table.
pub(crate) fn all(results: &Results) -> String {
    let mut text = head(results);
    for part in Part::ALL {
        let measured = results.measurements.iter().filter(|one| part.subjects().contains(&one.subject));
        let rows: BTreeSet<_> = measured.map(|one| (one.mode, one.connections)).collect();
        for (mode, connections) in rows {
            text += &load(results, part, mode, connections);
        }
    }
    text += &counted(results);
    text += &goals::table(results);
    text + &results.commands
}

fn head(results: &Results) -> String {
    let foreign: Vec<_> = results.measurements.iter().map(|one| one.measured.foreign).collect();
    let pinned = "what is measured on the first, wrk and the upstream on the second, the servers of the stores on both";
    let more = results.servers.iter().chain(&results.left_out);
    let more = more.fold(String::new(), |text, line| text + line + ". ");
    results.conditions.told(&more, pinned, &foreign)
}

/// What was measured of a subject, round by round.
pub(crate) fn of(results: &Results, subject: Subject, mode: Mode, connections: u32) -> Vec<&Measurement> {
    rounds_of(&results.measurements, subject, mode, connections)
}

fn load(results: &Results, part: Part, mode: Mode, connections: u32) -> String {
    let mut table = format!(
        "\n**{}: {}, {connections} connections**\n\n\
         | | requests/s | lowest–highest | p50 ms | p99 ms | CPU µs/request | lowest–highest | Redis CPU µs | Redis round trips | PostgreSQL CPU µs | PostgreSQL round trips (calls) | busy % of one processor | others' CPU % | errors |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n",
        part.name(),
        mode.name()
    );
    for &subject in part.subjects() {
        let rounds = of(results, subject, mode, connections);
        if rounds.is_empty() {
            continue;
        }
        let middle = |figure: fn(&Measured) -> f64| {
            median(rounds.iter().map(|one| figure(&one.measured))).unwrap_or_default()
        };
        let (slowest, fastest) = spread(rounds.iter().map(|one| one.measured.requests_per_second));
        let (least, most) = spread(rounds.iter().map(|one| one.measured.processor_micros));
        let redis = behind(&rounds, |one| one.more.redis);
        let postgres = behind(&rounds, |one| one.more.postgres);
        let _ = writeln!(
            table,
            "| {} | {} | {}–{} | {:.2} | {:.2} | {:.1} | {least:.1}–{most:.1} | {} | {} | {} | {} | {:.0} | {:.0} | {} |",
            subject.name(),
            rounded(middle(|one| one.requests_per_second)),
            rounded(slowest),
            rounded(fastest),
            middle(|one| milliseconds(one.p50_micros)),
            middle(|one| milliseconds(one.p99_micros)),
            middle(|one| one.processor_micros),
            shown(redis, |behind| format!("{:.1}", behind.processor_micros)),
            shown(redis, |behind| format!("{:.2}", behind.trips)),
            shown(postgres, |behind| format!("{:.1}", behind.processor_micros)),
            shown(postgres, |behind| format!("{:.2} ({:.2})", behind.trips, behind.calls)),
            middle(|one| one.busy) * 100.0,
            middle(|one| one.foreign) * 100.0,
            errors(rounds.iter().flat_map(|one| &one.measured.faults)),
        );
    }
    table
}

/// The middle of each figure of a server; nothing when the subject does not use it.
pub(crate) fn behind(rounds: &[&Measurement], server: fn(&Measurement) -> Option<Behind>) -> Option<Behind> {
    let middle = |figure: fn(&Behind) -> f64| {
        median(rounds.iter().filter_map(|one| server(one)).map(|behind| figure(&behind)))
    };
    Some(Behind {
        processor_micros: middle(|behind| behind.processor_micros)?,
        trips: middle(|behind| behind.trips)?,
        calls: middle(|behind| behind.calls)?,
    })
}

fn shown(behind: Option<Behind>, text: fn(Behind) -> String) -> String {
    behind.map_or_else(|| "–".to_owned(), text)
}

/// What the servers counted in the first round, also what scripts called.
fn counted(results: &Results) -> String {
    let mut table = String::from(
        "\n**What the servers counted for one request** (first round; in brackets what scripts called, which is no \
         round trip)\n\n| | requests | connections | Redis commands, PostgreSQL statements |\n|---|---|---:|---|\n",
    );
    let uses =
        |one: &&Measurement| one.round == 0 && (one.more.redis.is_some() || one.more.postgres.is_some());
    for one in results.measurements.iter().filter(uses) {
        let (name, mode) = (one.subject.name(), one.mode.name());
        let _ = writeln!(table, "| {name} | {mode} | {} | {} |", one.connections, one.more.counted);
    }
    table
}

/// Results of one round of fresh keys at 64 connections: subject, requests per second, CPU of a request, faults.
#[cfg(test)]
pub(crate) fn sample(rows: &[(Subject, f64, f64, &[&str])]) -> Results {
    use crate::measure::Asked;
    let measurement =
        |&(subject, requests_per_second, processor_micros, faults): &(Subject, _, _, &[&str])| {
            let faults = faults.iter().map(|&fault| fault.to_owned()).collect();
            let behind = Behind { processor_micros: 16.0, trips: 2.0, calls: 2.0 };
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
                more: Asked {
                    redis: subject.uses_redis().then_some(behind),
                    postgres: subject.uses_postgres().then_some(behind),
                    counted: "evalsha 2.00".into(),
                },
            }
        };
    Results {
        conditions: onlyonce_bench::conditions::Conditions::default(),
        servers: vec!["Valkey 9.1.2".into()],
        left_out: vec!["FastAPI is not measured: no packages".into()],
        measurements: rows.iter().map(measurement).collect(),
        commands: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_tell_what_the_servers_cost_and_what_is_broken_says_so() {
        let results = sample(&[
            (Subject::SidecarRedis, 20_000.0, 50.0, &[]),
            (Subject::ExpressRedis, 2_800.0, 350.0, &["7 answers of 400 or more"]),
        ]);
        let text = all(&results);
        let ours = "| onlyonce, redis: | 20,000 | 20,000–20,000 | 1.50 | 4.00 | 50.0 | 50.0–50.0 | 16.0 | 2.00 | – | – | 98 | 3 | 0 |";
        assert!(text.contains(ours), "{text}");
        assert!(text.contains("| **BROKEN: 7 answers of 400 or more** |"), "{text}");
        assert!(text.contains("| onlyonce, redis: | fresh keys | 64 | evalsha 2.00 |"), "{text}");
        assert!(text.contains("Valkey 9.1.2") && text.contains("FastAPI is not measured"), "{text}");
        assert!(!text.contains("PostgreSQL: fresh keys"), "it was not measured: {text}");
    }
}
