//! Stores that fail, and routes that are only watched.

use std::sync::Arc;

use onlyonce_http::Rules;
use onlyonce_http::rules::OnStoreFailure;

use super::{Ask, ask, is_first, is_problem, is_replay};
use crate::fault::{Fault, Faulty, Operation};
use crate::http::{HttpFixture, Stage, Turn};

/// The store behind the door, if it can be made to fail.
#[expect(clippy::print_stdout, reason = "what is skipped is said")]
fn faulty(stage: &Stage) -> Option<Arc<Faulty>> {
    if stage.door.store.is_none() {
        println!("skipped: the store behind this door cannot be made to fail");
    }
    stage.door.store.clone()
}

/// I13: store down and fail-closed means no call of the application.
pub async fn d_a_store_that_is_away_means_no_work(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules::default()).await;
    let Some(store) = faulty(&stage) else { return };
    store.next_times(100, Operation::Claim, &Fault::Refuse);
    for _ in 0..3 {
        let got = stage.call(ask("k")).await;
        is_problem(&got, 503, "store-unavailable");
        assert!(!got.header("retry-after").is_empty());
    }
    assert_eq!(stage.effects(), 0);
    assert_eq!(stage.call(Ask::post("/payments")).await.status, 201, "without a key no store is needed");
    store.heal();
    is_first(&stage.call(ask("k")).await, 2);
}

/// `on_store_failure = "open"`: it runs, and says so.
pub async fn d_an_open_route_runs_unprotected_and_says_so(fixture: &impl HttpFixture) {
    let rules = Rules { on_store_failure: Some(OnStoreFailure::Open), ..Rules::default() };
    let stage = Stage::new(fixture, rules).await;
    let Some(store) = faulty(&stage) else { return };
    store.next_times(2, Operation::Claim, &Fault::Refuse);
    for effect in 1..=2 {
        let got = stage.call(ask("k").json("{\"n\":1}")).await;
        assert_eq!((got.effect(), got.header("onlyonce-unprotected")), (effect, "true"));
        assert_eq!(got.header("idempotency-replayed"), "");
    }
    assert_eq!(stage.application.seen()[1].body.as_ref(), b"{\"n\":1}", "the whole request");
    let got = stage.call(ask("k")).await;
    is_first(&got, 3);
    assert_eq!(got.header("onlyonce-unprotected"), "");
}

/// I9: the answer is given with its mark, and recorded as soon as that can be done.
pub async fn d_an_unrecorded_answer_says_so_and_is_recorded_later(fixture: &impl HttpFixture) {
    let rules = Rules { wait: Some("2m".parse().unwrap()), ..Rules::default() };
    let stage = Stage::new(fixture, rules).await;
    let Some(store) = faulty(&stage) else { return };
    store.next_times(1000, Operation::Complete, &Fault::Refuse);
    let first = stage.call(ask("k")).await;
    assert_eq!((first.effect(), first.header("onlyonce-unrecorded")), (1, "true"));
    store.heal();
    is_replay(&stage.call(ask("k")).await, 1);
    assert_eq!(stage.effects(), 1);
    let recorded = stage.call(ask("other")).await;
    assert_eq!(recorded.header("onlyonce-unrecorded"), "");
}

/// Shadow mode: every request passes as it is, whatever would have been done.
pub async fn d_shadow_mode_enforces_nothing(fixture: &impl HttpFixture) {
    let rules =
        Rules { shadow: Some(true), required: Some(true), request_bytes_max: Some(100), ..Rules::default() };
    let stage = Stage::new(fixture, rules).await;
    let large = ask("large").body(vec![b'x'; 101]);
    let asks = [
        ask("k"),
        ask("k"),
        ask("k").json("{}"),
        ask("\"open"),
        Ask::post("/payments"),
        large,
        ask("c").without("authorization").set("cookie", "a=b"),
    ];
    for (effect, ask) in (1..).zip(asks) {
        let got = stage.call(ask).await;
        assert_eq!(
            (got.status, got.effect(), got.header("idempotency-replayed")),
            (201, effect, ""),
            "{got:?}"
        );
    }
    assert_eq!(stage.application.seen()[5].body.len(), 101);
    stage.application.hold();
    let calls: Vec<_> = (0..3).map(|_| stage.start(ask("together"))).collect();
    stage.application.ran(10).await;
    stage.application.go_on();
    for call in calls {
        assert_eq!(call.await.unwrap().status, 201);
    }
    if let Some(store) = faulty(&stage) {
        store.next_times(1, Operation::Claim, &Fault::Refuse);
        stage.application.answers(Turn::status(200));
        assert_eq!(stage.call(ask("away")).await.status, 200);
    }
}
