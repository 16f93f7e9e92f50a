//! What the sidecar and the layer must reach, and whether they did.

use onlyonce_bench::figures::median;
use onlyonce_bench::goal::{self, Goal, Verdict};
use onlyonce_bench::measured::{FOREIGN_MAX, Measured};
use onlyonce_bench::wrk::Mode;

use crate::run::{LAYER_CONNECTIONS, Results};
use crate::subject::Subject;
use crate::table::{is_sound, of, ratios};

/// What is compared with nginx.
#[derive(Debug, Clone, Copy)]
enum Times {
    /// Requests per second, at least.
    Rate(f64),
    /// Processor time of a request, at most.
    Processor(f64),
}

/// Mode, subject, connections (`None`: all that were measured), and how many times nginx's.
const BESIDE_NGINX: [(Mode, Subject, Option<u32>, Times); 12] = [
    (Mode::Plain, Subject::Memory, None, Times::Rate(1.0)),
    (Mode::Plain, Subject::Embedded, None, Times::Rate(1.0)),
    (Mode::Replay, Subject::Memory, None, Times::Rate(1.3)),
    (Mode::Replay, Subject::Memory, None, Times::Processor(1.0)),
    (Mode::Replay, Subject::Embedded, None, Times::Rate(1.3)),
    (Mode::Replay, Subject::Embedded, None, Times::Processor(1.0)),
    (Mode::Fresh, Subject::Memory, None, Times::Rate(0.75)),
    (Mode::Fresh, Subject::Memory, None, Times::Processor(2.0)),
    (Mode::Fresh, Subject::Embedded, Some(64), Times::Rate(0.5)),
    (Mode::Fresh, Subject::Embedded, Some(256), Times::Rate(0.7)),
    (Mode::Fresh, Subject::Embedded, Some(64), Times::Processor(2.0)),
    (Mode::Fresh, Subject::Embedded, Some(256), Times::Processor(2.0)),
];
/// Processor time of a request with the layer, at most.
const LAYER_MICROS: [(Mode, f64); 2] = [(Mode::Fresh, 25.0), (Mode::Replay, 20.0)];
/// A rate beside nginx means something when nginx itself was the limit of its own.
const BUSY_MIN: f64 = 0.85;
/// How long memory must stay flat.
const FLAT_MINUTES: u32 = 10;

/// The goals as a table; nothing when nothing was measured.
pub(crate) fn table(results: &Results) -> String {
    let mut goals = beside_nginx(results);
    goals.extend(LAYER_MICROS.iter().filter_map(|(mode, most)| layer(results, *mode, *most)));
    goals.extend(flat(results));
    goal::table(&goals)
}

fn beside_nginx(results: &Results) -> Vec<Goal> {
    let mut goals = Vec::new();
    for (mode, subject, only, times) in BESIDE_NGINX {
        let mut levels: Vec<_> = results.measurements.iter().map(|measured| measured.connections).collect();
        levels.sort_unstable();
        levels.dedup();
        for connections in levels.into_iter().filter(|level| only.is_none_or(|only| only == *level)) {
            let (what, limit, goal) = match times {
                Times::Rate(least) => ("requests/s", "at least", least),
                Times::Processor(most) => ("CPU a request", "at most", most),
            };
            let ratio = match times {
                Times::Rate(_) => ratios(results, subject, mode, connections, |one| one.requests_per_second),
                Times::Processor(_) => {
                    ratios(results, subject, mode, connections, |one| one.processor_micros)
                }
            };
            let Some(measured) = median(ratio) else { continue };
            let reached = match times {
                Times::Rate(least) => measured >= least,
                Times::Processor(most) => measured <= most,
            };
            let sound = is_sound(results, subject, mode, connections);
            let middle = |subject, figure: fn(&Measured) -> f64| {
                let rounds = of(results, subject, mode, connections);
                median(rounds.into_iter().map(|one| figure(&one.measured))).unwrap_or_default()
            };
            let foreign = middle(subject, |one| one.foreign).max(middle(Subject::Nginx, |one| one.foreign));
            let busy = middle(Subject::Nginx, |one| one.busy);
            let verdict = match times {
                Times::Rate(_) if sound && foreign > FOREIGN_MAX => Verdict::Disturbed(foreign),
                Times::Rate(_) if sound && busy < BUSY_MIN => Verdict::Undecided("nginx", busy),
                _ => Verdict::of(reached && sound),
            };
            goals.push(Goal {
                name: format!(
                    "{}, {}, {connections} connections: {what} {limit} {goal:?} × nginx",
                    subject.name(),
                    mode.name()
                ),
                measured: format!("{measured:.2} ×{}", if sound { "" } else { " (BROKEN)" }),
                verdict,
            });
        }
    }
    goals
}

