//! Durable steps: each happens once although attempts end between them, and one that was cut short stays in doubt.

use std::sync::{Arc, Mutex};

use onlyonce_core::{Failure, MemoError, Run, StepError, UnknownPolicy};
use onlyonce_testkit::fault::Operation;
use onlyonce_testkit::{Fault, run};

use crate::stage::{Stage, key, policy};

type Trouble = StepError<String>;
type Answered = Result<u32, Failure<Trouble>>;

/// An engine that runs again, and what its steps did.
struct Shop {
    stage: Stage,
    effects: Arc<Mutex<Vec<&'static str>>>,
}

impl Shop {
    async fn open() -> Self {
        Self { stage: Stage::new(policy().unknown(UnknownPolicy::Rerun)).await, effects: Arc::default() }
    }

    /// One attempt at the order.
    async fn attempt<F>(
        &self,
        work: impl FnOnce(onlyonce_core::Execution, Effects) -> F + Send + 'static,
    ) -> Run<u32, Trouble>
    where
        F: Future<Output = Answered> + Send + 'static,
    {
        let effects = Effects(self.effects.clone());
        let asked = self.stage.asked(b"order");
        self.stage
            .engine
            .run(&key("order-7"), asked, move |execution| work(execution, effects))
            .await
            .unwrap()
    }

    fn effects(&self) -> Vec<&'static str> {
        self.effects.lock().unwrap().clone()
    }
}

