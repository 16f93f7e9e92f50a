//! What the stores on other machines must reach, and whether they did.

use onlyonce_bench::figures::{as_float, median, rounded};
use onlyonce_bench::goal::{self, Goal, Verdict};
use onlyonce_bench::measured::{FOREIGN_MAX, Measured};
use onlyonce_bench::wrk::Mode;

use crate::measure::{Behind, Measurement};
use crate::run::Results;
use crate::subject::{Part, Subject};
use crate::table::{behind, of};

/// At how many connections.
const CONNECTIONS: u32 = 64;
/// The sidecar's processor time for a fresh key over the same Redis: a peer needs at least so many times as much.
const LESS_CPU_THAN: [(Subject, f64); 2] = [(Subject::ExpressRedis, 5.0), (Subject::Fastapi, 12.0)];
/// Fresh keys a second over `PostgreSQL` with syncs, at least.
const POSTGRES_FRESH: f64 = 10_000.0;
/// Round trips, counted by item: this many, or at most this many.
const FRESH_TRIPS: f64 = 2.0;
const REPLAY_TRIPS: f64 = 1.0;
/// What the stores ask by themselves now and then.
const ROUNDING: f64 = 0.02;
/// A rate beside another means something when that other one was the limit of its own.
const BUSY_MIN: f64 = 0.85;

/// The goals as a table; nothing when nothing was measured.
pub(crate) fn table(results: &Results) -> String {
    let mut goals = Vec::new();
    goals.extend(LESS_CPU_THAN.iter().filter_map(|(peer, times)| less_cpu(results, *peer, *times)));
    goals.extend([Mode::Fresh, Mode::Replay].iter().filter_map(|mode| beside_idempotent(results, *mode)));
    let postgres = [Subject::SidecarPostgres, Subject::LayerPostgres];
    goals.extend(postgres.iter().filter_map(|subject| postgres_rate(results, *subject)));
    for subject in Part::ALL.iter().flat_map(|part| part.subjects()).filter(|subject| subject.is_ours()) {
        goals.extend([Mode::Fresh, Mode::Replay].iter().filter_map(|mode| trips(results, *subject, *mode)));
    }
    goal::table(&goals)
}

/// One figure of ours and one of theirs as a ratio within each round, the middle of all; and whether both are sound.
fn ratio(
    results: &Results,
    (ours, theirs): (Subject, Subject),
    mode: Mode,
    figure: fn(&Measured) -> f64,
) -> Option<(f64, bool)> {
    let (ours, theirs) = (of(results, ours, mode, CONNECTIONS), of(results, theirs, mode, CONNECTIONS));
    let ratios = ours.iter().filter_map(|ours| {
        let theirs = theirs.iter().find(|theirs| theirs.round == ours.round)?;
        Some(figure(&ours.measured) / figure(&theirs.measured))
    });
    Some((median(ratios)?, is_sound(&ours) && is_sound(&theirs)))
}

fn is_sound(rounds: &[&Measurement]) -> bool {
    rounds.iter().all(|one| one.measured.faults.is_empty())
}

fn middle(rounds: &[&Measurement], figure: fn(&Measured) -> f64) -> f64 {
    median(rounds.iter().map(|one| figure(&one.measured))).unwrap_or_default()
}

fn with_soundness(measured: &str, sound: bool) -> String {
    format!("{measured}{}", if sound { "" } else { " (BROKEN)" })
}

fn less_cpu(results: &Results, peer: Subject, times: f64) -> Option<Goal> {
    let pair = (peer, Subject::SidecarRedis);
    let (measured, sound) = ratio(results, pair, Mode::Fresh, |one| one.processor_micros)?;
    Some(Goal {
        name: format!(
            "{} needs at least {times} × the CPU of {} for a fresh key over the same Redis",
            peer.name(),
            Subject::SidecarRedis.name()
        ),
        measured: with_soundness(&format!("{measured:.1} ×"), sound),
        verdict: Verdict::of(measured >= times && sound),
    })
}

fn beside_idempotent(results: &Results, mode: Mode) -> Option<Goal> {
    let pair = (Subject::LayerRedis, Subject::Idempotent);
    let (measured, sound) = ratio(results, pair, mode, |one| one.requests_per_second)?;
    let theirs = of(results, pair.1, mode, CONNECTIONS);
    let ours = of(results, pair.0, mode, CONNECTIONS);
    let foreign = middle(&ours, |one| one.foreign).max(middle(&theirs, |one| one.foreign));
    let busy = middle(&theirs, |one| one.busy);
    let verdict = if sound && foreign > FOREIGN_MAX {
        Verdict::Disturbed(foreign)
    } else if sound && busy < BUSY_MIN {
        Verdict::Undecided(pair.1.name(), busy)
    } else {
        Verdict::of(measured >= 1.0 && sound)
    };
    Some(Goal {
        name: format!("{}, {}: requests/s at least 1.0 × axum-idempotent there", pair.0.name(), mode.name()),
        measured: with_soundness(&format!("{measured:.2} ×"), sound),
        verdict,
    })
}

