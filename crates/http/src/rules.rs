//! The rules of a route as people write them: every field optional, every unknown field an error.
//!
//! One struct serves the configuration file (`[defaults]`, `[[route]]`), flags and code. Rules are laid over each other
//! with [`Rules::or`] and become a [`Route`](crate::route::Route) once, at start-up: no request parses a rule.

mod duration;
mod error;
mod source;
mod value;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use duration::Span;
pub use error::RulesError;
pub use source::{IDEMPOTENCY_KEY, KeySource, PrincipalRule};
pub(crate) use source::{check_pointer, header as check_header};
pub use value::{BodyMode, OnStoreFailure, Profile, ReplayStatus, Retain, Unknown, Verdict};

/// How the requests of a route are treated. What is not said comes from the defaults, the profile or the engine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rules {
    /// Which paths: `/v1/payments` (exactly), `/v1/*/refunds` (one segment), `/v1/*` (everything below). Default: all.
    pub path: Option<String>,
    /// Which methods are protected. Default `POST` and `PATCH`; safe methods are refused.
    pub methods: Option<Vec<String>>,
    /// Which customs are followed. Default `standard`.
    pub profile: Option<Profile>,
    /// Whether a request without a key is refused. Default `false` (`true` in the profile `ietf`).
    pub required: Option<bool>,
    /// Where the key is: `header:NAME` or `json:/pointer`. Default `header:Idempotency-Key`.
    pub key: Option<KeySource>,
    /// Whether only the quoted form of a key is accepted. Default `false` (`true` in `ietf`).
    pub strict: Option<bool>,
    /// Whether a `UUIDv7` key that is older than the retention, and not on record, is refused. Default `false`.
    pub refuse_old_uuidv7: Option<bool>,
    /// The namespace of the keys. Default `http`.
    pub namespace: Option<String>,
    /// Who asks: `authorization`, `header:NAME`, `cookie:NAME`, `jwt:CLAIM`, `mtls`, `application` or `shared`. Default
    /// `authorization`.
    pub principal: Option<PrincipalRule>,
    /// Whether the same key on another path is another operation. Default `false`: it is a mismatch.
    pub scope_path: Option<bool>,
    /// How bodies are compared: `raw`, `json` or `multipart`. Default `raw`.
    pub body: Option<BodyMode>,
    /// With `body = "json"`: only these JSON pointers count. Default: all.
    pub include: Option<Vec<String>>,
    /// With `body = "json"`: these JSON pointers do not count.
    pub exclude: Option<Vec<String>>,
    /// Headers that also tell two requests apart.
    pub fingerprint_headers: Option<Vec<String>>,
    /// How long a duplicate waits for the one that runs. Default `0s`: it is told at once.
    pub wait: Option<Span>,
    /// The most that a caller may ask for with `Prefer: wait=N`. Default `30s`, or `wait` if that is longer.
    pub wait_max: Option<Span>,
    /// How many may wait for one key. Default 1000.
    pub waiters_max: Option<usize>,
    /// How long an owner may work without renewing. Default `30s`.
    pub lease: Option<Span>,
    /// How long one execution may take in all. Default `5m`.
    pub run_max: Option<Span>,
    /// How long answers are kept, from completion. Default `24h`.
    pub retention: Option<Span>,
    /// How long unknown outcomes are kept. Default `30d`.
    pub unknown_retention: Option<Span>,
    /// What to do when nobody knows whether the work happened. Default `hold` (`seal` in `stripe`).
    pub unknown: Option<Unknown>,
    /// With `unknown = "query"`: the path of the protected service that is asked by GET whether it happened, with `{key}`
    /// for the key. No default.
    pub query_url: Option<String>,
    /// How long that answer may take. Default `5s`; after it the outcome is still unknown.
    pub query_within: Option<Span>,
    /// How long `hold` holds before it seals. Default `24h`.
    pub hold_for: Option<Span>,
    /// How many attempts `rerun` makes in all. Default 3.
    pub attempts_max: Option<u32>,
    /// What follows from a status: `{ "409" = "release", "4xx" = "store" }`. A status beats its class, and both beat the
    /// profile.
    pub classify: Option<BTreeMap<String, Verdict>>,
    /// Short for the class `5xx` of `classify`.
    pub on_5xx: Option<Verdict>,
    /// The largest request body with a key that is taken. Default 2 MiB: it is held in memory until the answer.
    pub request_bytes_max: Option<u64>,
    /// The largest response body that is kept. Default 1 MiB; a larger one streams through and leaves a tombstone.
    pub response_bytes_max: Option<u64>,
    /// How long a response body may take before it is taken for an endless stream. Default `10s`.
    pub response_within: Option<Span>,
    /// What is kept of an answer: `full` or `status-only`. Default `full`.
    pub store: Option<Retain>,
    /// What is taken out of the body of an answer before it is kept, as JSON pointers in which `*` stands for every member or
    /// element; `"[redacted]"` stands there in replays. A body that is not JSON is then not kept at all. Default: nothing.
    pub redact: Option<Vec<String>>,
    /// Header fields of an answer that are not kept, beside those that never are. Default: none.
    pub redact_headers: Option<Vec<String>>,
    /// Whether `Set-Cookie` is kept and replayed. Default `false`: a replay must not bring an old session back.
    pub store_set_cookie: Option<bool>,
    /// The status of a replay: `original` or `200`. Default `original`.
    pub replay_status: Option<ReplayStatus>,
    /// What to do when the store cannot be reached: `closed` (503) or `open` (run unprotected). Default `closed`.
    pub on_store_failure: Option<OnStoreFailure>,
    /// What a grant and an outcome wait for beyond the store's own answer. Default: nothing.
    pub acknowledgement: Option<Acknowledgement>,
    /// Whether nothing is enforced and everything is counted. Default `false`.
    pub shadow: Option<bool>,
    /// How much one principal may use.
    pub limits: Option<Limits>,
}

/// Who must have a grant or an outcome before it counts: replicas of a store that does not wait for them by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Acknowledgement {
    /// How many replicas.
    #[serde(default)]
    pub replicas: u8,
    /// Whether it must be on their disks, and on that of the server itself.
    #[serde(default)]
    pub disk: bool,
    /// How long that may take before the command counts as failed.
    pub within: Span,
}

/// How much one principal may use of what this process hands out. What is not said is not limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Executions at a time.
    pub in_flight_max: Option<u32>,
    /// Records that are kept.
    pub records_max: Option<u64>,
    /// Bytes of kept answers.
    pub bytes_max: Option<u64>,
}

macro_rules! or_each {
    ($own:ident, $base:ident; $($field:ident),* $(,)?) => {
        Self { $($field: $own.$field.or_else(|| $base.$field.clone()),)* }
    };
}

impl Rules {
    /// These rules, and `base` where they say nothing.
    #[must_use]
    pub fn or(self, base: &Self) -> Self {
        or_each!(self, base;
            path, methods, profile, required, key, strict, refuse_old_uuidv7, namespace, principal, scope_path, body,
            include, exclude, fingerprint_headers, wait, wait_max, waiters_max, lease, run_max, retention,
            unknown_retention, unknown, query_url, query_within, hold_for, attempts_max, classify, on_5xx, request_bytes_max,
            response_bytes_max, response_within, store, redact, redact_headers, store_set_cookie, replay_status, on_store_failure,
            acknowledgement, shadow, limits,
        )
    }
}
