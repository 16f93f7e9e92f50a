//! Stores that do not sync grants still keep every outcome; imports are kept as they were answered.

use std::sync::Arc;

use onlyonce_core::transition::{Claim, ClaimAnswer, Complete, CompleteAnswer, Token};
use onlyonce_core::{Record, RecordId, StateKind, Store, StoreErrorKind, UnknownPolicy};
use onlyonce_store_embedded::{Options, Sync};
use onlyonce_testkit::fixture::{any_id, fingerprint, outcome, terms};
use onlyonce_testkit::{ManualClock, run};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::disk::{Mode, SimDisk};
use crate::verify::open;
use crate::workload::owner;

const WORKLOADS: u64 = 12;
const OPERATIONS: u64 = 25;

/// What was acknowledged, and how long the log was then.
struct Kept {
    id: RecordId,
    record: Record,
    at: usize,
}

struct Played {
    disk: SimDisk,
    clock: Arc<ManualClock>,
    options: Options,
    kept: Vec<Kept>,
}

fn claim(id: RecordId, number: u64, policy: UnknownPolicy) -> Claim {
    Claim { id, fingerprint: fingerprint(b"body"), owner: owner(number), terms: Arc::new(terms(policy)) }
}

/// Claims in random order, most of which are completed.
fn play(seed: u64) -> Played {
    let mut rng = SmallRng::seed_from_u64(seed);
    let segment_bytes_max = if rng.random() { 4096 } else { Options::default().segment_bytes_max };
    let options =
        Options { sync: Sync::Outcome, segment_bytes_max, reserve_bytes: 512, ..Options::default() };
    let (disk, clock) = (SimDisk::default(), Arc::new(ManualClock::default()));
    let store = open(&disk, &clock, options).unwrap();
    let mut kept = Vec::new();
    run(async {
        let mut granted = Vec::new();
        for number in 1..=OPERATIONS {
            let claim = claim(any_id(), number, UnknownPolicy::Rerun);
            let ClaimAnswer::Granted(grant) = store.claim(&claim).await.unwrap() else { panic!("no grant") };
            granted.push(Token { id: claim.id, owner: claim.owner, fence: grant.fence });
            while granted.len() > 1 && rng.random() {
                let token = granted.swap_remove(rng.random_range(0..granted.len()));
                let complete = Complete { token, outcome: outcome("done"), retention: None };
                assert_eq!(store.complete(&complete).await.unwrap(), CompleteAnswer::Completed);
                let record = store.lookup(&token.id).await.unwrap().unwrap();
                kept.push(Kept { id: token.id, record, at: disk.log_len() });
            }
        }
    });
    drop(store);
    Played { disk, clock, options, kept }
}

impl Played {
    /// Whether a power cut after `ops` operations leaves everything that was acknowledged by then.
    fn survives(&self, ops: usize, mode: Mode, rng: &mut SmallRng) -> bool {
        let disk = self.disk.after_power_cut(ops, mode, rng);
        let Ok(store) = open(&disk, &self.clock, self.options) else { return false };
        run(async {
            for kept in self.kept.iter().filter(|kept| kept.at <= ops) {
                if store.lookup(&kept.id).await.ok().flatten().as_ref() != Some(&kept.record) {
                    return false;
                }
            }
            true
        })
    }
}

#[test]
fn outcomes_survive_a_power_cut_also_where_grants_need_not() {
    let mut points = 0;
    for seed in 1..=WORKLOADS {
        let played = play(seed);
        let mut rng = SmallRng::seed_from_u64(seed);
        for ops in 0..=played.disk.log_len() {
            for mode in Mode::HONEST {
                assert!(played.survives(ops, mode, &mut rng), "seed {seed}, {mode:?} after {ops}");
                points += 1;
            }
        }
    }
    println!("{WORKLOADS} workloads, {points} cuts: no outcome lost");
}

#[test]
fn a_disk_whose_syncs_do_nothing_is_caught_here_too() {
    let played = play(1);
    let mut rng = SmallRng::seed_from_u64(1);
    assert!(!played.survives(played.disk.log_len(), Mode::SyncsAreNoOps, &mut rng));
}

#[test]
fn a_store_that_does_not_sync_grants_takes_only_claims_that_may_run_again() {
    let played = play(1);
    let store = open(&played.disk, &played.clock, played.options).unwrap();
    for policy in [UnknownPolicy::Hold, UnknownPolicy::Seal, UnknownPolicy::Query] {
        let refused = run(async { store.claim(&claim(any_id(), 1, policy)).await.unwrap_err() });
        assert_eq!(refused.kind(), StoreErrorKind::Misuse, "{policy:?}");
    }
}

#[test]
fn what_was_taken_in_survives_a_power_cut() {
    let source = play(2);
    let records: Vec<_> = source.kept.iter().map(|kept| (kept.id, kept.record.clone())).collect();
    let (disk, clock) = (SimDisk::default(), Arc::clone(&source.clock));
    let options = Options { reserve_bytes: 512, ..Options::default() };
    let store = open(&disk, &clock, options).unwrap();
    let fence = run(async {
        assert_eq!(store.import(&records).await.unwrap().taken, records.len());
        records.iter().map(|(_, record)| record.fence).max().unwrap()
    });
    let acknowledged = disk.log_len();
    let mut rng = SmallRng::seed_from_u64(3);
    for mode in Mode::HONEST {
        let cut = disk.after_power_cut(acknowledged, mode, &mut rng);
        let reopened = open(&cut, &clock, options).unwrap();
        run(async {
            for (id, record) in &records {
                assert_eq!(record.kind(), StateKind::Completed);
                assert_eq!(reopened.lookup(id).await.unwrap().as_ref(), Some(record), "{mode:?}");
            }
            let claim = claim(any_id(), 1, UnknownPolicy::Hold);
            let ClaimAnswer::Granted(grant) = reopened.claim(&claim).await.unwrap() else {
                panic!("no grant")
            };
            assert!(grant.fence > fence, "{:?} after {fence:?} was taken in", grant.fence);
        });
    }
}