fn layer(results: &Results, mode: Mode, most: f64) -> Option<Goal> {
    let rounds = of(results, Subject::Layered, mode, LAYER_CONNECTIONS);
    let micros = median(rounds.iter().map(|one| one.measured.processor_micros))?;
    let sound = is_sound(results, Subject::Layered, mode, LAYER_CONNECTIONS);
    Some(Goal {
        name: format!("layer in axum, {}: CPU a request at most {most} µs", mode.name()),
        measured: format!("{micros:.1} µs{}", if sound { "" } else { " (BROKEN)" }),
        verdict: Verdict::of(micros <= most && sound),
    })
}

fn flat(results: &Results) -> impl Iterator<Item = Goal> {
    results.watched.iter().map(|watched| {
        let long_enough = watched.minutes >= FLAT_MINUTES;
        let short = if long_enough { "" } else { ", but not for long enough" };
        Goal {
            name: format!("{}: memory flat over {FLAT_MINUTES} minutes of load", watched.subject.name()),
            measured: format!("{:.2} × in {} min{short}", watched.growth(), watched.minutes),
            verdict: Verdict::of(watched.is_flat() && long_enough && watched.faults.is_empty()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::sample;

    fn goal(results: &Results, name: &str) -> Goal {
        beside_nginx(results).into_iter().find(|goal| goal.name == name).expect(name)
    }

    #[test]
    fn a_goal_is_met_from_its_figure_on_and_never_by_broken_figures() {
        let name = "onlyonce, memory:, fresh keys, 64 connections: requests/s at least 0.75 × nginx";
        let rows = |ours, fault: &[&str]| {
            sample(&[(Subject::Nginx, 1000.0, 10.0, &[]), (Subject::Memory, ours, 20.0, fault)])
        };
        assert_eq!(goal(&rows(750.0, &[]), name).verdict, Verdict::Met);
        assert_eq!(goal(&rows(749.0, &[]), name).verdict, Verdict::NotMet);
        let broken = goal(&rows(9000.0, &["refused"]), name);
        assert!(broken.verdict == Verdict::NotMet && broken.measured.contains("BROKEN"), "{broken:?}");
        let cpu = "onlyonce, memory:, fresh keys, 64 connections: CPU a request at most 2.0 × nginx";
        assert_eq!(goal(&rows(1.0, &[]), cpu).verdict, Verdict::Met);
        let mut starved = rows(9000.0, &[]);
        starved.measurements[0].measured.busy = 0.4;
        assert_eq!(goal(&starved, name).verdict, Verdict::Undecided("nginx", 0.4), "the load was the limit");
        let mut disturbed = rows(1.0, &[]);
        disturbed.measurements[1].measured.foreign = 0.4;
        assert_eq!(goal(&disturbed, name).verdict, Verdict::Disturbed(0.4), "others were");
        assert_eq!(goal(&starved, cpu).verdict, Verdict::Met, "processor time does not depend on it");
    }

    #[test]
    fn what_was_not_measured_is_no_goal() {
        assert_eq!(beside_nginx(&sample(&[(Subject::Memory, 1.0, 1.0, &[])])), []);
    }
}
