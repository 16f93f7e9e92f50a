//! Each state machine that is wrong on purpose is caught, by the properties that are there to catch it.
//!
//! Where a property is found broken, a run that breaks it is at hand: `path.into_actions()`.

use std::collections::BTreeSet;

use onlyonce_core::transition::UnknownPolicy::{Hold, Query, Rerun, Seal};
use onlyonce_sim::properties::{
    EXACTLY_ONE, FENCED_OUTCOME, I1, I2, I3, I4, I5, I6, I7, I7_ONCE, I10, I12, I16, I16_STRICT, LIVE_OWNER,
    STALE_TOKEN, STEPS,
};
use onlyonce_sim::setup::{Assumption, Other};
use onlyonce_sim::{Action, Defect, Protocol, Setup};
use stateright::{Checker, Expectation, HasDiscoveries, Model};

/// More than any of them needs: one that is not caught must not search for ever.
const STATES_MAX: usize = 5_000_000;

/// Where each defect shows, and what catches it.
fn caught_by(defect: Defect) -> (Setup, &'static [&'static str]) {
    let (hold, rerun, query) = (Setup::new(Hold), Setup::new(Rerun), Setup::new(Query));
    match defect {
        Defect::CompleteIgnoresFence => (rerun, &[STALE_TOKEN, FENCED_OUTCOME]),
        Defect::CompleteRefusedWhenLate => (hold, &[LIVE_OWNER]),
        Defect::CompleteAcceptedTwice => (hold, &[I4]),
        Defect::LateCompletionReplaces => (Setup::new(Seal), &[I3]),
        Defect::ReleaseIgnoresOwner | Defect::RenewIgnoresOwner => (hold, &[STALE_TOKEN]),
        Defect::AbandonReleases | Defect::LapsedIsAbsent => (hold, &[I6, I7_ONCE]),
        Defect::BusyRemoves => (hold, &[I12, I6, I7_ONCE]),
        Defect::BusyIsGranted => (hold, &[I1, I7]),
        Defect::AskingIgnored => (Setup { other: Some(Other::Policy(Rerun)), letters: 0, ..query }, &[I6]),
        Defect::OwnerGrantedAgain | Defect::RepeatedClaimGetsNewFence => (hold, &[I16]),
        Defect::FingerprintIgnored => (Setup { other: Some(Other::Request), ..hold }, &[I10]),
        Defect::QueryReruns => (query, &[I6, EXACTLY_ONE]),
        Defect::RerunForEver => (rerun, &[I6]),
        Defect::NotExecutedTooEarly => (query, &[EXACTLY_ONE]),
        Defect::FenceRestarts => (hold, &[I1, I2]),
        Defect::SweepRemovesInFlight => (hold, &[I12]),
        Defect::RetentionFromArrival => (hold, &[I5]),
        Defect::EraseRemoves => (hold, &[I12, I5]),
        Defect::EraseForgotten => (hold, &[I3]),
        Defect::StepOverwritten => (Setup { steps: true, ..rerun }, &[STEPS]),
    }
}

#[test]
fn every_defect_is_caught() {
    for defect in Defect::ALL {
        let (setup, expected) = caught_by(defect);
        let checker = Protocol::new(Setup { defect: Some(defect), ..setup })
            .checker()
            .finish_when(HasDiscoveries::AllOf(expected.iter().copied().collect()))
            .target_state_count(STATES_MAX)
            .spawn_bfs()
            .join();
        for property in expected {
            let path = checker.assert_any_discovery(property).into_actions();
            println!(
                "{defect:?}: {property} ({} steps, {} states)",
                path.len(),
                checker.unique_state_count()
            );
        }
    }
}

#[test]
fn every_property_has_a_tooth() {
    let caught: BTreeSet<_> = Defect::ALL.iter().flat_map(|defect| caught_by(*defect).1).copied().collect();
    for policy in [Hold, Seal, Query, Rerun] {
        for property in Protocol::new(Setup::new(policy)).properties() {
            if property.expectation == Expectation::Always {
                assert!(
                    caught.contains(property.name),
                    "no defect shows that this can fail: {}",
                    property.name
                );
            }
        }
    }
}

fn is_broken(setup: Setup, property: &'static str) -> Vec<Action> {
    let model = Protocol::new(setup);
    let checker = model.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    for other in checker.model().properties().iter().filter(|other| other.name != property) {
        checker.assert_no_discovery(other.name);
    }
    checker.assert_any_discovery(property).into_actions()
}

/// Known: a record remembers its last owner only, and nothing once it has expired. A copy of a claim that arrives after
/// that is granted anew. Unless its caller still asks, nobody hears of that grant: nothing is run under it, and the
/// record becomes unknown when its lease ends.
#[test]
fn i16_reaches_no_further_than_the_memory_of_the_record() {
    let setup = Setup { strict_owners: true, ..Setup::new(Hold) };
    println!("{:?}", is_broken(setup, I16_STRICT));
}

/// Known: `resolve` does not say when its sender looked. A "not executed" that was true when it was sent, before the
/// attempt could no longer run, is believed if it arrives afterwards.
#[test]
fn query_needs_hooks_that_look_late_enough() {
    let setup = Setup { without: Some(Assumption::LateLook), ..Setup::new(Query) };
    println!("{:?}", is_broken(setup, EXACTLY_ONE));
}

/// Known: no hook can know what an attempt will still do that does not stop at its maximum run time.
#[test]
fn query_needs_work_that_ends_with_its_run_time() {
    let setup = Setup { without: Some(Assumption::BoundedRun), ..Setup::new(Query) };
    println!("{:?}", is_broken(setup, EXACTLY_ONE));
}
