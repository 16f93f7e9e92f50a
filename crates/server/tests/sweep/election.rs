//! One at a time, for as long as it lives, and another when it does not.

use std::sync::atomic::Ordering;
use std::time::Duration;

use onlyonce_core::store::Listing;
use onlyonce_core::sweeper::{Ended, Plan, Sweeper};
use onlyonce_core::{Engine, house};

use crate::stage::Stage;
use crate::watched::Note;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_dead_sweeper_is_replaced_when_its_lease_has_passed_and_not_before() {
    let stage = Stage::new();
    let first = stage.begin(1, Plan::default(), None).await;
    stage.advance(2 * SECOND).await;
    assert!(first.is_elected());
    let second = stage.begin(2, Plan::default(), None).await;
    stage.advance(60 * SECOND).await;
    assert!(first.is_elected() && !second.is_elected(), "it keeps what it renews");
    let fence = first.fence();
    first.kill().await;
    stage.advance(19 * SECOND).await;
    assert!(
        !second.is_elected(),
        "the lease of the dead one has not passed: it was renewed 10 s ago at the most"
    );
    stage.advance(40 * SECOND).await;
    assert!(second.is_elected() && second.fence() > fence, "{fence:?} {:?}", second.fence());
}

#[tokio::test]
async fn a_sweeper_that_stops_hands_over_at_once() {
    let stage = Stage::new();
    let plan = Plan { look_again: Some(SECOND), ..Plan::default() };
    let first = stage.begin(1, plan.clone(), None).await;
    stage.advance(2 * SECOND).await;
    let second = stage.begin(2, plan, None).await;
    stage.advance(3 * SECOND).await;
    assert!(first.is_elected() && !second.is_elected());
    first.stop.cancel();
    first.task.await.unwrap();
    stage.advance(3 * SECOND).await;
    assert!(second.is_elected(), "no lease had to pass");
}

#[tokio::test]
async fn a_sweeper_that_cannot_renew_stops_before_its_lease_ends() {
    let stage = Stage::new();
    let first = stage.begin(1, Plan::default(), None).await;
    stage.advance(2 * SECOND).await;
    assert!(first.is_elected());
    first.watched.refuses_renewals.store(true, Ordering::SeqCst);
    stage.advance(30 * SECOND).await;
    let sweeps = || stage.log.count(|note| matches!(note, Note::Swept { .. }));
    let swept = sweeps();
    assert!(!first.is_elected());
    stage.advance(SECOND).await;
    assert_eq!(sweeps(), swept, "nothing is swept without the grant");
    first.watched.refuses_renewals.store(false, Ordering::SeqCst);
    stage.advance(60 * SECOND).await;
    assert!(first.is_elected(), "it stands again");
}

#[tokio::test]
async fn sweeping_nothing_costs_the_store_one_small_write_in_ten_seconds() {
    let stage = Stage::new();
    let begun = [stage.begin(1, Plan::default(), None).await, stage.begin(2, Plan::default(), None).await];
    stage.advance(600 * SECOND).await;
    let claims = stage.log.count(|note| matches!(note, Note::Granted { .. } | Note::Refused { .. }));
    let renewals = stage.log.count(|note| matches!(note, Note::Renewed { .. }));
    assert!(claims <= 2, "{claims} claims: who is not elected only looks");
    assert!((50..=60).contains(&renewals), "{renewals} renewals in ten minutes");
    assert_eq!(begun.iter().filter(|one| one.is_elected()).count(), 1);
}

#[tokio::test]
async fn an_office_is_longer_than_any_grant_may_last() {
    let stage = Stage::new();
    let first = stage.begin(1, Plan { every: 600 * SECOND, ..Plan::default() }, None).await;
    stage.advance_by_steps(25 * 3600 * SECOND, 2 * SECOND).await;
    let granted = stage.log.notes().into_iter().filter_map(|note| match note {
        Note::Granted { fence, .. } => Some(fence),
        _ => None,
    });
    let fences: Vec<_> = granted.collect();
    assert_eq!(fences.len(), 2, "stood again after a day: {fences:?}");
    assert!(first.is_elected() && fences.is_sorted());
}

#[tokio::test]
async fn the_record_of_the_election_is_in_no_listing_and_in_no_count() {
    let stage = Stage::new();
    let first = stage.begin(1, Plan::default(), None).await;
    stage.records(3, 3600 * SECOND).await;
    stage.advance(2 * SECOND).await;
    assert!(first.is_elected() && stage.store.lookup(&house::SWEEP).await.unwrap().is_some());
    assert_eq!(stage.store.stats().await.unwrap().records(), 4);
    let engine = Engine::builder(stage.store.clone()).build().await.unwrap();
    let counted = engine.count().await.unwrap();
    assert_eq!((counted.records(), counted.in_flight), (3, 0));
    let page = stage.store.list(&Listing::default()).await.unwrap();
    assert_eq!(page.records.len(), 3);
}

#[tokio::test]
async fn a_single_sweep_respects_the_election() {
    let stage = Stage::new();
    stage.records(50, SECOND).await;
    let engine = Engine::builder(stage.store.clone()).clock(stage.clock.clone()).build().await.unwrap();
    let plan = Plan { pause: Duration::ZERO, ..Plan::default() };
    let alone = Sweeper::new(&engine, plan.clone());
    let first = stage.begin(1, Plan { every: 3600 * SECOND, ..plan }, None).await;
    stage.advance(15 * SECOND).await;
    assert!(first.is_elected());
    let go_on = |_: &_| std::ops::ControlFlow::Continue(());
    let Ended::Taken(taken) = alone.sweep_once(None, go_on).await.unwrap() else { panic!("it is taken") };
    assert_eq!(taken.fence, first.fence());
    assert!(taken.since.is_some() && taken.left <= 30 * SECOND, "{taken:?}");
    first.stop.cancel();
    first.task.await.unwrap();
    stage.records_more(50).await;
    stage.advance(2 * SECOND).await;
    let Ended::Swept(swept) = alone.sweep_once(None, go_on).await.unwrap() else { panic!("it is free") };
    assert_eq!((swept.removed, swept.more, stage.left().await), (50, false, 0));
    let Ended::Swept(swept) = alone.sweep_once(Some(1), go_on).await.unwrap() else {
        panic!("it was given up")
    };
    assert_eq!(swept.removed, 0);
}
