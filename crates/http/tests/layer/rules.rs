//! Rules as people write them in TOML.

use std::sync::Arc;

use onlyonce_core::Engine;
use onlyonce_http::rules::{Acknowledgement, BodyMode, Profile, Verdict};
use onlyonce_http::{Acknowledging, OnceLayer, Rules, RulesError};
use onlyonce_testkit::run;

use crate::stage::{Stage, created};

const ALL: &str = r#"
path = "/v1/payments/*"
methods = ["POST", "PUT"]
profile = "ietf"
required = true
key = "header:Idempotency-Key"
strict = true
refuse_old_uuidv7 = true
namespace = "payments"
principal = "header:x-account"
scope_path = true
body = "json"
include = ["/amount"]
exclude = ["/metadata/sent_at"]
fingerprint_headers = ["x-api-version"]
wait = "2s"
wait_max = "10s"
waiters_max = 10
lease = "20s"
run_max = "2m"
retention = "72h"
unknown_retention = "30d"
unknown = "rerun"
query_url = "/by-key/{key}"
query_within = "3s"
hold_for = "1h"
attempts_max = 5
classify = { "409" = "release", "4xx" = "store" }
on_5xx = "unknown"
request_bytes_max = 1000
response_bytes_max = 1000
response_within = "5s"
store = "status-only"
redact = ["/card/number", "/customer/email"]
redact_headers = ["x-session"]
store_set_cookie = true
replay_status = "200"
on_store_failure = "open"
acknowledgement = { replicas = 1, disk = true, within = "100ms" }
shadow = true
limits = { in_flight_max = 10, records_max = 1000, bytes_max = 1000000 }
"#;

#[test]
fn every_rule_is_read_and_written_back() {
    run(async {
        let rules: Rules = toml::from_str(ALL).unwrap();
        assert_eq!((rules.profile, rules.body), (Some(Profile::Ietf), Some(BodyMode::Json)));
        assert_eq!(rules.classify.as_ref().unwrap()["409"], Verdict::Release);
        assert_eq!(toml::from_str::<Rules>(&toml::to_string(&rules).unwrap()).unwrap(), rules);
        let fields = toml::from_str::<toml::Table>(ALL).unwrap().len();
        let text = format!("{:?}", Rules::default());
        assert_eq!(text.matches(": None").count(), fields, "a rule is missing from this test: {text}");
        let stage = Stage::new(Rules::default(), created).await;
        let engines = Arc::new(Same(stage.engine.clone()));
        OnceLayer::builder(stage.engine.clone()).acknowledged(engines).route(rules).build().unwrap();
    });
}

/// A store that has whatever replicas a route asks for.
#[derive(Debug)]
struct Same(Engine);

impl Acknowledging for Same {
    fn engine(&self, _: Acknowledgement) -> Result<Engine, RulesError> {
        Ok(self.0.clone())
    }
}

#[test]
fn what_a_rule_says_wins_over_the_defaults() {
    let defaults: Rules = toml::from_str("retention = \"24h\"\nrequired = true").unwrap();
    let route: Rules = toml::from_str("retention = \"72h\"\npath = \"/a\"").unwrap();
    let both = route.or(&defaults);
    let expected: Rules = toml::from_str("retention = \"72h\"\npath = \"/a\"\nrequired = true").unwrap();
    assert_eq!(both, expected);
}

#[test]
fn what_cannot_be_read_is_refused() {
    for bad in [
        "retentoin = \"24h\"",
        "retention = 24",
        "retention = \"soon\"",
        "profile = \"amazon\"",
        "principal = \"nobody\"",
        "limits = { in_flight = 3 }",
        "classify = { \"409\" = \"forget\" }",
        "key = \"Idempotency-Key\"",
    ] {
        assert!(toml::from_str::<Rules>(bad).is_err(), "{bad}");
    }
}

#[test]
fn what_cannot_work_is_refused() {
    run(async {
        let stage = Stage::new(Rules::default(), created).await;
        for bad in [
            "methods = [\"GET\"]",
            "methods = [\"post\"]",
            "path = \"v1\"",
            "lease = \"1ms\"",
            "lease = \"10m\"",
            "retention = \"0s\"",
            "attempts_max = 0",
            "unknown = \"query\"",
            "acknowledgement = { replicas = 1, within = \"1s\" }",
            "query_url = \"https://elsewhere/{key}\"",
            "query_url = \"/by-key/{key}\"\nquery_within = \"0s\"",
            "wait = \"2h\"",
            "classify = { \"99\" = \"store\" }",
            "classify = { \"6xx\" = \"store\" }",
            "classify = { \"1xx\" = \"store\" }",
            "include = [\"/a\"]",
            "body = \"json\"\ninclude = [\"a\"]",
            "fingerprint_headers = [\"a b\"]",
            "unknown = \"query\"",
            "principal = \"jwt:sub\"",
        ] {
            let rules: Rules = toml::from_str(bad).unwrap();
            let error = OnceLayer::new(stage.engine.clone(), rules).unwrap_err();
            assert!(error.to_string().starts_with("route *: "), "{bad}: {error}");
        }
        let relative = OnceLayer::builder(stage.engine.clone()).errors_url("errors/").build();
        assert!(relative.is_err());
    });
}
