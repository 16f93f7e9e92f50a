//! Clauses 3, 10 and 17: finality, release, steps.
#![expect(missing_docs, reason = "a clause is named by what it shows")]

use bytes::Bytes;
use onlyonce_core::record::{STEP_ADDED_BYTES_MAX, STEPS_BYTES_MAX, STEPS_MAX, StepName};
use onlyonce_core::transition::{
    ClaimAnswer, Complete, CompleteAnswer, Grant, RecordStep, Release, ReleaseAnswer, StepAnswer, Token,
    UnknownPolicy,
};
use onlyonce_core::{Outcome, Tombstone};

use crate::fixture::{Fixture, LEASE, RETENTION, Scene, TICK, fingerprint};

pub async fn c3_a_completed_record_replays_the_same_bytes<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let token = scene.completed("the answer").await;
    for _ in 0..3 {
        scene.expect_replay("the answer").await;
        scene.advance(RETENTION / 4).await;
    }
    match scene.claim().await {
        ClaimAnswer::Replay(replay) => {
            assert_eq!((replay.fence, replay.attempt), (token.fence, 1));
            assert_eq!(replay.age, RETENTION / 4 * 3);
        }
        other => panic!("expected a replay, got {other:?}"),
    }
}

pub async fn c3_another_outcome_under_the_same_fence_is_an_alarm<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let token = scene.completed("first").await;
    assert_eq!(scene.complete(token, "second").await, CompleteAnswer::Alarm);
    scene.expect_replay("first").await;
}

pub async fn c3_a_completed_record_is_never_granted_before_expiry<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let token = scene.completed("done").await;
    for policy in [UnknownPolicy::Hold, UnknownPolicy::Seal, UnknownPolicy::Query, UnknownPolicy::Rerun] {
        assert!(matches!(scene.claim_under(policy).await, ClaimAnswer::Replay(_)));
    }
    assert_eq!(scene.release(token).await, ReleaseAnswer::Fenced);
    scene.abandon(token).await;
    scene.advance(RETENTION - TICK).await;
    scene.expect_replay("done").await;
}

pub async fn c3_large_and_empty_outcomes_come_back_whole<F: Fixture>(fixture: &F) {
    for len in [0, 1, 255, 65_536, 1 << 20] {
        let scene = Scene::new(fixture);
        let token = scene.granted().await;
        let body: Bytes = (0..len).map(|at: u32| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect();
        let outcome = Outcome::kept(u16::MAX, body).with_head(vec![0; 64]).unwrap();
        let complete = Complete { token, outcome: outcome.clone(), retention: None };
        assert_eq!(scene.store().complete(&complete).await.unwrap(), CompleteAnswer::Completed);
        match scene.claim().await {
            ClaimAnswer::Replay(replay) => {
                assert!(replay.outcome == outcome, "{len} bytes came back changed");
            }
            other => panic!("expected a replay of {len} bytes, got {other:?}"),
        }
    }
}

pub async fn c3_tombstones_are_replayed<F: Fixture>(fixture: &F) {
    for why in [Tombstone::TooLarge, Tombstone::Discarded, Tombstone::Indeterminate] {
        let scene = Scene::new(fixture);
        let token = scene.granted().await;
        let outcome = Outcome::tombstone(3, why).with_head("201").unwrap();
        let complete = Complete { token, outcome: outcome.clone(), retention: None };
        assert_eq!(scene.store().complete(&complete).await.unwrap(), CompleteAnswer::Completed);
        match scene.claim_under(UnknownPolicy::Rerun).await {
            ClaimAnswer::Replay(replay) => assert_eq!(replay.outcome, outcome),
            other => panic!("expected the tombstone, got {other:?}"),
        }
    }
}

pub async fn c10_a_released_key_runs_again_with_the_next_attempt<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    for attempt in 1..=5 {
        let claim = scene.claim_of(scene.owner(), UnknownPolicy::Hold);
        match scene.send(&claim).await {
            ClaimAnswer::Granted(grant) => {
                assert_eq!(grant.attempt, attempt);
                let token = Token { id: scene.id, owner: claim.owner, fence: grant.fence };
                assert_eq!(scene.release(token).await, ReleaseAnswer::Released);
            }
            other => panic!("expected attempt {attempt}, got {other:?}"),
        }
    }
}

