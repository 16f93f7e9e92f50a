//! Values that stay the same on every attempt, and keys for the calls that work makes.

use std::sync::{Arc, Mutex};

use onlyonce_core::transition::Erase;
use onlyonce_core::{Failure, Key, MemoError, Run, UnknownPolicy};
use onlyonce_testkit::fault::Operation;
use onlyonce_testkit::{Fault, run};

use crate::stage::{Stage, done, key, policy};

#[test]
fn a_memo_and_a_downstream_key_are_the_same_on_every_attempt() {
    run(async {
        let stage = Stage::new(policy().unknown(UnknownPolicy::Rerun)).await;
        let seen: Arc<Mutex<Vec<(u32, u32, Key)>>> = Arc::default();
        for attempt in 1..=3 {
            let seen = seen.clone();
            let answer = stage.call_with(move |execution| async move {
                let memo = execution.memo("number", || attempt * 100).await.unwrap();
                let again = execution.memo("number", || 0).await.unwrap();
                assert_eq!(memo, again);
                seen.lock().unwrap().push((execution.attempt(), memo, execution.downstream_key("charge")));
                if attempt < 3 { Err(Failure::unknown("crash".into())) } else { Ok(memo) }
            });
            assert!(matches!(answer.await, Ok(Run::Done(_) | Run::Failed(_))));
        }
        let seen = seen.lock().unwrap();
        assert_eq!(
            seen.iter().map(|(attempt, memo, _)| (*attempt, *memo)).collect::<Vec<_>>(),
            [(1, 100), (2, 100), (3, 100)]
        );
        assert!(seen.iter().all(|(_, _, key)| *key == seen[0].2));
    });
}

#[test]
fn downstream_keys_differ_by_call_operation_and_request() {
    run(async {
        let stage = Stage::new(policy()).await;
        let keys: Arc<Mutex<Vec<Key>>> = Arc::default();
        for (operation, body) in [("a", "1"), ("b", "1"), ("c", "2")] {
            let keys = keys.clone();
            let work = move |execution: onlyonce_core::Execution| async move {
                keys.lock().unwrap().extend(["charge", "mail"].map(|name| execution.downstream_key(name)));
                Ok::<_, Failure<String>>(0)
            };
            done(stage.engine.run(&key(operation), stage.asked(body.as_bytes()), work).await);
        }
        let mut keys = keys.lock().unwrap().clone();
        assert!(keys.iter().all(|key| key.as_str().len() == 32));
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 6);
    });
}

#[test]
fn a_memo_whose_reply_was_lost_keeps_its_first_value() {
    run(async {
        let stage = Stage::new(policy()).await;
        stage.store.next(Operation::RecordStep, Fault::LoseReply);
        let answer = stage.call_with(|execution| async move {
            assert!(matches!(execution.memo("n", || 1).await, Err(MemoError::Store(_))));
            Ok(execution.memo("n", || 2).await.unwrap())
        });
        assert_eq!(done(answer.await), (1, false), "the first value was recorded, so it counts");
    });
}

#[test]
fn an_erased_memo_is_an_error_and_is_not_made_again() {
    run(async {
        let stage = Stage::new(policy().unknown(UnknownPolicy::Rerun)).await;
        let first = stage.call_with(|execution| async move {
            execution.memo("n", || 1).await.unwrap();
            Err(Failure::unknown("crash".into()))
        });
        assert!(matches!(first.await, Ok(Run::Failed(_))));
        let id = key("order-7").record_id(stage.engine.secret());
        stage.engine.store().erase(&Erase { id }).await.unwrap();
        let second = stage.call_with(|execution| async move {
            assert!(matches!(execution.memo("n", || 2).await, Err(MemoError::Erased)));
            Ok(0)
        });
        done(second.await);
    });
}

#[test]
fn bad_names_and_too_much_are_clear_errors() {
    run(async {
        let stage = Stage::new(policy()).await;
        let answer = stage.call_with(|execution| async move {
            for bad in ["", "ключ", &"n".repeat(101)] {
                assert!(matches!(execution.memo(bad, || 1).await, Err(MemoError::Name(_))), "{bad}");
            }
            assert!(matches!(execution.memo("big", || "x".repeat(300_000)).await, Err(MemoError::Full)));
            for at in 0..64 {
                execution.memo(&format!("n{at}"), || at).await.unwrap();
            }
            assert!(matches!(execution.memo("one more", || 1).await, Err(MemoError::Full)));
            Ok(1)
        });
        assert_eq!(done(answer.await), (1, false));
    });
}