fn postgres_rate(results: &Results, subject: Subject) -> Option<Goal> {
    let rounds = of(results, subject, Mode::Fresh, CONNECTIONS);
    let rate = median(rounds.iter().map(|one| one.measured.requests_per_second))?;
    let (sound, foreign) = (is_sound(&rounds), middle(&rounds, |one| one.foreign));
    let is_met = rate >= POSTGRES_FRESH && sound;
    let verdict = if sound && !is_met && foreign > FOREIGN_MAX {
        Verdict::Disturbed(foreign)
    } else {
        Verdict::of(is_met)
    };
    Some(Goal {
        name: format!(
            "{}, fsync on: at least {} fresh keys/s at {CONNECTIONS} connections",
            subject.name(),
            rounded(POSTGRES_FRESH)
        ),
        measured: with_soundness(&format!("{}/s", rounded(rate)), sound),
        verdict,
    })
}

/// With a tier in front it is the authority that is meant: what the tier is asked is told in the tables.
fn trips(results: &Results, subject: Subject, mode: Mode) -> Option<Goal> {
    let rounds = of(results, subject, mode, CONNECTIONS);
    let (server, of_server): (_, fn(&Measurement) -> Option<Behind>) = if subject.uses_postgres() {
        ("PostgreSQL", |one| one.more.postgres)
    } else {
        ("Redis", |one| one.more.redis)
    };
    let measured = behind(&rounds, of_server)?.trips;
    let sound = is_sound(&rounds);
    let (limit, most, is_met) = match mode {
        Mode::Fresh => ("exactly", FRESH_TRIPS, (measured - FRESH_TRIPS).abs() <= ROUNDING),
        // Answers that are under way when wrk stops are asked for, but not counted by it.
        _ => {
            let answers = median(rounds.iter().map(|one| one.measured.requests)).unwrap_or_default();
            let under_way = f64::from(CONNECTIONS) / as_float(answers.max(1));
            ("at most", REPLAY_TRIPS, measured <= REPLAY_TRIPS + ROUNDING + under_way)
        }
    };
    Some(Goal {
        name: format!("{}, {}: {limit} {most} round trips to {server}", subject.name(), mode.name()),
        measured: with_soundness(&format!("{measured:.2}"), sound),
        verdict: Verdict::of(is_met && sound),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::sample;

    const FINE: &[&str] = &[];

    #[test]
    fn a_peer_must_need_so_many_times_our_processor_time() {
        let rows = |theirs, faults| {
            sample(&[(Subject::SidecarRedis, 1.0, 50.0, FINE), (Subject::ExpressRedis, 1.0, theirs, faults)])
        };
        let verdict = |results| less_cpu(&results, Subject::ExpressRedis, 5.0).unwrap().verdict;
        assert_eq!(verdict(rows(250.0, FINE)), Verdict::Met);
        assert_eq!(verdict(rows(249.0, FINE)), Verdict::NotMet);
        assert_eq!(verdict(rows(900.0, &["refused"])), Verdict::NotMet, "broken figures meet nothing");
        assert_eq!(less_cpu(&rows(1.0, FINE), Subject::Fastapi, 12.0), None, "it was not measured");
    }

    #[test]
    fn the_layer_is_compared_only_when_the_other_was_its_own_limit() {
        let rows = |ours| {
            sample(&[(Subject::LayerRedis, ours, 1.0, FINE), (Subject::Idempotent, 1000.0, 1.0, FINE)])
        };
        let verdict = |results: &Results| beside_idempotent(results, Mode::Fresh).unwrap().verdict;
        assert_eq!((verdict(&rows(1000.0)), verdict(&rows(999.0))), (Verdict::Met, Verdict::NotMet));
        let mut starved = rows(2000.0);
        starved.measurements[1].measured.busy = 0.4;
        assert_eq!(verdict(&starved), Verdict::Undecided("axum-idempotent", 0.4));
        let mut disturbed = rows(2000.0);
        disturbed.measurements[0].measured.foreign = 0.4;
        assert_eq!(verdict(&disturbed), Verdict::Disturbed(0.4));
    }

    #[test]
    fn round_trips_are_counted_by_item_and_neither_more_nor_fewer_will_do() {
        let mut results = sample(&[(Subject::LayerPostgres, 10_000.0, 1.0, FINE)]);
        let met = |results: &Results| trips(results, Subject::LayerPostgres, Mode::Fresh).unwrap().verdict;
        assert_eq!(met(&results), Verdict::Met);
        for wrong in [1.9, 2.1] {
            if let Some(behind) = &mut results.measurements[0].more.postgres {
                behind.trips = wrong;
            }
            assert_eq!(met(&results), Verdict::NotMet, "{wrong}");
        }
        let rate = postgres_rate(&results, Subject::LayerPostgres).unwrap();
        assert_eq!((rate.verdict, rate.measured.as_str()), (Verdict::Met, "10,000/s"));
    }
}
