//! Identities that others verified, and callers who are checked again before a replay.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::request::Parts;
use http::{Request, Response};
use onlyonce_core::Execution;
use onlyonce_http::principal::TokenVerifier;
use onlyonce_http::{Answered, Body, How, Identity, OnceLayer, ReplayCheck, Rules};
use onlyonce_testkit::run;

use crate::stage::{Stage, answer, ask, created};

fn by(name: &str) -> Request<Body> {
    let mut request = ask("k");
    request.headers_mut().remove("authorization");
    request.extensions_mut().insert(Identity::new(name.as_bytes()));
    request
}

#[test]
fn a_verified_identity_is_the_principal_where_the_rule_says_so() {
    run(async {
        for rule in ["mtls", "application"] {
            let rules = Rules { principal: Some(rule.parse().unwrap()), ..Rules::default() };
            let stage = Stage::new(rules, created).await;
            for (name, effects) in [("alice", 1), ("bob", 2), ("alice", 2), ("bob", 2)] {
                assert_eq!(stage.call(by(name)).await.status, 201);
                assert_eq!(stage.effects(), effects, "{name}");
            }
            assert_eq!(
                stage.call(ask("k")).await.problem(),
                "principal-missing",
                "a credential nobody verified"
            );
        }
        // Without such a rule an identity is nobody's business.
        let stage = Stage::new(Rules::default(), created).await;
        for name in ["alice", "bob"] {
            stage.call(by(name)).await;
        }
        assert_eq!(stage.effects(), 1, "both are anonymous");
    });
}

/// Knows one token.
#[derive(Debug)]
struct OneToken;

impl TokenVerifier for OneToken {
    fn claim(&self, token: &str, claim: &str) -> Option<String> {
        token.starts_with("good").then(|| format!("{claim}-of-alice"))
    }
}

#[test]
fn a_verified_claim_survives_a_new_token() {
    run(async {
        let rules = Rules { principal: Some("jwt:sub".parse().unwrap()), ..Rules::default() };
        let stage =
            Stage::built(created, |builder| builder.defaults(rules.clone()).tokens(Arc::new(OneToken))).await;
        let with = |credential: &str| {
            let mut request = ask("k");
            request.headers_mut().insert("authorization", credential.parse().unwrap());
            request
        };
        assert_eq!(stage.call(with("Bearer good.1")).await.status, 201);
        assert_eq!(stage.call(with("bearer good.2")).await.status, 201);
        assert_eq!(stage.effects(), 1, "the same caller with a refreshed token");
        for bad in ["Bearer forged", "Basic good", "Bearer ", "good"] {
            assert_eq!(stage.call(with(bad)).await.problem(), "principal-missing", "{bad}");
        }
        assert!(OnceLayer::new(stage.engine.clone(), rules).is_err(), "nobody can verify a token there");
    });
}

/// Refuses once it is told to.
#[derive(Debug, Default)]
struct Revocable(AtomicBool);

impl ReplayCheck for Revocable {
    fn check<'a>(
        &'a self,
        head: &'a Parts,
    ) -> Pin<Box<dyn Future<Output = Result<(), Response<Body>>> + Send + 'a>> {
        Box::pin(async move {
            assert_eq!(head.headers["authorization"], "Bearer alice");
            assert_eq!(head.uri.path(), "/payments");
            if self.0.load(Ordering::SeqCst) { Err(answer(403)) } else { Ok(()) }
        })
    }
}

#[test]
fn a10_a_replay_does_not_bypass_current_authorization() {
    run(async {
        let check = Arc::new(Revocable::default());
        let stage = Stage::built(created, |builder| builder.before_replay(check.clone())).await;
        assert_eq!(stage.call(ask("k")).await.status, 201);
        assert_eq!(stage.call(ask("k")).await.status, 201);
        check.0.store(true, Ordering::SeqCst);
        let refused = stage.call(ask("k")).await;
        assert_eq!((refused.status, stage.effects()), (403, 1));
        assert_eq!(refused.response.extensions().get::<Answered>().unwrap().how, How::Withheld);
        assert_eq!(stage.seen.names(), ["ran", "replayed", "withheld"]);
        check.0.store(false, Ordering::SeqCst);
        let got = stage.call(ask("k")).await;
        assert_eq!(got.response.extensions().get::<Answered>().unwrap().how, How::Replayed);
    });
}

#[test]
fn the_application_gets_its_execution() {
    run(async {
        let stage = Stage::new(Rules::default(), |request: Request<Body>| async move {
            let execution = request.extensions().get::<Execution>().expect("it runs under a grant").clone();
            assert_eq!(request.headers()["onlyonce-fence"], execution.fence().to_string().as_str());
            let reference = execution.downstream_key("charge").as_str().to_owned();
            Ok(Response::new(Body::from(reference)))
        });
        let stage = stage.await;
        let one = stage.call(ask("one")).await.body;
        assert_ne!(one, stage.call(ask("two")).await.body);
        assert_eq!(one, stage.call(ask("one")).await.body);
    });
}

#[test]
fn who_asks_is_of_no_interest_where_no_key_is() {
    run(async {
        let rules: Rules = toml::from_str("key = \"json:/id\"").unwrap();
        let stage = Stage::new(rules, created).await;
        let by_cookie = |body: &'static str| {
            let request = Request::post("/payments").header("cookie", "session=1");
            request.body(Body::from(body)).unwrap()
        };
        assert_eq!(stage.call(by_cookie("{}")).await.status, 201);
        assert_eq!(stage.call(by_cookie("{\"id\":\"k\"}")).await.problem(), "principal-missing");
        assert_eq!((stage.effects(), stage.seen.names()), (1, vec!["unkeyed", "refused"]));
    });
}