pub async fn c10_a_release_keeps_or_forgets_the_fingerprint<F: Fixture>(fixture: &F) {
    for keep_fingerprint in [true, false] {
        let scene = Scene::new(fixture);
        let token = scene.granted().await;
        let release = Release { token, keep_fingerprint };
        assert_eq!(scene.store().release(&release).await.unwrap(), ReleaseAnswer::Released);
        let mut corrected = scene.claim_of(scene.owner(), UnknownPolicy::Hold);
        corrected.fingerprint = fingerprint(b"corrected");
        let answer = scene.send(&corrected).await;
        if keep_fingerprint {
            assert_eq!(answer, ClaimAnswer::Mismatch { rules: None });
        } else {
            assert!(matches!(answer, ClaimAnswer::Granted(Grant { attempt: 2, .. })), "got {answer:?}");
            assert_eq!(
                scene.claim().await,
                ClaimAnswer::Mismatch { rules: None },
                "the corrected one counts now"
            );
        }
    }
}

pub async fn c10_a_lapsed_owner_cannot_release<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let token = scene.granted().await;
    scene.advance(LEASE).await;
    assert_eq!(scene.release(token).await, ReleaseAnswer::Fenced);
    assert!(matches!(scene.claim().await, ClaimAnswer::Held(_)));

    let scene = Scene::new(fixture);
    let token = scene.granted().await;
    scene.abandon(token).await;
    assert_eq!(scene.release(token).await, ReleaseAnswer::Fenced);
    assert!(matches!(scene.claim().await, ClaimAnswer::Held(_)));
}

async fn record<F: Fixture>(
    scene: &Scene<'_, F>,
    token: Token,
    name: &str,
    value: impl Into<Bytes>,
) -> StepAnswer {
    let step = RecordStep { token, name: StepName::new(name).unwrap(), value: value.into() };
    scene.store().record_step(&step).await.unwrap()
}

pub async fn c17_a_step_is_recorded_once_and_read_back<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let token = scene.granted().await;
    assert_eq!(record(&scene, token, "charge", "ch_1").await, StepAnswer::Recorded);
    assert_eq!(record(&scene, token, "charge", "ch_2").await, StepAnswer::Already("ch_1".into()));
    assert_eq!(record(&scene, token, "mail", "").await, StepAnswer::Recorded);
    scene.advance(LEASE).await;
    match scene.claim_under(UnknownPolicy::Rerun).await {
        ClaimAnswer::Granted(grant) => {
            let steps: Vec<_> = grant.steps.iter().map(|s| (s.name.as_str(), s.value.as_deref())).collect();
            assert_eq!(steps, [("charge", Some(&b"ch_1"[..])), ("mail", Some(&b""[..]))]);
        }
        other => panic!("expected the second attempt, got {other:?}"),
    }
}

pub async fn c17_steps_need_a_live_grant_and_are_bounded<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let token = scene.granted().await;
    for at in 0..STEPS_MAX {
        assert_eq!(record(&scene, token, &format!("s{at}"), "v").await, StepAnswer::Recorded);
    }
    assert_eq!(record(&scene, token, "one more", "v").await, StepAnswer::Full);
    scene.advance(LEASE).await;
    assert_eq!(record(&scene, token, "late", "v").await, StepAnswer::Fenced);

    let scene = Scene::new(fixture);
    let token = scene.granted().await;
    let half = vec![0; STEPS_BYTES_MAX / 2 - STEP_ADDED_BYTES_MAX];
    assert_eq!(record(&scene, token, "a", half.clone()).await, StepAnswer::Recorded);
    assert_eq!(record(&scene, token, "b", half).await, StepAnswer::Recorded);
    // A store that adds nothing has room for this, and for no byte more.
    let rest = record(&scene, token, "c", vec![0; 2 * STEP_ADDED_BYTES_MAX]).await;
    assert!(matches!(rest, StepAnswer::Recorded | StepAnswer::Full), "got {rest:?}");
    let too_much = if rest == StepAnswer::Recorded { 1 } else { 2 * STEP_ADDED_BYTES_MAX + 1 };
    assert_eq!(record(&scene, token, "d", vec![0; too_much]).await, StepAnswer::Full);
    assert_eq!(scene.complete(token, "done").await, CompleteAnswer::Completed);
    assert_eq!(record(&scene, token, "after", "v").await, StepAnswer::Fenced);
}

pub async fn c17_a_corrected_request_starts_without_steps<F: Fixture>(fixture: &F) {
    for keep_fingerprint in [true, false] {
        let scene = Scene::new(fixture);
        let token = scene.granted().await;
        record(&scene, token, "s", "v").await;
        scene.store().release(&Release { token, keep_fingerprint }).await.unwrap();
        match scene.claim().await {
            ClaimAnswer::Granted(grant) => assert_eq!(grant.steps.len(), usize::from(keep_fingerprint)),
            other => panic!("expected a grant, got {other:?}"),
        }
    }
}
