//! The power is cut after every single operation of many workloads, and again while the store recovers.

use onlyonce_testkit::Soak;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::disk::Mode;
use crate::verify::{Crash, crash};
use crate::workload::{Recorded, record};

/// How many workloads are cut in CI, and how many cut points they have at least.
const WORKLOADS: u64 = 40;
const POINTS_MIN: usize = 5_000;

/// The ways of an honest machine to crash.
const CRASHES: [Crash; 4] = [
    Crash::PowerCut(Mode::DropUnsynced),
    Crash::PowerCut(Mode::Subset),
    Crash::PowerCut(Mode::Torn),
    Crash::Kill,
];

/// Some number of rounds; few enough to cut after every operation of each.
fn some_workload(seed: u64, rng: &mut SmallRng) -> Recorded {
    record(seed, rng.random_range(30..=60))
}

/// Crashes once more in one of four recoveries, and twice more in one of twenty.
fn some_depth(rng: &mut SmallRng) -> usize {
    match rng.random_range(0..20) {
        0 => 2,
        1..6 => 1,
        _ => 0,
    }
}

/// Crashes after every operation, in each of the ways, or in any `one` of them if there is no time for all. Answers how
/// many crashes there were.
fn crash_everywhere(recorded: &Recorded, one: bool, rng: &mut SmallRng) -> u64 {
    let mut crashes = 0;
    for ops in 0..=recorded.disk.log_len() {
        let some = [*CRASHES.choose(rng).unwrap()];
        for kind in if one { &some[..] } else { &CRASHES } {
            let deep = some_depth(rng);
            crashes += crash(recorded, ops, *kind, deep, rng).unwrap_or_else(|problem| panic!("{problem}"));
        }
    }
    crashes
}

#[test]
fn whatever_was_acknowledged_survives_a_power_cut_after_every_operation() {
    let (mut points, mut crashes) = (0, 0);
    for seed in 1..=WORKLOADS {
        let mut rng = SmallRng::seed_from_u64(seed);
        let recorded = some_workload(seed, &mut rng);
        points += recorded.disk.log_len() + 1;
        crashes += crash_everywhere(&recorded, true, &mut rng);
    }
    println!("{WORKLOADS} workloads, {points} cut points, {crashes} crashes: nothing lost");
    assert!(points >= POINTS_MIN, "only {points} cut points");
}

#[test]
fn power_cut_soak() {
    let mut soak = Soak::new("power cut", 1);
    let (mut points, mut crashes) = (0, 0);
    while let Some((seed, mut rng)) = soak.next_round() {
        let recorded = some_workload(seed, &mut rng);
        points += recorded.disk.log_len() as u64 + 1;
        crashes += crash_everywhere(&recorded, false, &mut rng);
    }
    soak.report(points, &format!("cut points, {crashes} crashes: nothing lost"));
}

/// The checks have teeth: on a disk whose syncs do nothing they must find what was lost.
fn is_caught(mode: Mode) -> bool {
    let mut rng = SmallRng::seed_from_u64(1);
    let recorded = some_workload(1, &mut rng);
    let cuts = 0..=recorded.disk.log_len();
    let caught = cuts.filter(|ops| crash(&recorded, *ops, Crash::PowerCut(mode), 0, &mut rng).is_err());
    let caught = caught.count();
    println!("{mode:?}: {caught} of {} cuts are caught", recorded.disk.log_len() + 1);
    caught > 0
}

#[test]
fn a_disk_whose_syncs_do_nothing_is_caught() {
    assert!(is_caught(Mode::SyncsAreNoOps));
}

#[test]
fn a_disk_that_forgets_names_is_caught() {
    assert!(is_caught(Mode::FolderSyncsAreNoOps));
}
