//! What the suite meets only by chance, or what only Redis can be brought to.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::record::{CompletedBy, State, StateKind};
use onlyonce_core::store::{IMPORT_FENCE_MAX, Listing, SweepBudget};
use onlyonce_core::sweeper::{Ended, Plan, Sweeper};
use onlyonce_core::transition::{
    Actor, Change, Claim, ClaimAnswer, CompleteAnswer, Moment, Resolve, ResolveAnswer, Terms, UnknownPolicy,
    Verdict, apply, view,
};
use onlyonce_core::{Engine, Fence, Record, StoreErrorKind, house};
use onlyonce_testkit::fixture::{LEASE, RETENTION, RUN_MAX, terms};
use onlyonce_testkit::{Fixture as _, Scene, run};
use redis::Commands as _;

use crate::stage::{Alone, Damage, key_of, raw};

#[test]
fn not_executed_is_contradicted_by_what_the_owner_reported() {
    run(async {
        let alone = Alone::new(Damage::Head).await;
        let scene = Scene::new(&alone);
        let token = scene.granted().await;
        scene.advance(RUN_MAX).await;
        scene.claim_under(UnknownPolicy::Seal).await;
        assert_eq!(scene.complete(token, "truth").await, CompleteAnswer::Late);
        let resolve = async |force| {
            let verdict = Verdict::NotExecuted { force };
            let resolve = Resolve { id: scene.id, fence: token.fence, verdict, actor: Actor::Hook };
            scene.store().resolve(&resolve).await.expect("an answer")
        };
        assert_eq!(resolve(false).await, ResolveAnswer::Contradicted);
        match scene.lookup().await.expect("a record").state {
            State::Completed(completed) => assert_eq!(completed.by, CompletedBy::Seal),
            other => panic!("it changed: {other:?}"),
        }
        assert_eq!(resolve(true).await, ResolveAnswer::Resolved);
        assert_eq!(scene.lookup().await.map(|record| record.kind()), Some(StateKind::Released));
    });
}

#[test]
fn the_fence_of_an_expired_record_counts_even_when_the_source_is_behind() {
    run(async {
        let alone = Alone::new(Damage::Head).await;
        let scene = Scene::new(&alone);
        let template = Scene::new(&alone);
        template.completed("moved").await;
        let fence = Fence::new(IMPORT_FENCE_MAX - 7).expect("below the limit");
        let record = Record { fence, ..template.lookup().await.expect("a record") };
        scene.store().import(&[(scene.id, record)]).await.expect("an import");
        // The source forgets that it runs ahead, and a new process does not know either.
        raw(&alone.server.url()).del::<_, ()>("onlyonce:epoch").expect("DEL");
        alone.restart().await;
        assert!(Scene::new(&alone).granted().await.fence < fence, "the source is behind");
        scene.advance(RETENTION).await;
        assert!(scene.granted().await.fence > fence);
    });
}

#[test]
fn what_is_not_a_record_is_an_error_and_is_left_alone() {
    run(async {
        let alone = Alone::new(Damage::Head).await;
        let scene = Scene::new(&alone);
        let mut connection = raw(&alone.server.url());
        connection.lpush::<_, _, ()>(key_of(&scene.id), "a list").expect("LPUSH");
        let claim = scene.claim_of(scene.owner(), UnknownPolicy::Rerun);
        let error = scene.store().claim(&claim).await.expect_err("a list is no record");
        assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{error:?}");
        assert_the_others_are_swept(&alone, 1).await;
        let page = scene.store().list(&Listing::default()).await.expect("a page");
        assert_eq!(page.unreadable.len(), 1, "{page:?}");
        assert!(!error.is_retryable() && !error.outcome_unknown(), "{error:?}");
        for wrong in [&b""[..], b"\x01", b"\x02 from the future", &[1; 90]] {
            connection.set::<_, _, ()>(key_of(&scene.id), wrong).expect("SET");
            let error = scene.store().claim(&claim).await.expect_err("no record");
            assert!(
                matches!(error.kind(), StoreErrorKind::Corrupt | StoreErrorKind::Unsupported),
                "{error:?}"
            );
            let kept: Vec<u8> = connection.get(key_of(&scene.id)).expect("GET");
            assert_eq!(kept, wrong, "it was overwritten");
        }
        assert_the_others_are_swept(&alone, 2).await;
    });
}

