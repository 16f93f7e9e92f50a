//! Clauses 11 and 13: resolve and erase, and what operators are shown.
#![expect(missing_docs, reason = "a clause is named by what it shows")]

use onlyonce_core::record::{StateKind, StepName};
use onlyonce_core::store::{Listing, PAGE_BYTES_MAX};
use onlyonce_core::transition::{
    Actor, Claim, ClaimAnswer, Complete, CompleteAnswer, Erase, EraseAnswer, RecordStep, Release, Resolve,
    ResolveAnswer, StepAnswer, Token, UnknownPolicy, Verdict,
};
use onlyonce_core::{Fence, Outcome, RecordId, ScopeTag, house};

use crate::fixture::{Fixture, LEASE, RETENTION, RUN_MAX, Scene, TICK, any_id, outcome};

const NOT_EXECUTED: Verdict = Verdict::NotExecuted { force: false };

async fn resolve<F: Fixture>(scene: &Scene<'_, F>, fence: Fence, verdict: Verdict) -> ResolveAnswer {
    let resolve = Resolve { id: scene.id, fence, verdict, actor: Actor::Operator("alice".into()) };
    scene.store().resolve(&resolve).await.unwrap()
}

/// A record that is unknown, and whose attempt can no longer be running.
async fn unknown<F: Fixture>(fixture: &F) -> (Scene<'_, F>, Token) {
    let scene = Scene::new(fixture);
    let token = scene.granted().await;
    scene.advance(RUN_MAX).await;
    (scene, token)
}

pub async fn c11_resolve_executed_completes_and_not_executed_releases<F: Fixture>(fixture: &F) {
    let (scene, token) = unknown(fixture).await;
    let executed = Verdict::Executed(outcome("found"));
    assert_eq!(resolve(&scene, token.fence, executed.clone()).await, ResolveAnswer::Resolved);
    assert_eq!(resolve(&scene, token.fence, executed).await, ResolveAnswer::Already);
    scene.expect_replay("found").await;
    assert_eq!(scene.complete(token, "late").await, CompleteAnswer::Late);
    scene.expect_replay("found").await;
    scene.advance(RETENTION).await;
    assert_eq!(scene.lookup().await, None);

    let (scene, token) = unknown(fixture).await;
    assert_eq!(resolve(&scene, token.fence, NOT_EXECUTED).await, ResolveAnswer::Resolved);
    assert_eq!(resolve(&scene, token.fence, NOT_EXECUTED).await, ResolveAnswer::Already);
    assert_eq!(scene.complete(token, "late").await, CompleteAnswer::Fenced);
    assert!(scene.granted().await.fence > token.fence);
}

pub async fn c11_resolve_needs_the_fence_and_an_unknown_record<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let fence = Fence::new(1).unwrap();
    assert_eq!(resolve(&scene, fence, NOT_EXECUTED).await, ResolveAnswer::Absent);
    let token = scene.granted().await;
    let in_flight = ResolveAnswer::NotUnknown(StateKind::InFlight);
    for verdict in [NOT_EXECUTED, Verdict::Executed(outcome("forged")), Verdict::StillUnknown] {
        assert_eq!(resolve(&scene, token.fence, verdict).await, in_flight);
    }
    let other = Fence::new(token.fence.get() + 1).unwrap();
    assert_eq!(resolve(&scene, other, NOT_EXECUTED).await, ResolveAnswer::Stale(token.fence));
    scene.complete(token, "done").await;
    for verdict in [NOT_EXECUTED, Verdict::Executed(outcome("forged")), Verdict::StillUnknown] {
        assert_eq!(
            resolve(&scene, token.fence, verdict).await,
            ResolveAnswer::NotUnknown(StateKind::Completed)
        );
    }
    scene.expect_replay("done").await;
}

pub async fn c11_not_executed_waits_until_the_attempt_can_no_longer_run<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let token = scene.granted().await;
    scene.abandon(token).await;
    assert_eq!(resolve(&scene, token.fence, NOT_EXECUTED).await, ResolveAnswer::TooEarly(RUN_MAX));
    scene.advance(RUN_MAX - TICK).await;
    assert_eq!(resolve(&scene, token.fence, NOT_EXECUTED).await, ResolveAnswer::TooEarly(TICK));
    assert!(matches!(scene.claim().await, ClaimAnswer::Held(_)));
    scene.advance(TICK).await;
    assert_eq!(resolve(&scene, token.fence, NOT_EXECUTED).await, ResolveAnswer::Resolved);

    let scene = Scene::new(fixture);
    let token = scene.granted().await;
    scene.abandon(token).await;
    let forced = Verdict::NotExecuted { force: true };
    assert_eq!(resolve(&scene, token.fence, forced).await, ResolveAnswer::Resolved);
    scene.granted().await;
}

