//! Clauses 4, 14, 15, 16 and 18: durability, batches, watches, damage, the secret.
#![expect(missing_docs, reason = "a clause is named by what it shows")]

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use onlyonce_core::record::StateKind;
use onlyonce_core::store::{
    BATCH_MAX, IMPORT_FENCE_MAX, Imported, Listing, StoreErrorKind, SweepBudget, Watch,
};
use onlyonce_core::transition::{
    Actor, Claim, ClaimAnswer, Complete, CompleteAnswer, Erase, Release, ReleaseAnswer, Renew, RenewAnswer,
    Resolve, Token, UnknownPolicy, Verdict,
};
use onlyonce_core::{Fence, Lease, Record, RecordId, Retention, Secret};

use crate::fixture::{Fixture, LEASE, RETENTION, RUN_MAX, Scene, fingerprint, outcome};

pub async fn c4_answered_commands_survive_what_is_promised<F: Fixture>(fixture: &F) {
    let (completed, released, abandoned, granted) =
        (Scene::new(fixture), Scene::new(fixture), Scene::new(fixture), Scene::new(fixture));
    let token = released.granted().await;
    released.release(token).await;
    let token = abandoned.granted().await;
    abandoned.abandon(token).await;
    granted.granted().await;
    completed.completed("done").await;
    if !fixture.restart().await {
        assert!(!fixture.store().durability().process_crash, "it says that it survives a crash");
        return;
    }
    completed.expect_replay("done").await;
    assert_eq!(released.lookup().await.map(|record| record.kind()), Some(StateKind::Released));
    assert!(matches!(abandoned.claim().await, ClaimAnswer::Held(_)));
    assert!(!matches!(granted.claim().await, ClaimAnswer::Granted(_)), "a grant was forgotten");
}

pub async fn c4_a_grant_does_not_outlive_its_holder_unseen<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let token = scene.granted().await;
    if fixture.restart().await {
        // Either the lease still runs for a holder elsewhere, or nobody knows: never absent, never granted.
        let answer = scene.claim().await;
        assert!(matches!(answer, ClaimAnswer::Busy(_) | ClaimAnswer::Held(_)), "got {answer:?}");
        assert_eq!(scene.complete(token, "late").await, CompleteAnswer::Completed);
        scene.expect_replay("late").await;
    }
}

fn claims<F: Fixture>(scenes: &[Scene<'_, F>]) -> Vec<Claim> {
    scenes.iter().map(|scene| scene.claim_of(scene.owner(), UnknownPolicy::Hold)).collect()
}

pub async fn c14_a_batch_answers_as_its_items_would<F: Fixture>(fixture: &F) {
    let scenes: Vec<_> = (0..5).map(|_| Scene::new(fixture)).collect();
    scenes[1].completed("done").await;
    scenes[3].granted().await;
    let mut claims = claims(&scenes);
    claims[4].fingerprint = fingerprint(b"first");
    let store = fixture.store();
    let answers: Vec<_> = store.claim_many(&claims).await.unwrap().into_iter().map(Result::unwrap).collect();
    assert_eq!(answers.len(), 5);
    assert!(matches!(answers[1], ClaimAnswer::Replay(_)) && matches!(answers[3], ClaimAnswer::Busy(_)));
    let token = |at: usize| match &answers[at] {
        ClaimAnswer::Granted(grant) => {
            Token { id: claims[at].id, owner: claims[at].owner, fence: grant.fence }
        }
        other => panic!("item {at}: expected a grant, got {other:?}"),
    };
    let (first, third, last) = (token(0), token(2), token(4));
    let lease = Lease::new(LEASE).unwrap();
    let stale = Token { owner: claims[1].owner, ..first };
    let renews = [stale, third, last].map(|token| Renew { token, lease });
    let renewed: Vec<_> = store.renew_many(&renews).await.unwrap().into_iter().map(Result::unwrap).collect();
    assert_eq!(renewed, [RenewAnswer::Fenced, RenewAnswer::Renewed(LEASE), RenewAnswer::Renewed(LEASE)]);
    let completes =
        [stale, first].map(|token| Complete { token, outcome: outcome("batch"), retention: None });
    let completed: Vec<_> =
        store.complete_many(&completes).await.unwrap().into_iter().map(Result::unwrap).collect();
    assert_eq!(completed, [CompleteAnswer::Fenced, CompleteAnswer::Completed]);
    let releases = [first, third].map(|token| Release { token, keep_fingerprint: true });
    let released: Vec<_> =
        store.release_many(&releases).await.unwrap().into_iter().map(Result::unwrap).collect();
    assert_eq!(released, [ReleaseAnswer::Fenced, ReleaseAnswer::Released]);
    scenes[0].expect_replay("batch").await;
    scenes[2].granted().await;
}

pub async fn c14_every_part_of_an_item_counts_in_a_batch<F: Fixture>(fixture: &F) {
    let (used, fresh) = (Scene::new(fixture), Scene::new(fixture));
    used.completed("done").await;
    let mut claims = claims(&[used, fresh]);
    claims[0].fingerprint = fingerprint(b"another body");
    let store = fixture.store();
    let answers: Vec<_> = store.claim_many(&claims).await.unwrap().into_iter().map(Result::unwrap).collect();
    assert_eq!(answers[0], ClaimAnswer::Mismatch { rules: None });
    let ClaimAnswer::Granted(grant) = &answers[1] else { panic!("expected a grant, got {:?}", answers[1]) };
    let token = Token { id: claims[1].id, owner: claims[1].owner, fence: grant.fence };
    let retention = Some(Retention::new(RETENTION / 10).unwrap());
    let complete = Complete { token, outcome: outcome("short"), retention };
    store.complete_many(&[complete]).await.unwrap()[0].as_ref().unwrap();
    fixture.advance(RETENTION / 10).await;
    assert_eq!(store.lookup(&claims[1].id).await.unwrap(), None, "its own retention was dropped");
}

pub async fn c14_a_batch_may_name_a_record_twice<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let first = scene.claim_of(scene.owner(), UnknownPolicy::Hold);
    let second = scene.claim_of(scene.owner(), UnknownPolicy::Hold);
    let batch = [first.clone(), second, first];
    let answers = fixture.store().claim_many(&batch).await.unwrap();
    let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
    assert!(matches!(answers[0], ClaimAnswer::Granted(_)) && matches!(answers[1], ClaimAnswer::Busy(_)));
    assert_eq!(answers[0], answers[2]);
}