/// What cannot be read stops neither the sweeper, also where each sweep touches one record only, nor the count of the others.
async fn assert_the_others_are_swept(alone: &Alone, unknown: u64) {
    let other = Scene::new(alone);
    other.granted().await;
    other.advance(LEASE).await;
    let (store, budget) = (other.store(), SweepBudget::new(1).expect("a budget"));
    let mut sweeps = 1;
    while store.sweep(budget).await.expect("a sweep").more {
        sweeps += 1;
        assert!(sweeps < 100, "it goes on for ever");
    }
    let stats = store.stats().await.expect("a count");
    assert_eq!((stats.unknown, stats.unreadable), (unknown, 1));
}

#[test]
fn a_record_of_who_sweeps_that_cannot_be_read_keeps_nobody_from_sweeping() {
    run(async {
        let alone = Alone::new(Damage::Head).await;
        let mut connection = raw(&alone.server.url());
        connection.set::<_, _, ()>(key_of(&house::SWEEP), b"\x02 from the future").expect("SET");
        let engine = Engine::builder(alone.store()).build().await.expect("an engine");
        let sweeper = Sweeper::new(&engine, Plan::default());
        let sweep = async || sweeper.sweep_once(None, |_| ControlFlow::Continue(())).await.expect("a sweep");
        let lapsed = Scene::new(&alone);
        lapsed.granted().await;
        lapsed.advance(LEASE).await;
        let ended = sweep().await;
        assert!(matches!(ended, Ended::Swept(swept) if swept.made_unknown == 1), "{ended:?}");
        assert_eq!(house::count_callers(&*alone.store()).await.expect("a count").unknown, 1);

        let mut spare = Scene::new(&alone);
        spare.id = house::SWEEP_SPARE;
        let given_up = spare.lookup().await.expect("it stood for the spare");
        assert_eq!(given_up.kind(), StateKind::Released);
        let other = Claim {
            fingerprint: given_up.fingerprint.expect("kept"),
            ..spare.claim_of(spare.owner(), UnknownPolicy::Rerun)
        };
        assert!(matches!(spare.send(&other).await, ClaimAnswer::Granted(_)));
        assert!(matches!(sweep().await, Ended::Taken(_)), "two would sweep at once");
        connection.del::<_, ()>(key_of(&house::SWEEP)).expect("DEL");
        assert!(matches!(sweep().await, Ended::Taken(_)), "also once the first is mended");
    });
}

#[test]
fn odd_terms_are_kept_as_the_state_machine_keeps_them() {
    run(async {
        let alone = Alone::new(Damage::Head).await;
        let usual = terms(UnknownPolicy::Hold);
        let odd = [
            // The run ends before the lease would.
            Terms { run_max: LEASE / 2, ..usual.clone() },
            Terms { run_max: Duration::ZERO, ..usual.clone() },
            Terms { remote: true, hold_for: Duration::MAX, ..usual.clone() },
        ];
        for terms in odd {
            let scene = Scene::new(&alone);
            let claim =
                Claim { terms: Arc::new(terms), ..scene.claim_of(scene.owner(), UnknownPolicy::Hold) };
            scene.send(&claim).await;
            let stored = scene.store().list(&Listing::default()).await.expect("a listing").records;
            let stored = stored.into_iter().find(|(id, _)| *id == scene.id).expect("a record").1;
            let moment = Moment { now: stored.created_at, next_fence: stored.fence };
            let (Change::Put(granted), _) = apply(None, &claim, moment) else { panic!("a grant writes") };
            assert_eq!(
                Some(stored).as_ref(),
                view(Some(&granted), moment.now).as_deref(),
                "{:?}",
                claim.terms
            );
        }
    });
}

#[test]
fn for_ever_is_as_long_as_redis_can_count() {
    run(async {
        let alone = Alone::new(Damage::Head).await;
        let scene = Scene::new(&alone);
        let terms = Terms { run_max: Duration::MAX, ..terms(UnknownPolicy::Hold) };
        let claim = Claim { terms: Arc::new(terms), ..scene.claim_of(scene.owner(), UnknownPolicy::Hold) };
        assert!(matches!(scene.send(&claim).await, ClaimAnswer::Granted(_)));
        let record = scene.lookup().await.expect("a record");
        assert_eq!(record.run_until.as_millis(), (1 << 48) - 1);
        assert_eq!(record.due_at(), record.granted_at + LEASE);
    });
}
