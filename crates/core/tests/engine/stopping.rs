//! Shutdown: what runs may finish, what does not is abandoned, nothing new starts.

use std::time::Duration;

use onlyonce_core::{Conflict, EngineErrorKind, Event};
use onlyonce_testkit::run;

use crate::stage::{Stage, conflict, done, policy};

#[test]
fn a_drain_waits_for_work_that_finishes() {
    run(async {
        let stage = Stage::new(policy()).await;
        let (call, end) = stage.start().await;
        let draining = stage.engine.drain(Duration::from_secs(5));
        let ending = async {
            stage.clock.slept_on_for(Duration::from_secs(5)).await;
            assert_eq!(stage.call(1).await.unwrap_err().kind(), EngineErrorKind::Stopping);
            end.send(Ok(42)).unwrap();
        };
        tokio::join!(draining, ending);
        assert_eq!(done(call.await.unwrap()), (42, false));
        assert!(stage.seen.has(Event::Completed));
        assert_eq!(stage.effects(), 1);
    });
}

#[test]
fn a_drain_abandons_what_does_not_finish_and_never_releases_it() {
    run(async {
        let stage = Stage::new(policy()).await;
        let (call, _end) = stage.start().await;
        let moving = async {
            stage.clock.slept_on_for(Duration::from_secs(5)).await;
            stage.clock.advance(Duration::from_secs(5));
        };
        tokio::join!(stage.engine.drain(Duration::from_secs(5)), moving);
        assert!(matches!(conflict(call.await.unwrap()), Conflict::OutcomeUnknown { .. }));
        assert!(stage.seen.has(Event::Abandoned) && !stage.seen.has(Event::Released));
        stage.engine.drain(Duration::from_secs(5)).await;
    });
}

#[test]
fn a_drain_sends_waiters_away() {
    run(async {
        let stage = Stage::new(policy().wait(Duration::from_secs(20))).await;
        let (_call, end) = stage.start().await;
        let draining = async {
            stage.clock.slept_on_for(Duration::from_secs(20)).await;
            let ending = async {
                stage.clock.slept_on_for(Duration::from_secs(30)).await;
                end.send(Ok(42)).unwrap();
            };
            tokio::join!(stage.engine.drain(Duration::from_secs(30)), ending);
        };
        let (waited, ()) = tokio::join!(stage.call(1), draining);
        assert!(matches!(conflict(waited), Conflict::InFlight { .. }));
    });
}