pub async fn c14_a_batch_that_is_too_long_is_refused<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let claim = scene.claim_of(scene.owner(), UnknownPolicy::Hold);
    let error = fixture.store().claim_many(&vec![claim; BATCH_MAX + 1]).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Misuse);
    assert!(!error.outcome_unknown());
    assert_eq!(scene.lookup().await, None);
    assert_eq!(fixture.store().claim_many(&[]).await.unwrap().len(), 0);
}

/// Polls a watch without waiting for longer than the store needs to tell.
async fn wakes(watch: Watch, what: &str) {
    // A store on another machine tells within seconds; a watch that never wakes must not hang the suite.
    let patience = std::time::Duration::from_mins(1);
    assert!(tokio::time::timeout(patience, watch).await.is_ok(), "a watch slept through {what}");
}

pub async fn c15_a_watch_wakes_after_every_kind_of_change<F: Fixture>(fixture: &F) {
    let store = fixture.store();
    let scene = Scene::new(fixture);
    let token = scene.granted().await;
    let watches = [store.watch(&scene.id).await.unwrap(), store.watch(&scene.id).await.unwrap()];
    scene.complete(token, "done").await;
    for watch in watches {
        wakes(watch, "a completion").await;
    }
    let watch = store.watch(&scene.id).await.unwrap();
    store.erase(&Erase { id: scene.id }).await.unwrap();
    wakes(watch, "an erasure").await;

    let scene = Scene::new(fixture);
    let token = scene.granted().await;
    let watch = store.watch(&scene.id).await.unwrap();
    scene.release(token).await;
    wakes(watch, "a release").await;

    let token = scene.granted().await;
    let watch = store.watch(&scene.id).await.unwrap();
    scene.abandon(token).await;
    wakes(watch, "an abandonment").await;

    scene.advance(RUN_MAX).await;
    let watch = store.watch(&scene.id).await.unwrap();
    let verdict = Verdict::NotExecuted { force: false };
    let resolve = Resolve { id: scene.id, fence: token.fence, verdict, actor: Actor::Hook };
    store.resolve(&resolve).await.unwrap();
    wakes(watch, "a resolution").await;

    scene.granted().await;
    let watch = store.watch(&scene.id).await.unwrap();
    scene.advance(LEASE).await;
    while store.sweep(SweepBudget::DEFAULT).await.unwrap().more {}
    wakes(watch, "a sweep").await;
}

pub async fn c15_a_watch_that_ends_keeps_no_other_from_waking<F: Fixture>(fixture: &F) {
    let store = fixture.store();
    let scene = Scene::new(fixture);
    let token = scene.granted().await;
    let [mut leaves, mut stays] =
        [store.watch(&scene.id).await.unwrap(), store.watch(&scene.id).await.unwrap()];
    let awake = [is_awake(&mut leaves).await, is_awake(&mut stays).await];
    drop(leaves);
    scene.release(token).await;
    still_wakes(awake[1], stays, "a release after another watch had ended").await;

    let token = scene.granted().await;
    let [early, mut late] = [store.watch(&scene.id).await.unwrap(), store.watch(&scene.id).await.unwrap()];
    let is_late_awake = is_awake(&mut late).await;
    scene.release(token).await;
    wakes(early, "a release").await;
    let token = scene.granted().await;
    let mut again = store.watch(&scene.id).await.unwrap();
    let is_again_awake = is_awake(&mut again).await;
    still_wakes(is_late_awake, late, "the same release").await;
    scene.complete(token, "done").await;
    still_wakes(is_again_awake, again, "a completion after watches of before had ended").await;
}

