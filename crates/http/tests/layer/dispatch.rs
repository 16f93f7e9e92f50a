//! What the inner service reports about requests that got no answer.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Response};
use http_body_util::{BodyExt as _, Full};
use onlyonce_http::observe::Would;
use onlyonce_http::{Answered, Body, Dispatch, Event, How, ProblemKind, Rules};
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

/// Lets time pass until `is_enough`.
async fn pass(clock: &ManualClock, is_enough: impl Fn() -> bool) {
    while !is_enough() {
        clock.slept_on_for(Duration::from_millis(1)).await;
        clock.advance(Duration::from_millis(500));
        tokio::task::yield_now().await;
    }
}

#[test]
fn in_shadow_mode_work_goes_on_that_takes_too_long() {
    run(async {
        let lease = Some("10s".parse().unwrap());
        let rules = Rules { lease, run_max: lease, shadow: Some(true), ..Rules::default() };
        let clock = Arc::new(ManualClock::default());
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
        let stage = Stage::by_clock(clock.clone(), slow, |builder| builder.defaults(rules)).await;
        let time_passes = async {
            begun.notified().await;
            pass(&clock, || stage.engine.running() == 0).await;
            // The grant has ended: now the application answers.
            ends.notify_one();
        };
        let (got, ()) = tokio::join!(stage.call(ask("k")), time_passes);
        assert_eq!((got.status, got.body.as_ref()), (201, b"done".as_slice()));
        assert_eq!(got.response.extensions().get::<Answered>().unwrap().how, How::Shadow);
        let would = Would::Refuse(ProblemKind::UpstreamTimeout);
        assert!(
            stage
                .seen
                .all()
                .iter()
                .any(|(_, event)| matches!(event, Event::Shadow { would: seen, .. } if *seen == would)),
            "{:?}",
            stage.seen.all()
        );
        assert_eq!(stage.effects(), 1);
    });
}

/// Tells when it is dropped.
struct Dropped(Arc<Notify>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[test]
fn in_shadow_mode_work_that_nobody_waits_for_ends_with_its_grant() {
    run(async {
        let lease = Some("10s".parse().unwrap());
        let rules = Rules { lease, run_max: lease, shadow: Some(true), ..Rules::default() };
        let clock = Arc::new(ManualClock::default());
        let [begun, ended] = [(); 2].map(|()| Arc::new(Notify::new()));
        let (beginning, ending) = (Arc::clone(&begun), Arc::clone(&ended));
        let hangs = move |_| {
            let at_the_end = Dropped(Arc::clone(&ending));
            beginning.notify_one();
            async move {
                let _at_the_end = at_the_end;
                std::future::pending().await
            }
        };
        let stage = Stage::by_clock(clock.clone(), hangs, |builder| builder.defaults(rules)).await;
        tokio::select! {
            _ = stage.call(ask("k")) => unreachable!("it hangs"),
            () = begun.notified() => {}
        }
        assert!(stage.engine.running() > 0, "who hangs up ends nothing");
        pass(&clock, || stage.engine.running() == 0).await;
        ended.notified().await;
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
            pass(&clock, || false).await;
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

#[test]
fn in_shadow_mode_half_an_answer_is_none_whatever_is_recorded() {
    run(async {
        for (shadow, problem) in [(false, "answer-not-kept"), (true, "upstream-unreachable")] {
            let rules = Rules { shadow: Some(shadow), ..Rules::default() };
            let stage = Stage::new(rules, |_| async {
                let mut response = answer(200);
                response.headers_mut().insert("content-length", 5.into());
                response.headers_mut().insert("onlyonce-outcome", HeaderValue::from_static("committed"));
                Ok(response)
            });
            assert_eq!(stage.await.call(ask("k")).await.problem(), problem);
        }
    });
}

/// A gRPC answer that says how it went, if it does, where that is usual: in its trailers.
fn grpc(status: Option<&'static str>) -> Response<Body> {
    let mut trailers = HeaderMap::new();
    if let Some(status) = status {
        trailers.insert("grpc-status", HeaderValue::from_static(status));
    }
    let body = Full::from("message").with_trailers(std::future::ready(Some(Ok(trailers))));
    Response::builder().header("content-type", "application/grpc+proto").body(Body::new(body)).unwrap()
}

#[test]
fn after_a_grpc_refusal_in_trailers_a_corrected_request_may_use_the_key() {
    run(async {
        // 3 is INVALID_ARGUMENT, 14 is UNAVAILABLE.
        for (status, problem) in [("3", ""), ("14", "key-reused")] {
            let stage = Stage::new(Rules::default(), move |_| async move { Ok(grpc(Some(status))) }).await;
            assert_eq!(stage.call(ask("k")).await.body.as_ref(), b"message");
            let mut corrected = ask("k");
            *corrected.body_mut() = "another".into();
            assert_eq!(stage.call(corrected).await.problem(), problem, "{status}");
            assert_eq!(stage.effects(), 1 + u32::from(problem.is_empty()), "{status}");
        }
    });
}

#[test]
fn a_grpc_answer_without_its_status_is_a_cut_off_answer() {
    run(async {
        let stage = Stage::new(Rules::default(), |_| async { Ok(grpc(None)) }).await;
        assert_eq!(stage.call(ask("k")).await.status, 502);
        assert_eq!(stage.call(ask("k")).await.problem(), "outcome-unknown");
        let stage = Stage::new(Rules::default(), |_| async { Ok(grpc(Some("0"))) }).await;
        for _ in 0..2 {
            assert_eq!(stage.call(ask("k")).await.status, 200);
        }
        assert_eq!((stage.effects(), stage.seen.names()), (1, vec!["ran", "replayed"]));
    });
}

#[test]
fn in_shadow_mode_the_caller_sees_what_a_grpc_answer_lacks() {
    run(async {
        let rules = Rules { shadow: Some(true), ..Rules::default() };
        let stage = Stage::new(rules, |_| async { Ok(grpc(None)) }).await;
        for effects in 1..=2 {
            let got = stage.call(ask("k")).await;
            assert_eq!((got.status, got.body.as_ref()), (200, b"message".as_slice()));
            assert!(!got.response.headers().contains_key("grpc-status"));
            assert_eq!(stage.effects(), effects);
        }
        let would = Would::Refuse(ProblemKind::OutcomeUnknown);
        let is_second = |event: &Event| matches!(event, Event::Shadow { would: seen, .. } if *seen == would);
        assert!(stage.seen.all().iter().any(|(_, event)| is_second(event)), "{:?}", stage.seen.all());
    });
}
