//! Routes that run unprotected while the store is away: never what the store has told of before.

use std::sync::Arc;

use http::{Method, Request, Response};
use onlyonce_core::MemoryStore;
use onlyonce_core::clock::SystemClock;
use onlyonce_http::{Body, Rules};
use onlyonce_testkit::fault::{Faulty, Operation};
use onlyonce_testkit::{Fault, run};
use tokio::sync::Notify;

use crate::stage::{Broken, Stage, answer, ask, created};

fn store() -> Arc<Faulty> {
    Arc::new(Faulty::new(Arc::new(MemoryStore::default())))
}

/// An application behind an open route with these rules.
async fn open<F>(
    store: &Arc<Faulty>,
    rules: &str,
    answer: impl Fn(Request<Body>) -> F + Send + Sync + 'static,
) -> Stage
where
    F: Future<Output = Result<Response<Body>, Broken>> + Send + 'static,
{
    let rules: Rules = toml::from_str(&format!("on_store_failure = \"open\"\n{rules}")).unwrap();
    let clock = Arc::new(SystemClock::new());
    Stage::over(store.clone(), clock, answer, |builder| builder.defaults(rules)).await
}

/// Calls while the store fails at this operation, and is refused.
async fn is_refused(stage: &Stage, store: &Faulty, key: &str, fails: Operation) {
    store.next(fails, Fault::Refuse);
    let got = stage.call(ask(key)).await;
    assert_eq!((got.status, got.problem().as_str()), (503, "store-unavailable"));
    assert_eq!(store.unmet(fails), 0);
}

/// An application whose answers never come, but which can tell that it did what it was asked.
async fn tells(request: Request<Body>) -> Result<Response<Body>, Broken> {
    if request.method() == Method::GET { Ok(answer(200)) } else { Err(Broken(None)) }
}

#[test]
fn what_the_application_has_told_of_does_not_run_again() {
    run(async {
        let store = store();
        let rules = "unknown = \"query\"\nquery_url = \"/by-key/{key}\"";
        let stage = open(&store, rules, tells).await;
        assert_eq!(stage.call(ask("k")).await.status, 502);
        is_refused(&stage, &store, "k", Operation::Resolve).await;
        assert_eq!(stage.effects(), 2, "one dispatch and one question");
    });
}

#[test]
fn what_runs_already_does_not_run_beside_it_when_the_store_fails_later() {
    run(async {
        let store = store();
        let [begun, ends] = [(); 2].map(|()| Arc::new(Notify::new()));
        let (beginning, ending) = (Arc::clone(&begun), Arc::clone(&ends));
        let slow = move |_| {
            beginning.notify_one();
            let ending = Arc::clone(&ending);
            async move {
                ending.notified().await;
                Ok(answer(201))
            }
        };
        let stage = open(&store, "wait = \"60s\"", slow).await;
        let duplicate = async {
            begun.notified().await;
            // The first claim finds it busy, the second one fails.
            let passes = Arc::new(Notify::new());
            passes.notify_one();
            store.next(Operation::Claim, Fault::Delay(passes));
            is_refused(&stage, &store, "k", Operation::Claim).await;
            ends.notify_one();
        };
        let (got, ()) = tokio::join!(stage.call(ask("k")), duplicate);
        assert_eq!((got.status, stage.effects()), (201, 1));
    });
}

#[test]
fn what_was_found_on_record_before_its_claim_does_not_run_again() {
    run(async {
        // Both are looked up before they are claimed: who is at a limit, and who comes with an old key.
        for (rules, key) in [
            ("limits = { records_max = 1 }", "k"),
            ("refuse_old_uuidv7 = true", "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"),
        ] {
            let store = store();
            let before = open(&store, "", created).await;
            assert_eq!(before.call(ask(key)).await.status, 201);
            let stage = open(&store, rules, created).await;
            if key == "k" {
                assert_eq!(stage.call(ask("another")).await.status, 201, "the limit is reached");
            }
            let effects = stage.effects();
            is_refused(&stage, &store, key, Operation::Claim).await;
            assert_eq!(stage.effects(), effects);
            let got = stage.call(ask(key)).await;
            assert_eq!(got.response.headers()["idempotency-replayed"], "true");
        }
    });
}

#[test]
fn what_the_store_told_nothing_of_runs_and_says_so() {
    run(async {
        let store = store();
        let stage = open(&store, "limits = { in_flight_max = 1 }", created).await;
        store.next(Operation::Claim, Fault::Refuse);
        let got = stage.call(ask("k")).await;
        assert_eq!((got.status, stage.effects()), (201, 1));
        assert_eq!(got.response.headers()["onlyonce-unprotected"], "true");
    });
}
