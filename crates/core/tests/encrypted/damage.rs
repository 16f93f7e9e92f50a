//! Bytes that were not encrypted for this place: an error, never absence and never a grant.

use bytes::Bytes;
use onlyonce_core::record::{Completed, State, Step, StepName};
use onlyonce_core::store::{Listing, StoreErrorKind};
use onlyonce_core::transition::{ClaimAnswer, Complete, RecordStep, UnknownPolicy};
use onlyonce_core::{Fence, Outcome, Record, RecordId, StoreError};
use onlyonce_testkit::fixture::{LEASE, any_id, outcome};
use onlyonce_testkit::{Clocked, Scene, run};

use crate::{Pair, body_of, cause, ring, scene_of};

/// The record with other bytes in its body.
fn with_body(record: &Record, body: impl Into<Bytes>) -> Record {
    let State::Completed(completed) = &record.state else { panic!("completed, not {record:?}") };
    let outcome = Outcome::kept(completed.outcome.content_version(), body);
    let outcome = outcome.with_head(completed.outcome.head().clone()).unwrap();
    Record { state: State::Completed(Completed { outcome, ..completed.clone() }), ..record.clone() }
}

/// Every way to read the record is refused, and says why.
async fn expect_damage(fixture: &Clocked, id: RecordId, why: &str) -> StoreError {
    let scene = scene_of(fixture, id);
    let store = scene.store();
    let policies = [UnknownPolicy::Hold, UnknownPolicy::Seal, UnknownPolicy::Query, UnknownPolicy::Rerun];
    for policy in policies {
        let claim = scene.claim_of(scene.owner(), policy);
        let error = store.claim(&claim).await.expect_err(why);
        assert!(!error.is_retryable(), "{why}: {error:?}");
        assert!(store.claim_many(&[claim]).await.unwrap()[0].is_err(), "{why}: in a batch");
    }
    let page = store.list(&Listing::default()).await.expect("a page");
    let named = page.unreadable.iter().find(|found| found.id == id);
    assert!(named.is_some_and(|found| !found.why.is_empty()), "{why}: {page:?}");
    assert!(page.records.iter().all(|(listed, _)| *listed != id), "{why}: listed");
    store.lookup(&id).await.expect_err(why)
}

#[test]
fn every_changed_byte_is_noticed() {
    run(async {
        let pair = Pair::new(ring(&[("k1", 1), ("k2", 2)]));
        let scene = Scene::new(&pair.clear);
        let token = scene.completed("done").await;
        let raw = pair.raw(&scene.id).await;
        let sealed = body_of(&raw).clone();
        for at in 0..sealed.len() {
            for bit in [0x01, 0x80] {
                let mut changed = sealed.to_vec();
                changed[at] ^= bit;
                let forged = [(scene.id, with_body(&raw, changed))];
                let forged = pair.forged(ring(&[("k1", 1), ("k2", 2)]), &forged).await;
                let error = expect_damage(&forged.clear, scene.id, &format!("byte {at}")).await;
                let kinds = [StoreErrorKind::Corrupt, StoreErrorKind::Unsupported];
                assert!(kinds.contains(&error.kind()), "byte {at}: {error:?}");
                let again = Complete { token, outcome: outcome("done"), retention: None };
                assert!(
                    scene_of(&forged.clear, scene.id).store().complete(&again).await.is_err(),
                    "byte {at}: completed again"
                );
            }
        }
        for len in 0..sealed.len() {
            let forged = [(scene.id, with_body(&raw, sealed.slice(..len)))];
            let forged = pair.forged(ring(&[("k1", 1)]), &forged).await;
            expect_damage(&forged.clear, scene.id, &format!("cut to {len} bytes")).await;
        }
    });
}