pub async fn c11_a_sealed_record_can_be_resolved<F: Fixture>(fixture: &F) {
    let (scene, token) = unknown(fixture).await;
    scene.claim_under(UnknownPolicy::Seal).await;
    let executed = Verdict::Executed(outcome("found"));
    assert_eq!(resolve(&scene, token.fence, executed).await, ResolveAnswer::Resolved);
    scene.expect_replay("found").await;
    let again = Verdict::Executed(outcome("something else"));
    assert_eq!(resolve(&scene, token.fence, again).await, ResolveAnswer::NotUnknown(StateKind::Completed));

    let (scene, token) = unknown(fixture).await;
    scene.claim_under(UnknownPolicy::Seal).await;
    assert_eq!(resolve(&scene, token.fence, NOT_EXECUTED).await, ResolveAnswer::Resolved);
    scene.granted().await;
}

async fn erase<F: Fixture>(scene: &Scene<'_, F>) -> EraseAnswer {
    scene.store().erase(&Erase { id: scene.id }).await.unwrap()
}

pub async fn c11_erase_drops_the_body_and_keeps_the_key_used<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    assert_eq!(erase(&scene).await, EraseAnswer::Absent);
    let token = scene.completed("personal").await;
    assert_eq!(erase(&scene).await, EraseAnswer::Erased);
    assert_eq!(erase(&scene).await, EraseAnswer::Erased);
    match scene.claim_under(UnknownPolicy::Rerun).await {
        ClaimAnswer::Replay(replay) => assert_eq!(replay.outcome, outcome("personal").erased()),
        other => panic!("expected the erased tombstone, got {other:?}"),
    }
    assert_eq!(scene.complete(token, "personal").await, CompleteAnswer::Already, "it does not come back");
    assert!(matches!(scene.claim().await, ClaimAnswer::Replay(replay) if replay.outcome.is_erased()));
    scene.advance(RETENTION).await;
    scene.granted().await;

    let scene = Scene::new(fixture);
    let token = scene.granted().await;
    let step = RecordStep { token, name: StepName::new("charge").unwrap(), value: "personal".into() };
    scene.store().record_step(&step).await.unwrap();
    scene.advance(LEASE).await;
    assert_eq!(erase(&scene).await, EraseAnswer::Erased);
    assert!(matches!(scene.claim().await, ClaimAnswer::Held(_)), "unknown stays unknown");
    let token = scene.granted_under(UnknownPolicy::Rerun).await;
    let answer = scene.store().record_step(&RecordStep { token, ..step }).await.unwrap();
    assert_eq!(answer, StepAnswer::Erased, "an erased step is not made again");
}

pub async fn c11_erase_refuses_what_is_in_flight<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let token = scene.granted().await;
    assert_eq!(erase(&scene).await, EraseAnswer::InFlight);
    assert_eq!(scene.complete(token, "done").await, CompleteAnswer::Completed);
    scene.expect_replay("done").await;
}

pub async fn c13_lookup_shows_what_commands_would_read<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let kind = async || scene.lookup().await.map(|record| record.kind());
    assert_eq!(kind().await, None);
    let token = scene.granted().await;
    assert_eq!(kind().await, Some(StateKind::InFlight));
    scene.advance(LEASE).await;
    assert_eq!(kind().await, Some(StateKind::Unknown), "lapsed, not swept");
    scene.complete(token, "done").await;
    assert_eq!(kind().await, Some(StateKind::Completed));
    scene.advance(RETENTION).await;
    assert_eq!(kind().await, None, "expired, not swept");
}

pub async fn c13_list_goes_through_every_record_once<F: Fixture>(fixture: &F) {
    let scenes: Vec<_> = (0..25).map(|_| Scene::new(fixture)).collect();
    for scene in &scenes {
        scene.granted().await;
    }
    let ours = Claim { id: house::SWEEP, ..scenes[0].claim_of(scenes[0].owner(), UnknownPolicy::Hold) };
    scenes[0].send(&ours).await;
    let mut seen: Vec<RecordId> = Vec::new();
    let mut listing = Listing { limit: 7, ..Listing::default() };
    loop {
        let page = fixture.store().list(&listing).await.unwrap();
        assert!(page.records.len() <= 7);
        seen.extend(page.records.iter().map(|(id, _)| *id));
        if page.next.is_none() {
            break;
        }
        listing.after = page.next;
    }
    assert!(seen.is_sorted_by(|a, b| a < b), "in the order of the ids, each once");
    assert!(scenes.iter().all(|scene| seen.contains(&scene.id)));
    assert!(!seen.contains(&house::SWEEP), "a record of the house was listed");
}

