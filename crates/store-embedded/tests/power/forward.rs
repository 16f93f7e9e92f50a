//! A run that outlives the records around it does not keep their segment: it is copied forward, and nothing is lost.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::store::SweepBudget;
use onlyonce_core::transition::{Claim, ClaimAnswer, Complete, CompleteAnswer, Terms, Token};
use onlyonce_core::{Lease, RecordId, Retention, Store, UnknownPolicy};
use onlyonce_store_embedded::{EmbeddedStore, Options};
use onlyonce_testkit::fixture::{any_id, fingerprint, outcome, terms};
use onlyonce_testkit::{ManualClock, run};

use crate::disk::SimDisk;
use crate::verify::open;
use crate::workload::owner;

/// Short enough for segments that take entries for some seconds only.
const RETENTION: Duration = Duration::from_mins(1);

fn short_lived() -> Arc<Terms> {
    let hour = Duration::from_hours(1);
    Arc::new(Terms {
        lease: Lease::new(hour).unwrap(),
        run_max: hour,
        retention: Retention::new(RETENTION).unwrap(),
        ..terms(UnknownPolicy::Hold)
    })
}

async fn granted(store: &EmbeddedStore, number: u64) -> Token {
    let (id, owner) = (any_id(), owner(number));
    let claim = Claim { id, fingerprint: fingerprint(b"body"), owner, terms: short_lived() };
    let ClaimAnswer::Granted(grant) = store.claim(&claim).await.unwrap() else { panic!("no grant") };
    Token { id, owner, fence: grant.fence }
}

async fn complete(store: &EmbeddedStore, token: Token) {
    let complete = Complete { token, outcome: outcome("done"), retention: None };
    assert_eq!(store.complete(&complete).await.unwrap(), CompleteAnswer::Completed);
}

fn segments(disk: &SimDisk) -> Vec<String> {
    disk.image().files.keys().filter(|name| name.ends_with(".segment")).cloned().collect()
}

async fn is_completed(store: &EmbeddedStore, id: RecordId) -> bool {
    let found = store.lookup(&id).await.unwrap();
    found.is_some_and(|record| record.kind() == onlyonce_core::StateKind::Completed)
}

#[test]
fn a_long_run_does_not_keep_the_segment_it_began_in() {
    let disk = SimDisk::default();
    let clock = Arc::new(ManualClock::default());
    let options = Options { reserve_bytes: 512, ..Options::default() };
    let store = open(&disk, &clock, options).unwrap();
    run(async {
        let long = granted(&store, 1).await;
        let short = granted(&store, 2).await;
        complete(&store, short).await;
        let first = segments(&disk);
        assert_eq!(first.len(), 1);
        // The next entry goes to another segment, and everything but the long run is forgotten.
        clock.advance(RETENTION * 2);
        complete(&store, granted(&store, 3).await).await;
        store.sweep(SweepBudget::DEFAULT).await.unwrap();
        let left = segments(&disk);
        assert!(!left.contains(&first[0]), "a run in flight keeps {first:?}; there are {left:?}");
        complete(&store, long).await;
        assert!(is_completed(&store, long.id).await);
        drop(store);
        let reopened = open(&disk, &clock, options).unwrap();
        assert!(is_completed(&reopened, long.id).await, "what was copied forward is gone");
    });
}