#[derive(Clone)]
struct Effects(Arc<Mutex<Vec<&'static str>>>);

impl Effects {
    fn happen(&self, name: &'static str) {
        self.0.lock().unwrap().push(name);
    }
}

fn crash<T>() -> Result<T, Failure<Trouble>> {
    Err(Failure::unknown(StepError::Failed("crash".into())))
}

#[test]
fn an_attempt_that_ends_between_two_steps_is_gone_on_with_after_the_last() {
    run(async {
        let shop = Shop::open().await;
        for ends_after in 1..=3 {
            let ran = shop.attempt(move |execution, effects| async move {
                for (number, name) in (1..).zip(["charge", "book", "mail"]) {
                    let step = || async {
                        effects.happen(name);
                        Ok::<_, Failure<String>>(number)
                    };
                    assert_eq!(execution.step(name, step).await?, number);
                    if number == ends_after && ends_after < 3 {
                        return crash();
                    }
                }
                Ok(3)
            });
            assert!(matches!(ran.await, Run::Done(_) | Run::Failed(_)));
        }
        assert_eq!(shop.effects(), ["charge", "book", "mail"]);
    });
}

#[test]
fn a_step_that_was_cut_short_is_unknown_and_not_run_again() {
    run(async {
        let shop = Shop::open().await;
        shop.attempt(|execution, effects| async move {
            let step = || async {
                effects.happen("charge");
                Err::<u32, _>(Failure::unknown("crash inside".to_owned()))
            };
            execution.step("charge", step).await
        })
        .await;
        let again = shop.attempt(|execution, effects| async move {
            let step = || async {
                effects.happen("charge");
                Ok::<_, Failure<String>>(1)
            };
            execution.step("charge", step).await
        });
        assert!(matches!(again.await, Run::Failed(failure) if matches!(failure.error, StepError::Unknown)));
        assert_eq!(shop.effects(), ["charge"]);
        // The third attempt finds out that it happened, and goes on with what it found.
        let found = shop.attempt(|execution, effects| async move {
            let step = || async { Ok::<u32, Failure<String>>(0) };
            assert!(execution.step("charge", step).await.is_err());
            execution.memo("charge", || 42).await.unwrap();
            let step = || async {
                effects.happen("charge");
                Ok::<u32, Failure<String>>(0)
            };
            execution.step("charge", step).await
        });
        assert_eq!(found.await.done().map(|done| done.value), Some(42));
        assert_eq!(shop.effects(), ["charge"]);
    });
}

#[test]
fn a_repeatable_step_that_was_cut_short_runs_again() {
    run(async {
        let shop = Shop::open().await;
        for cut_short in [true, false] {
            shop.attempt(move |execution, effects| async move {
                let step = || async {
                    effects.happen("mail");
                    if cut_short { Err(Failure::unknown("crash".to_owned())) } else { Ok(1) }
                };
                execution.repeatable_step("mail", step).await
            })
            .await;
        }
        assert_eq!(shop.effects(), ["mail", "mail"]);
    });
}

#[test]
fn a_step_whose_work_says_that_nothing_happened_begins_again() {
    run(async {
        let shop = Shop::open().await;
        for tries in 0..3 {
            let ran = shop.attempt(move |execution, effects| async move {
                let step = || async {
                    effects.happen("try");
                    if tries < 2 { Err(Failure::rolled_back("no".to_owned())) } else { Ok(7) }
                };
                execution.step("charge", step).await
            });
            let ran = ran.await;
            assert_eq!(matches!(ran, Run::Done(_)), tries == 2, "{ran:?}");
        }
        assert_eq!(shop.effects(), ["try", "try", "try"]);
    });
}

#[test]
fn after_a_finished_step_a_refusal_keeps_the_request_and_its_steps() {
    run(async {
        let shop = Shop::open().await;
        let refused = || async { Err::<u32, _>(Failure::refused("no such address".to_owned())) };
        shop.attempt(move |execution, effects| async move {
            let charge = || async {
                effects.happen("charge");
                Ok::<u32, Failure<String>>(1)
            };
            execution.step("charge", charge).await?;
            execution.step("mail", refused).await
        })
        .await;
        // Another request under the same key would charge again: it is refused.
        let other = shop.stage.asked(b"corrected order");
        let work = |_| async { Ok::<u32, Failure<String>>(0) };
        let answer = shop.stage.engine.run(&key("order-7"), other, work).await.unwrap();
        assert!(matches!(answer, Run::Conflict(onlyonce_core::Conflict::KeyReused)));
        // A first step that is refused leaves the key to a corrected request.
        let first = shop.stage.asked(b"first");
        let refusal =
            move |execution: onlyonce_core::Execution| async move { execution.step("charge", refused).await };
        shop.stage.engine.run(&key("order-8"), first, refusal).await.unwrap();
        let corrected = shop.stage.asked(b"corrected");
        let work = |_| async { Ok::<u32, Failure<String>>(8) };
        let answer = shop.stage.engine.run(&key("order-8"), corrected, work).await.unwrap();
        assert_eq!(answer.done().map(|done| done.value), Some(8));
    });
}

#[test]
fn what_the_store_loses_never_runs_a_step_twice() {
    run(async {
        // The reply to the mark is lost: nothing was begun, and the next call begins it.
        let shop = Shop::open().await;
        shop.stage.store.next(Operation::RecordStep, Fault::LoseReply);
        let ran = shop.attempt(|execution, effects| async move {
            let step = || async {
                effects.happen("charge");
                Ok::<u32, Failure<String>>(1)
            };
            let lost = execution.step("charge", step).await;
            assert!(matches!(lost, Err(Failure { error: StepError::Memo(MemoError::Store(_)), .. })));
            execution.step("charge", step).await
        });
        assert_eq!(ran.await.done().map(|done| done.value), Some(1));
        assert_eq!(shop.effects(), ["charge"]);
    });
}

#[test]
fn two_calls_of_one_step_at_once_start_it_once() {
    run(async {
        let shop = Shop::open().await;
        shop.attempt(|execution, effects| async move {
            let step = || async {
                effects.happen("charge");
                tokio::task::yield_now().await;
                Ok::<u32, Failure<String>>(1)
            };
            let (one, two) = tokio::join!(execution.step("charge", step), execution.step("charge", step));
            assert!(one.is_ok() || two.is_ok(), "{one:?} {two:?}");
            Ok(1)
        })
        .await;
        assert_eq!(shop.effects(), ["charge"]);
    });
}

#[test]
fn names_of_the_engine_and_a_record_without_room_are_clear_errors() {
    run(async {
        let shop = Shop::open().await;
        let ran = shop.attempt(|execution, effects| async move {
            let step = || async {
                effects.happen("step");
                Ok::<u32, Failure<String>>(1)
            };
            for bad in ["~begun 1 charge", "", &"n".repeat(81)] {
                let refused = execution.step(bad, step).await;
                assert!(matches!(refused, Err(Failure { error: StepError::Memo(MemoError::Name(_)), .. })));
            }
            assert!(matches!(execution.memo("~begun 1 a", || 1).await, Err(MemoError::Name(_))));
            for number in 0..63 {
                execution.memo(&format!("memo {number}"), || number).await.unwrap();
            }
            let full = execution.step("charge", step).await;
            assert!(matches!(full, Err(Failure { error: StepError::Memo(MemoError::Full), .. })));
            Ok(0)
        });
        assert!(matches!(ran.await, Run::Done(_)));
        assert_eq!(shop.effects(), Vec::<&str>::new());
    });
}
