//! What observers and access logs are told.

use http::{Request, StatusCode};
use onlyonce_core::transition::Erase;
use onlyonce_core::{Execution, Recorded};
use onlyonce_http::observe::Would;
use onlyonce_http::rules::Retain;
use onlyonce_http::{Answered, Body, Event, How, ProblemKind, Rules, TraceContext};
use onlyonce_testkit::run;

use crate::stage::{Stage, ask, created};

#[test]
fn every_decision_is_an_event_and_a_note() {
    run(async {
        let stage = Stage::new(Rules::default(), created).await;
        let how = async |request| stage.call(request).await.response.extensions().get::<Answered>().copied();
        let ran = how(ask("k")).await.unwrap();
        assert_eq!(ran.how, How::Ran(Recorded::Completed));
        let replayed = how(ask("k")).await.unwrap();
        assert_eq!((replayed.how, replayed.id, replayed.fence), (How::Replayed, ran.id, ran.fence));
        let refused = how(ask("\"broken")).await.unwrap();
        assert_eq!(refused.how, How::Refused(ProblemKind::KeyInvalid));
        let mut unkeyed = ask("k");
        unkeyed.headers_mut().remove("idempotency-key");
        assert_eq!(how(unkeyed).await, None);

        assert_eq!(stage.seen.names(), ["ran", "replayed", "refused", "unkeyed"]);
        let Event::Ran { status, recorded, attempt, .. } = stage.seen.all()[0].1 else { panic!("not run") };
        assert_eq!((status, recorded, attempt), (Some(StatusCode::CREATED), Recorded::Completed, 1));
    });
}

#[test]
fn nothing_is_left_in_extensions_where_nobody_looks() {
    run(async {
        let answers = |request: Request<Body>| async move {
            assert!(request.extensions().get::<Execution>().is_none());
            assert!(request.headers().contains_key("onlyonce-fence"), "it is told all the same");
            created(request).await
        };
        let stage = Stage::built(answers, |builder| builder.extensions(false)).await;
        for key in ["k", "k", "\"broken"] {
            let got = stage.call(ask(key)).await;
            assert!(got.response.extensions().get::<Answered>().is_none(), "{got:?}");
        }
        assert_eq!(stage.seen.names(), ["ran", "replayed", "refused"]);
    });
}

#[test]
fn what_deserves_a_warning_is_said_once_per_route() {
    run(async {
        let stage = Stage::new(Rules::default(), created).await;
        for _ in 0..2 {
            let mut anonymous = ask("k");
            anonymous.headers_mut().remove("authorization");
            stage.call(anonymous).await;
            let mut unkeyed = ask("k");
            unkeyed.headers_mut().remove("idempotency-key");
            stage.call(unkeyed).await;
            let mut token = ask("k");
            let jwt = "Bearer eyJhbGciOiJIUzI1NiJ9.e30.c2ln".parse().unwrap();
            token.headers_mut().insert("authorization", jwt);
            stage.call(token).await;
        }
        let events: Vec<_> = stage.seen.all().into_iter().map(|(_, event)| event).collect();
        for once in [Event::Unkeyed { first: true }, Event::Anonymous { first: true }, Event::TokenMayChange]
        {
            assert_eq!(events.iter().filter(|event| **event == once).count(), 1, "{once:?}");
        }
        for again in [Event::Unkeyed { first: false }, Event::Anonymous { first: false }] {
            assert!(events.contains(&again), "counted all the same: {again:?}");
        }
    });
}

#[test]
fn shadow_mode_says_what_would_have_happened() {
    run(async {
        let stage = Stage::new(Rules { shadow: Some(true), ..Rules::default() }, created).await;
        let mut other = ask("k");
        *other.body_mut() = "another".into();
        for request in [ask("k"), ask("k"), other, ask("\"broken")] {
            assert_eq!(stage.call(request).await.status, 201);
        }
        let would = stage.seen.all().into_iter().filter_map(|(_, event)| match event {
            Event::Shadow { would, .. } => Some(would),
            _ => None,
        });
        let refuse = Would::Refuse;
        let expected =
            [Would::Run, Would::Replay, refuse(ProblemKind::KeyReused), refuse(ProblemKind::KeyInvalid)];
        assert_eq!(would.collect::<Vec<_>>(), expected);
        assert_eq!(stage.effects(), 4);
    });
}

/// A request in the span `span` of a trace, recorded by somebody or not.
fn traced(span: u8, is_sampled: bool) -> Request<Body> {
    let mut request = ask("k");
    request.extensions_mut().insert(TraceContext::new([7; 16], [span; 8], is_sampled).unwrap());
    request
}

#[test]
fn a_replay_names_the_trace_of_the_original() {
    run(async {
        for rules in [Rules::default(), Rules { store: Some(Retain::StatusOnly), ..Rules::default() }] {
            let stage = Stage::new(rules, created).await;
            let note =
                async |request| *stage.call(request).await.response.extensions().get::<Answered>().unwrap();
            let ran = note(traced(1, true)).await;
            assert_eq!(ran.original, None, "it is the original");
            for request in [traced(2, true), traced(3, false), ask("k")] {
                assert_eq!(note(request).await.original, TraceContext::new([7; 16], [1; 8], true));
            }
            // Also when all that is left is a tombstone.
            stage.store.erase(&Erase { id: ran.id.unwrap() }).await.unwrap();
            assert_eq!(note(ask("k")).await.original, TraceContext::new([7; 16], [1; 8], true));
        }
    });
}

#[test]
fn a_trace_that_nobody_records_is_not_kept() {
    run(async {
        for request in [traced(1, false), ask("k")] {
            let stage = Stage::new(Rules::default(), created).await;
            stage.call(request).await;
            let replay = stage.call(ask("k")).await.response;
            let note = replay.extensions().get::<Answered>().unwrap();
            assert_eq!((note.how, note.original), (How::Replayed, None));
        }
    });
}
