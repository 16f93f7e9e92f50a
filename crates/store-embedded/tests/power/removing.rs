//! Segments are removed beside everything else, as slowly as the disk likes: nobody waits for it, and what is written
//! meanwhile is never hidden by what is about to go.

use std::time::Duration;

use onlyonce_core::Store as _;
use onlyonce_core::store::SweepBudget;
use onlyonce_testkit::run;

use crate::disk::SimDisk;
use crate::stage::{DAY, Stage, claim, completed, done, granted, kept};

/// Of a shorter class than a day.
const SHORT: Duration = Duration::from_mins(10);

#[test]
fn who_writes_does_not_wait_for_a_removal_and_is_not_hidden_by_what_it_leaves() {
    let stage = Stage::new();
    let store = stage.open();
    run(async {
        let id = completed(&store, kept(DAY)).await;
        let another = completed(&store, kept(DAY)).await;
        stage.clock.advance(DAY * 10);
        let held_up = stage.disk.hold_up_removing();
        let sweep = store.sweep(SweepBudget::DEFAULT);
        let meanwhile = async {
            held_up.is_felt();
            // The key again, for a shorter time: its new entry must count as newer than the old one, which is still there.
            let token = granted(&store, &claim(id, 2, kept(SHORT))).await;
            store.complete(&done(token)).await.unwrap();
            let killed = Stage { disk: SimDisk::holding(stage.disk.image()), ..Stage::new() };
            killed.clock.advance(DAY * 10);
            drop(held_up);
            (token, killed)
        };
        let (swept, (token, killed)) = tokio::join!(sweep, meanwhile);
        assert_eq!(swept.unwrap().dropped, 1, "the other one is gone when the sweep is answered");
        assert_eq!(store.lookup(&another).await.unwrap(), None);
        for store in [&store, &killed.open()] {
            let found = store.lookup(&id).await.unwrap().map(|record| record.fence);
            assert_eq!(found, Some(token.fence), "what was written meanwhile is there");
        }
    });
}