/// The same for a watch that was asked before. A store on another machine may tell late of what was before: then it is awake
/// already, too early and not too late.
async fn still_wakes(is_awake: bool, watch: Watch, what: &str) {
    if !is_awake {
        wakes(watch, what).await;
    }
}

/// Asks a watch once, as a task does that then waits for it.
async fn is_awake(watch: &mut Watch) -> bool {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *watch).poll(cx).is_ready())).await
}

pub async fn c16_damage_is_an_error_and_never_absence<F: Fixture>(fixture: &F) {
    let damaged = Scene::new(fixture);
    let token = damaged.completed("done").await;
    let whole = Scene::new(fixture);
    whole.completed("whole").await;
    if !fixture.damage(&damaged.id).await {
        return;
    }
    let store = fixture.store();
    for policy in [UnknownPolicy::Hold, UnknownPolicy::Rerun] {
        let claim = damaged.claim_of(damaged.owner(), policy);
        let error = store.claim(&claim).await.expect_err("a damaged record was taken for something");
        assert!(matches!(error.kind(), StoreErrorKind::Corrupt | StoreErrorKind::Unsupported), "{error:?}");
        assert!(!error.is_retryable());
    }
    assert!(store.lookup(&damaged.id).await.is_err(), "lookup took damage for absence");
    let prefix = |id: &RecordId| Listing { prefix: Some(id.to_string()), ..Listing::default() };
    let page = store.list(&prefix(&damaged.id)).await.expect("one record that cannot be read is no failure");
    let named: Vec<_> = page.unreadable.iter().map(|found| found.id).collect();
    assert_eq!((named, page.records.len()), (vec![damaged.id], 0), "listed as what it is");
    let all = store.list(&Listing::default()).await.expect("a page");
    assert!(all.records.iter().any(|(id, _)| *id == whole.id), "damage hides nothing else");
    let complete = Complete { token, outcome: outcome("again"), retention: None };
    assert!(store.complete(&complete).await.is_err());
    whole.expect_replay("whole").await;
}

/// A record as another store would hand it over: completed, with a fence far above this store's.
async fn from_elsewhere<F: Fixture>(fixture: &F, scene: &Scene<'_, F>) -> (RecordId, Record) {
    let template = Scene::new(fixture);
    template.completed("moved").await;
    let record = template.lookup().await.expect("a completed record");
    (scene.id, Record { fence: Fence::new(IMPORT_FENCE_MAX - 7).unwrap(), ..record })
}

pub async fn c19_an_imported_record_answers_as_it_did<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let moved = from_elsewhere(fixture, &scene).await;
    let imported = scene.store().import(std::slice::from_ref(&moved)).await.unwrap();
    assert_eq!(imported, Imported { taken: 1, left: 0 });
    assert_eq!(scene.lookup().await, Some(moved.1));
    scene.expect_replay("moved").await;
    if fixture.restart().await {
        scene.expect_replay("moved").await;
    }
    scene.advance(RETENTION).await;
    scene.granted().await;
}

pub async fn c19_an_import_leaves_what_is_in_use_alone<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let moved = from_elsewhere(fixture, &scene).await;
    let token = scene.completed("here").await;
    let imported = scene.store().import(std::slice::from_ref(&moved)).await.unwrap();
    assert_eq!(imported, Imported { taken: 0, left: 1 });
    scene.expect_replay("here").await;
    assert_eq!(scene.complete(token, "here").await, CompleteAnswer::Already);

    let expired = Scene::new(fixture);
    let moved = (expired.id, moved.1);
    expired.advance(RETENTION).await;
    let imported = expired.store().import(std::slice::from_ref(&moved)).await.unwrap();
    assert_eq!(imported, Imported { taken: 0, left: 1 });
    let too_high = Record { fence: Fence::new(Fence::LIMIT - 1).unwrap(), ..moved.1.clone() };
    assert!(expired.store().import(&[(expired.id, too_high)]).await.is_err());
    assert!(expired.store().import(&vec![moved; BATCH_MAX + 1]).await.is_err());
}

pub async fn c19_grants_after_an_import_have_higher_fences<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let moved = from_elsewhere(fixture, &scene).await;
    scene.store().import(std::slice::from_ref(&moved)).await.unwrap();
    let floor = moved.1.fence;
    assert!(Scene::new(fixture).granted().await.fence > floor);
    if fixture.restart().await {
        assert!(Scene::new(fixture).granted().await.fence > floor);
    }
}

pub async fn c18_the_first_secret_is_kept<F: Fixture>(fixture: &F) {
    let store = fixture.store();
    let kept = store.secret(&Secret::random().unwrap()).await.unwrap();
    assert_eq!(store.secret(&Secret::random().unwrap()).await.unwrap(), kept);
    if fixture.restart().await {
        assert_eq!(fixture.store().secret(&Secret::random().unwrap()).await.unwrap(), kept);
    }
}
