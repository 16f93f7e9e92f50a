//! Routes: which one counts, and what happens to records when rules change.

use onlyonce_http::Rules;
use onlyonce_http::rules::{BodyMode, Retain};
use onlyonce_http::snapshot::Snapshot;
use onlyonce_testkit::run;

use crate::stage::{Stage, ask, created};

fn at(path: &str, key: &str) -> http::Request<onlyonce_http::Body> {
    let mut request = ask(key);
    *request.uri_mut() = path.parse().unwrap();
    request
}

fn json(text: &'static str) -> http::Request<onlyonce_http::Body> {
    let mut request = ask("k");
    request.headers_mut().insert("content-type", "application/json".parse().unwrap());
    *request.body_mut() = text.into();
    request
}

#[test]
fn the_first_route_that_matches_counts_and_defaults_fill_in() {
    run(async {
        let route = |path: &str, required| Rules { path: Some(path.into()), required, ..Rules::default() };
        let stage = Stage::built(created, |builder| {
            builder
                .defaults(Rules { strict: Some(true), required: Some(false), ..Rules::default() })
                .route(route("/v1/payments/open", Some(false)))
                .route(route("/v1/payments/*", Some(true)))
        });
        let stage = stage.await;
        let without = |path: &str| {
            let mut request = at(path, "k");
            request.headers_mut().remove("idempotency-key");
            request
        };
        assert_eq!(stage.call(without("/v1/payments/7")).await.problem(), "key-missing");
        assert_eq!(stage.call(without("/v1/payments/open")).await.status, 201);
        assert_eq!(stage.call(without("/v1/other")).await.status, 201);
        for path in ["/v1/payments/7", "/v1/other"] {
            assert_eq!(
                stage.call(at(path, "bare")).await.problem(),
                "key-invalid",
                "strict everywhere: {path}"
            );
        }
        let routes: Vec<_> = stage.seen.all().into_iter().map(|(route, _)| route).collect();
        assert_eq!(routes, ["/v1/payments/*", "/v1/payments/open", "*", "/v1/payments/*", "*"]);
    });
}

#[test]
fn rules_are_replaced_all_at_once_or_not_at_all() {
    run(async {
        let stage = Stage::new(Rules::default(), created).await;
        let handle = stage.layer.handle();
        let strict = Rules { strict: Some(true), ..Rules::default() };
        let broken = Rules { path: Some("no slash".into()), ..Rules::default() };
        let error = handle.replace(&strict, &[broken]).unwrap_err();
        assert!(error.to_string().contains("no slash"), "{error}");
        assert_eq!(stage.call(ask("bare")).await.status, 201, "the old rules stay");
        handle.replace(&strict, &[]).unwrap();
        assert_eq!(stage.call(ask("bare")).await.problem(), "key-invalid");
    });
}

#[test]
fn old_records_are_compared_by_their_own_rules() {
    run(async {
        let by_value =
            Rules { body: Some(BodyMode::Json), exclude: Some(vec!["/at".into()]), ..Rules::default() };
        let by_header = Rules { fingerprint_headers: Some(vec!["x-version".into()]), ..Rules::default() };
        let stage = Stage::new(by_value, created).await;
        assert_eq!(stage.call(json(r#"{"at":1,"amount":7}"#)).await.status, 201);
        for rules in [Rules::default(), by_header] {
            stage.layer.handle().replace(&rules, &[]).unwrap();
            assert_eq!(stage.call(json(r#"{ "amount": 7.0, "at": 2 }"#)).await.status, 201, "still the same");
            assert_eq!(stage.call(json(r#"{"at":1,"amount":8}"#)).await.problem(), "key-reused");
        }
        assert_eq!(stage.effects(), 1);
        // And the other way round: recorded with a header, compared with it.
        let versioned = |version: &'static str| {
            let mut request = ask("v");
            request.headers_mut().insert("x-version", version.parse().unwrap());
            request
        };
        assert_eq!(stage.call(versioned("1")).await.status, 201);
        stage.layer.handle().replace(&Rules::default(), &[]).unwrap();
        assert_eq!(stage.call(versioned("1")).await.status, 201);
        assert_eq!(stage.call(versioned("2")).await.problem(), "key-reused");
        assert_eq!(stage.effects(), 2);
    });
}

#[test]
fn a_replay_is_marked_by_what_was_done_to_its_record_and_not_by_the_rules_of_today() {
    run(async {
        let paid = async |_| Ok(http::Response::new(onlyonce_http::Body::from(r#"{"card":"4111"}"#)));
        let none = async |_| Ok(http::Response::new(onlyonce_http::Body::from(r#"{"cash":1}"#)));
        let redacting = Rules { redact: Some(vec!["/card".into()]), ..Rules::default() };
        let mark = |got: &crate::stage::Got| got.response.headers().get("onlyonce-redacted").cloned();
        let stage = Stage::new(redacting.clone(), paid).await;
        assert_eq!(mark(&stage.call(ask("redacted")).await), None, "the first answer is whole");
        stage.layer.handle().replace(&Rules::default(), &[]).unwrap();
        let again = stage.call(ask("redacted")).await;
        assert_eq!(
            (&again.body[..], mark(&again).unwrap()),
            (&br#"{"card":"[redacted]"}"#[..], "true".parse().unwrap())
        );
        stage.call(ask("whole")).await;
        stage.layer.handle().replace(&redacting, &[]).unwrap();
        let again = stage.call(ask("whole")).await;
        assert_eq!(
            (&again.body[..], mark(&again)),
            (&br#"{"card":"4111"}"#[..], None),
            "nothing was taken out"
        );
        // Where there is nothing to take out, nothing is said.
        let stage = Stage::new(redacting, none).await;
        stage.call(ask("k")).await;
        assert_eq!(mark(&stage.call(ask("k")).await), None);
    });
}

#[test]
fn what_an_operator_says_is_kept_as_the_routes_say() {
    run(async {
        let stage = Stage::built(created, |builder| {
            let route = |path: &str| Rules { path: Some(path.into()), ..Rules::default() };
            builder
                .route(Rules { redact: Some(vec!["/card".into()]), ..route("/cards") })
                .route(Rules { redact: Some(vec!["/iban".into()]), ..route("/transfers") })
        });
        let handle = stage.await.layer.handle();
        let answer = |body: &'static str| Snapshot {
            status: http::StatusCode::CREATED,
            headers: http::HeaderMap::new(),
            trailers: None,
            body: body.into(),
            is_redacted: false,
        };
        let told = answer(r#"{"card":1,"iban":2}"#);
        let kept = |path| handle.kept(&told, path).map(|kept| (kept.body, kept.is_redacted));
        assert_eq!(kept(Some("/cards")), Some((r#"{"card":"[redacted]","iban":2}"#.into(), true)));
        assert_eq!(kept(Some("/other")), Some((told.body.clone(), false)));
        let safe = r#"{"card":"[redacted]","iban":"[redacted]"}"#;
        assert_eq!(kept(None), Some((safe.into(), true)), "whose it is is not known");
        assert_eq!(handle.kept(&answer("card=1"), None), None, "what cannot be looked into");
        let status_only =
            Rules { store: Some(Retain::StatusOnly), path: Some("/s".into()), ..Rules::default() };
        handle.replace(&Rules::default(), &[status_only]).unwrap();
        assert_eq!((kept(Some("/s")), kept(None)), (None, None));
        assert!(kept(Some("/cards")).is_some());
    });
}
