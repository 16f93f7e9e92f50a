//! A sync or a write fails: the store says so, acknowledges nothing any more, and a restart finds all that it had.

use onlyonce_core::StoreErrorKind;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::disk::{Fault, FaultOn, Mode, Trouble};
use crate::verify::{Crash, crash};
use crate::workload::{Recorded, record, record_with};

const ROUNDS: usize = 40;

/// Runs a workload again and again, each time with another of its syncs or writes failing. Answers how many failed.
fn fail_everywhere(seed: u64, on: FaultOn, trouble: Trouble, check: fn(&Recorded)) -> u64 {
    let mut struck = 0;
    let healthy = record(seed, ROUNDS).disk;
    let last = if on == FaultOn::Sync { healthy.syncs() } else { healthy.writes() };
    for nth in 0..last {
        let recorded = record_with(seed, ROUNDS, Some(Fault { on, nth, trouble }));
        // Idle marks and indexes are not written at the same moments in every run: the last few may not be met.
        if recorded.disk.struck().is_some() {
            struck += 1;
            check(&recorded);
            check_recovery(&recorded, nth as u64);
        }
    }
    struck
}

/// Whether the machine goes down at once, or the store is started again first: nothing acknowledged is lost.
fn check_recovery(recorded: &Recorded, seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let ops = recorded.end;
    for (kind, deep) in [
        (Crash::PowerCut(Mode::DropUnsynced), 0),
        (Crash::PowerCut(Mode::Subset), 0),
        (Crash::PowerCut(Mode::Torn), 1),
        (Crash::Kill, 1),
    ] {
        crash(recorded, ops, kind, deep, &mut rng).unwrap_or_else(|problem| {
            panic!("{:?}, {:?}: {problem}", recorded.disk.struck(), recorded.errors)
        });
    }
}

/// After the fault the store refuses everyone, unless it was only an index that could not be written.
fn is_poisoned(recorded: &Recorded) {
    let struck = recorded.disk.struck().unwrap();
    // The reserve is only space: without it the store is full.
    if struck.sealing || struck.name.as_deref() == Some("reserve") {
        return;
    }
    for error in &recorded.errors {
        assert_eq!(
            error.kind(),
            StoreErrorKind::Unavailable,
            "seed {}, {struck:?}: {error:?}",
            recorded.seed
        );
    }
    for answer in &recorded.afterwards {
        let refused = matches!(answer, Err(error) if error.kind() == StoreErrorKind::Unavailable);
        assert!(refused, "seed {}, {struck:?}, {:?}: {answer:?}", recorded.seed, recorded.errors);
    }
}

#[test]
fn nothing_is_acknowledged_after_a_failed_sync() {
    let failed: u64 =
        (1..=4).map(|seed| fail_everywhere(seed, FaultOn::Sync, Trouble::Broken, is_poisoned)).sum();
    println!("{failed} syncs failed: nothing was acknowledged after them, nothing lost");
}

#[test]
fn a_sync_that_finds_no_room_is_a_failed_sync() {
    let failed: u64 =
        (5..=6).map(|seed| fail_everywhere(seed, FaultOn::Sync, Trouble::NoRoom, is_poisoned)).sum();
    println!("{failed} syncs found no room: nothing was acknowledged after them, nothing lost");
}

#[test]
fn nothing_is_acknowledged_after_a_failed_write() {
    let failed: u64 =
        (7..=8).map(|seed| fail_everywhere(seed, FaultOn::Write, Trouble::Broken, is_poisoned)).sum();
    println!("{failed} writes failed: nothing was acknowledged after them, nothing lost");
}

#[test]
fn what_found_no_room_has_not_happened() {
    let failed: u64 =
        (9..=12).map(|seed| fail_everywhere(seed, FaultOn::Write, Trouble::NoRoom, |_| {})).sum();
    println!("{failed} writes found no room: what was refused is not there, nothing lost");
}
