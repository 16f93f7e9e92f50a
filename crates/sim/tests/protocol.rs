//! Every reachable state of each configuration keeps every promise, and each promise had its occasion to be broken.
//!
//! Runs have any number of calls, grants, ticks and interventions; what is bounded is how much goes on at a time.

#![expect(clippy::print_stdout, reason = "a model check shows how much it checked")]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use onlyonce_core::transition::UnknownPolicy::{self, Hold, Query, Rerun, Seal};
use onlyonce_sim::setup::Other;
use onlyonce_sim::{Protocol, Setup};
use stateright::{Checker, Expectation, HasDiscoveries, Model};

/// How many states a soak generates at most, repetitions included: what fits into 3 GiB.
const SOAK_STATES_MAX: usize = 150_000_000;

/// Walks through all states.
fn check(setup: &Setup) {
    let started = Instant::now();
    let checker =
        Protocol::new(setup.clone()).checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    // One thread without limits stops at a broken promise or when no state is left, so this was all.
    checker.assert_properties();
    assert!(checker.is_done());
    println!(
        "{} states, {} generated, at most {} steps away, {:.1?}: {setup:?}",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        started.elapsed(),
    );
    check_that_it_matters(setup);
}

/// Looks for every situation without which the promises would be empty.
fn check_that_it_matters(setup: &Setup) {
    let model = Protocol::new(Setup { events: true, ..setup.clone() });
    let properties = model.properties();
    let situations: BTreeSet<_> = properties
        .iter()
        .filter(|property| property.expectation == Expectation::Sometimes)
        .map(|property| property.name)
        .collect();
    assert!(situations.len() >= 4);
    let checker = model.checker().finish_when(HasDiscoveries::AllOf(situations.clone())).spawn_bfs().join();
    for situation in situations {
        checker.assert_any_discovery(situation);
    }
}

#[test]
fn hold_keeps_every_promise() {
    check(&Setup::new(Hold));
}

#[test]
fn seal_keeps_every_promise() {
    check(&Setup::new(Seal));
}

#[test]
fn query_keeps_every_promise() {
    check(&Setup::new(Query));
}

#[test]
fn rerun_keeps_every_promise() {
    check(&Setup::new(Rerun));
}

/// Three callers, a perfect memory for what was sent, and nobody who steps in.
fn three_callers(policy: UnknownPolicy) -> Setup {
    Setup { callers: 3, letters: 0, operators: false, ..Setup::new(policy) }
}

#[test]
fn hold_keeps_every_promise_to_three_callers() {
    check(&three_callers(Hold));
}

#[test]
fn seal_keeps_every_promise_to_three_callers() {
    check(&three_callers(Seal));
}

#[test]
fn query_keeps_every_promise_to_three_callers() {
    check(&three_callers(Query));
}

#[test]
fn rerun_keeps_every_promise_to_three_callers() {
    check(&three_callers(Rerun));
}

#[test]
fn another_request_under_the_same_key_gets_nothing() {
    check(&Setup { letters: 0, other: Some(Other::Request), ..Setup::new(Hold) });
}

#[test]
fn steps_are_read_back_by_later_attempts() {
    check(&Setup { letters: 0, steps: true, ..Setup::new(Rerun) });
}

#[test]
fn callers_under_different_policies_do_not_harm_each_other() {
    check(&Setup { letters: 0, other: Some(Other::Policy(Rerun)), ..Setup::new(Query) });
    check(&Setup { letters: 0, other: Some(Other::Policy(Rerun)), ..Setup::new(Hold) });
}

/// The larger sizes, for as long as `ONLYONCE_SOAK_SECONDS` says; without it, a small one.
fn soak(policy: UnknownPolicy) {
    let seconds = std::env::var("ONLYONCE_SOAK_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let Some(seconds) = seconds.map(Duration::from_secs) else {
        return check(&Setup { letters: 0, ..Setup::new(policy) });
    };
    check_within(&Setup { callers: 3, ..Setup::new(policy) }, seconds / 2);
    check_within(&Setup { letters: 2, ..Setup::new(policy) }, seconds / 2);
}

/// Walks through as many states as it can. Nothing found in that time is a result too, and says how far it got.
fn check_within(setup: &Setup, limit: Duration) {
    let started = Instant::now();
    let checker = Protocol::new(setup.clone())
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .target_state_count(SOAK_STATES_MAX)
        // More than one thread: a single one does not look at the time.
        .threads(2)
        .timeout(limit)
        .spawn_bfs()
        .join();
    checker.assert_properties();
    let all = started.elapsed() < limit && checker.state_count() < SOAK_STATES_MAX;
    println!(
        "{} states{}, {:.1?}: {setup:?}",
        checker.unique_state_count(),
        if all { ", which are all" } else { " before the time or the space was over" },
        started.elapsed(),
    );
}

#[test]
fn soak_hold() {
    soak(Hold);
}

#[test]
fn soak_seal() {
    soak(Seal);
}

#[test]
fn soak_query() {
    soak(Query);
}

#[test]
fn soak_rerun() {
    soak(Rerun);
}