pub async fn c13_list_keeps_to_what_was_asked_for<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    scene.completed("done").await;
    let others = [Scene::new(fixture), Scene::new(fixture), Scene::new(fixture)];
    others[0].granted().await;
    let token = others[1].granted().await;
    others[1].store().release(&Release { token, keep_fingerprint: true }).await.unwrap();
    let token = others[2].granted().await;
    others[2].abandon(token).await;

    let ids = async |listing: Listing| -> Vec<RecordId> {
        fixture.store().list(&listing).await.unwrap().records.iter().map(|(id, _)| *id).collect()
    };
    let completed = ids(Listing { states: vec![StateKind::Completed], ..Listing::default() }).await;
    assert!(completed.contains(&scene.id) && others.iter().all(|other| !completed.contains(&other.id)));
    let rest = vec![StateKind::InFlight, StateKind::Released, StateKind::Unknown];
    let rest = ids(Listing { states: rest, ..Listing::default() }).await;
    assert!(!rest.contains(&scene.id) && others.iter().all(|other| rest.contains(&other.id)));
    let by_prefix = ids(Listing { prefix: Some(scene.id.short()), ..Listing::default() }).await;
    assert_eq!(by_prefix, [scene.id]);
    let tag = ScopeTag::of(&scene.id);
    let by_scope = ids(Listing { scope: Some(tag), ..Listing::default() }).await;
    assert_eq!(by_scope, [scene.id], "another principal's records were listed");
    let created_at = scene.lookup().await.unwrap().created_at;
    let before = ids(Listing { created_before: Some(created_at), ..Listing::default() }).await;
    assert!(!before.contains(&scene.id));
    let after_all = RecordId::from_bytes([255; 32]);
    assert_eq!(ids(Listing { after: Some(after_all), ..Listing::default() }).await, []);
}

pub async fn c13_a_page_of_large_records_ends_where_its_bytes_do<F: Fixture>(fixture: &F) {
    const LARGE: usize = 1 << 20;
    let scenes: Vec<_> = (0..PAGE_BYTES_MAX / LARGE + 4).map(|_| Scene::new(fixture)).collect();
    for scene in &scenes {
        let token = scene.granted().await;
        let complete = Complete { token, outcome: Outcome::kept(1, vec![7; LARGE]), retention: None };
        assert_eq!(scene.store().complete(&complete).await.unwrap(), CompleteAnswer::Completed);
    }
    let (mut seen, mut pages): (Vec<RecordId>, usize) = (Vec::new(), 0);
    let mut listing = Listing::default();
    loop {
        let page = fixture.store().list(&listing).await.unwrap();
        let weight: usize = page.records.iter().map(|(_, record)| record.weight()).sum();
        let last = page.records.last().map_or(0, |(_, record)| record.weight());
        assert!(weight - last < PAGE_BYTES_MAX, "{weight} bytes on a page, the last record {last}");
        pages += 1;
        seen.extend(page.records.iter().map(|(id, _)| *id));
        if page.next.is_none() {
            break;
        }
        assert!(page.next >= seen.last().copied(), "the next page would begin with what was seen");
        listing.after = page.next;
    }
    assert!(pages > 1 && seen.is_sorted_by(|a, b| a < b), "{pages} pages, each record once");
    assert!(scenes.iter().all(|scene| seen.contains(&scene.id)), "a record was left out between two pages");
}

pub async fn c13_stats_count_what_is_stored<F: Fixture>(fixture: &F) {
    let before = fixture.store().stats().await.unwrap();
    let scene = Scene::new(fixture);
    let token = scene.granted().await;
    let granted = fixture.store().stats().await.unwrap();
    assert_eq!(granted.in_flight, before.in_flight + 1);
    scene.complete(token, "a body that takes some room").await;
    let completed = fixture.store().stats().await.unwrap();
    assert_eq!((completed.in_flight, completed.completed), (before.in_flight, before.completed + 1));
    assert!(completed.bytes > before.bytes);
    assert_eq!(fixture.store().lookup(&any_id()).await.unwrap(), None, "reading makes nothing");
    assert_eq!(fixture.store().stats().await.unwrap().records(), completed.records());
}
