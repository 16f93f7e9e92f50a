//! What the inner service reports about requests that got no answer.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_http::{Answered, Dispatch, How, ProblemKind, Rules};
use onlyonce_testkit::{ManualClock, run};
use tokio::sync::Notify;

use crate::stage::{Broken, Stage, answer, ask};

/// Both ways in which an inner service can say it.
async fn stages(dispatch: Dispatch) -> [Stage; 2] {
    let by_extension = Stage::new(Rules::default(), move |_| async move {
        let mut response = answer(502);
        response.extensions_mut().insert(dispatch);
        Ok(response)
    });
    let by_error = Stage::new(Rules::default(), move |_| async move { Err(Broken(Some(dispatch))) });
    [by_extension.await, by_error.await]
}

#[test]
fn nothing_sent_releases_the_key() {
    run(async {
        for stage in stages(Dispatch::NothingSent).await {
            for effects in 1..=3 {
                let got = stage.call(ask("k")).await;
                assert_eq!((got.status, got.problem().as_str()), (502, "upstream-unreachable"));
                assert!(
                    !String::from_utf8_lossy(&got.body).contains("resolve"),
                    "there is nothing to resolve"
                );
                assert_eq!(stage.effects(), effects, "a retry runs");
            }
            let mut other = ask("k");
            *other.body_mut() = "another".into();
            assert_eq!(stage.call(other).await.problem(), "key-reused", "only the same request");
        }
    });
}

#[test]
fn a_time_out_and_a_lost_answer_leave_the_outcome_unknown() {
    run(async {
        for (dispatch, status, kind) in
            [(Dispatch::TimedOut, 504, "upstream-timeout"), (Dispatch::NoAnswer, 502, "upstream-unreachable")]
        {
            for stage in stages(dispatch).await {
                let got = stage.call(ask("k")).await;
                assert_eq!((got.status, got.problem().as_str()), (status, kind));
                assert_eq!(stage.call(ask("k")).await.problem(), "outcome-unknown");
                assert_eq!(stage.effects(), 1);
            }
        }
    });
}

#[test]
fn an_error_that_says_nothing_is_unknown() {
    run(async {
        let stage = Stage::new(Rules::default(), |_| async { Err(Broken(None)) }).await;
        assert_eq!(stage.call(ask("k")).await.status, 502);
        assert_eq!(stage.call(ask("k")).await.problem(), "outcome-unknown");
    });
}

#[test]
fn an_error_of_an_unprotected_request_stays_what_it_is() {
    run(async {
        use tower_service::Service;
        let stage = Stage::new(Rules::default(), |_| async { Err(Broken(None)) }).await;
        let mut request = ask("k");
        request.headers_mut().remove("idempotency-key");
        assert!(stage.service.clone().call(request).await.is_err());
    });
}

#[test]
fn work_that_takes_too_long_is_stopped_and_unknown() {
    run(async {
        let lease = Some("10s".parse().unwrap());
        let rules = Rules { lease, run_max: lease, ..Rules::default() };
        let (clock, begun) = (Arc::new(ManualClock::default()), Arc::new(Notify::new()));
        let beginning = Arc::clone(&begun);
        let answer = move |_| {
            beginning.notify_one();
            std::future::pending()
        };
        let stage = Stage::by_clock(clock.clone(), answer, |builder| builder.defaults(rules)).await;
        let time_passes = async {
            begun.notified().await;
            loop {
                clock.slept_on_for(Duration::from_millis(1)).await;
                clock.advance(Duration::from_millis(500));
                tokio::task::yield_now().await;
            }
        };
        let got = tokio::select! {
            got = stage.call(ask("k")) => got,
            () = time_passes => unreachable!("time passes for ever"),
        };
        assert_eq!((got.status, got.problem().as_str()), (504, "upstream-timeout"));
        let how = got.response.extensions().get::<Answered>().unwrap().how;
        assert_eq!(how, How::Refused(ProblemKind::UpstreamTimeout));
        assert_eq!(stage.call(ask("k")).await.problem(), "outcome-unknown");
        assert_eq!(stage.effects(), 1);
    });
}

#[test]
fn a_length_that_does_not_fit_is_a_cut_off_answer() {
    run(async {
        let stage = Stage::new(Rules::default(), |_| async {
            let mut response = answer(200);
            response.headers_mut().insert("content-length", 5.into());
            Ok(response)
        });
        let stage = stage.await;
        assert_eq!(stage.call(ask("k")).await.status, 502);
        assert_eq!(stage.call(ask("k")).await.problem(), "outcome-unknown");
    });
}
