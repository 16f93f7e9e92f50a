//! Indexes are written beside everything else, as slowly as the disk likes: whatever happens meanwhile, they never hide
//! a record.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::store::SweepBudget;
use onlyonce_core::transition::{Complete, CompleteAnswer};
use onlyonce_core::{Retention, Store};
use onlyonce_store_embedded::Options;
use onlyonce_testkit::fixture::outcome;
use onlyonce_testkit::{Clocked, ManualClock, Scene, run};

use crate::disk::SimDisk;
use crate::verify::open;

/// Short enough for segments that take entries for some seconds only.
const RETENTION: Duration = Duration::from_mins(10);

async fn completed<'f>(fixture: &'f Clocked, body: &'static str) -> Scene<'f, Clocked> {
    let scene = Scene::new(fixture);
    let token = scene.granted().await;
    let complete =
        Complete { token, outcome: outcome(body), retention: Some(Retention::new(RETENTION).unwrap()) };
    assert_eq!(scene.store().complete(&complete).await.unwrap(), CompleteAnswer::Completed);
    scene
}

#[test]
fn a_late_index_is_not_taken_for_that_of_a_newer_segment() {
    let disk = SimDisk::default();
    let clock = Arc::new(ManualClock::default());
    let options = Options { reserve_bytes: 512, ..Options::default() };
    let store = Arc::new(open(&disk, &clock, options).unwrap());
    let fixture = Clocked::new(store.clone(), clock.clone());
    run(async {
        completed(&fixture, "one").await;
        // The first segment is old enough to be sealed, which takes long.
        let held_up = disk.hold_up_sealing();
        clock.advance(RETENTION / 4);
        completed(&fixture, "two").await;
        held_up.is_felt();
        // All is forgotten, and the segments with it.
        clock.advance(RETENTION * 10);
        while store.sweep(SweepBudget::DEFAULT).await.unwrap().more {}
        let third = completed(&fixture, "three").await;
        drop(held_up);
        // Closing waits for whoever seals; opening believes the indexes.
        third.expect_replay("three").await;
        let id = third.id;
        drop((fixture, store));
        let reopened = open(&disk, &clock, options).unwrap();
        let found = reopened.lookup(&id).await.unwrap();
        assert!(found.is_some(), "an acknowledged record is gone; files: {:?}", disk.image().files.keys());
    });
}