#[test]
fn the_bytes_of_one_record_are_damage_in_another() {
    run(async {
        let pair = Pair::new(ring(&[("k1", 1)]));
        let (one, other) = (Scene::new(&pair.clear), Scene::new(&pair.clear));
        one.completed("for one").await;
        other.completed("for the other").await;
        let (raw_one, raw_other) = (pair.raw(&one.id).await, pair.raw(&other.id).await);

        // The whole record under another id, only the body, and the same record after a later grant.
        let elsewhere = any_id();
        let body = with_body(&raw_other, body_of(&raw_one).clone());
        let later = Record { fence: Fence::new(raw_one.fence.get() + 7).unwrap(), ..raw_one.clone() };
        for (id, record) in [(elsewhere, raw_one.clone()), (other.id, body), (one.id, later)] {
            let forged = pair.forged(ring(&[("k1", 1)]), &[(id, record)]).await;
            let error = expect_damage(&forged.clear, id, "moved").await;
            assert_eq!(error.kind(), StoreErrorKind::Corrupt);
            assert!(cause(&error).contains("belongs to another record"), "{error:?}");
        }
    });
}

#[test]
fn what_stands_beside_a_body_is_part_of_it() {
    run(async {
        let pair = Pair::new(ring(&[("k1", 1)]));
        let scene = Scene::new(&pair.clear);
        scene.completed("done").await;
        let raw = pair.raw(&scene.id).await;
        let State::Completed(completed) = &raw.state else { panic!("completed") };
        let body = body_of(&raw).clone();
        let other_head = Outcome::kept(7, body.clone()).with_head("other").unwrap();
        let other_version = Outcome::kept(8, body).with_head("head").unwrap();
        for outcome in [other_head, other_version] {
            let state = State::Completed(Completed { outcome, ..completed.clone() });
            let forged = [(scene.id, Record { state, ..raw.clone() })];
            let forged = pair.forged(ring(&[("k1", 1)]), &forged).await;
            expect_damage(&forged.clear, scene.id, "beside the body").await;
        }
    });
}

#[test]
fn a_grant_whose_steps_cannot_be_read_is_not_handed_on() {
    run(async {
        let pair = Pair::new(ring(&[("k1", 1)]));
        let scene = Scene::new(&pair.clear);
        let token = scene.granted().await;
        for (name, value) in [("charge", "paid"), ("notify", "sent")] {
            let step = RecordStep { token, name: StepName::new(name).unwrap(), value: value.into() };
            scene.store().record_step(&step).await.unwrap();
        }
        scene.advance(LEASE).await;
        let mut raw = pair.raw(&scene.id).await;
        let [first, second] = raw.steps.as_mut_slice() else { panic!("two steps") };
        std::mem::swap(&mut first.value, &mut second.value);
        let forged = pair.forged(ring(&[("k1", 1)]), &[(scene.id, raw)]).await;
        let there = scene_of(&forged.clear, scene.id);
        for policy in [UnknownPolicy::Rerun, UnknownPolicy::Query] {
            let claim = there.claim_of(onlyonce_core::Owner::random().unwrap(), policy);
            let error = there.store().claim(&claim).await;
            let Err(error) = error else { panic!("{policy:?}: got {error:?}") };
            assert_eq!(error.kind(), StoreErrorKind::Corrupt);
            assert!(error.outcome_unknown(), "the store made the grant");
            there.advance(LEASE).await;
        }
    });
}

#[test]
fn erased_and_bodiless_outcomes_need_no_key() {
    run(async {
        let pair = Pair::new(ring(&[("k1", 1)]));
        let scene = Scene::new(&pair.clear);
        scene.completed("personal").await;
        let erase = onlyonce_core::transition::Erase { id: scene.id };
        // Also whoever has lost the key can still erase, and sees that it was done.
        let lost = pair.with(ring(&[("k2", 2)]));
        let there = scene_of(&lost, scene.id);
        there.store().erase(&erase).await.unwrap();
        let answer = there.claim().await;
        let ClaimAnswer::Replay(replay) = answer else { panic!("got {answer:?}") };
        assert!(replay.outcome.is_erased());
        let steps: Vec<Step> = there.lookup().await.unwrap().steps;
        assert_eq!(steps, []);
    });
}
