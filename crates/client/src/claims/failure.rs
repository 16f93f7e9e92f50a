//! What goes wrong between here and the service, and what that means for the command that was sent.

use std::error::Error;

use http::StatusCode;
use onlyonce_core::{StoreError, StoreErrorKind};
use serde::Deserialize;

/// A failure that many commands may share: those of one batch.
#[derive(Debug, Clone)]
pub(super) struct Trouble {
    kind: StoreErrorKind,
    outcome_unknown: bool,
    told: String,
}

/// What the service says about a failure, in a problem document or for one item of a batch.
#[derive(Debug, Deserialize)]
pub(super) struct Told {
    code: Option<String>,
    #[serde(default)]
    outcome_unknown: bool,
    detail: Option<String>,
}

impl Trouble {
    const fn new(kind: StoreErrorKind, outcome_unknown: bool, told: String) -> Self {
        Self { kind, outcome_unknown, told }
    }

    /// The request did not get an answer. Without a connection nothing was sent.
    pub(super) fn of_send(error: &reqwest::Error) -> Self {
        if error.is_builder() {
            return Self::new(StoreErrorKind::Misuse, false, chain(error));
        }
        Self::new(StoreErrorKind::Unavailable, !error.is_connect(), chain(error))
    }

    /// The answer ended before its end.
    pub(super) fn cut_off(error: &reqwest::Error) -> Self {
        Self::new(StoreErrorKind::Unavailable, true, chain(error))
    }

    /// The runtime that connections live on has ended.
    pub(super) fn stopped(error: &tokio::task::JoinError) -> Self {
        Self::new(StoreErrorKind::Unavailable, true, error.to_string())
    }

    pub(super) fn timed_out() -> Self {
        Self::new(StoreErrorKind::TimedOut, true, "the service did not answer in time".into())
    }

    pub(super) fn too_long() -> Self {
        Self::new(StoreErrorKind::Unsupported, true, "the service answered more than fits".into())
    }

    /// The service understood, and we do not.
    pub(super) fn unreadable(error: &(dyn Error + 'static)) -> Self {
        let told = format!("the service answered something else than its contract says: {error}");
        Self::new(StoreErrorKind::Unsupported, true, told)
    }

    /// The service refused, or something in between did.
    pub(super) fn of_answer(status: StatusCode, body: &[u8]) -> Self {
        let told: Option<Told> = serde_json::from_slice(body).ok();
        if let Some(told) = told.as_ref().filter(|told| told.code.is_some()) {
            return Self::of_store(told);
        }
        let detail = told.and_then(|told| told.detail).unwrap_or_default();
        let told = format!("the service answered {status}: {detail}");
        match status {
            // The service itself says this before it does anything; what stands in between may say it afterwards.
            StatusCode::SERVICE_UNAVAILABLE if !detail.is_empty() => {
                Self::new(StoreErrorKind::Unavailable, false, told)
            }
            StatusCode::TOO_MANY_REQUESTS => Self::new(StoreErrorKind::Full, false, told),
            status if status.is_server_error() => Self::new(StoreErrorKind::Unavailable, true, told),
            _ => Self::new(StoreErrorKind::Misuse, false, told),
        }
    }

    /// The store behind the service failed.
    pub(super) fn of_store(told: &Told) -> Self {
        let code = told.code.as_deref().unwrap_or_default();
        let kinds = [
            StoreErrorKind::Unavailable,
            StoreErrorKind::TimedOut,
            StoreErrorKind::Full,
            StoreErrorKind::Corrupt,
            StoreErrorKind::Unsupported,
            StoreErrorKind::Misuse,
        ];
        let kind = kinds.into_iter().find(|kind| kind.code() == code).unwrap_or(StoreErrorKind::Unavailable);
        let detail = told.detail.clone().unwrap_or_else(|| format!("the service's store failed: {code}"));
        Self::new(kind, told.outcome_unknown, detail)
    }

    pub(super) fn into_error(self, doing: &'static str) -> StoreError {
        let error = StoreError::new(self.kind, doing).because(self.told);
        if self.outcome_unknown { error.with_unknown_outcome() } else { error }
    }
}

/// The whole story: `reqwest` keeps the reason in the sources, and the address in the text.
fn chain(error: &reqwest::Error) -> String {
    let mut told = if error.is_connect() { "no connection".to_owned() } else { "no answer".to_owned() };
    let mut source = error.source();
    while let Some(cause) = source {
        told = format!("{told}: {cause}");
        source = cause.source();
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16, body: &str) -> StoreError {
        Trouble::of_answer(StatusCode::from_u16(status).unwrap(), body.as_bytes()).into_error("testing")
    }

    #[test]
    fn failures_of_the_store_keep_their_kind_and_their_doubt() {
        for (code, kind) in [
            ("store-unavailable", StoreErrorKind::Unavailable),
            ("store-timed-out", StoreErrorKind::TimedOut),
            ("store-full", StoreErrorKind::Full),
            ("record-corrupt", StoreErrorKind::Corrupt),
            ("record-unsupported", StoreErrorKind::Unsupported),
            ("store-misuse", StoreErrorKind::Misuse),
        ] {
            let body = format!(r#"{{"code":"{code}","outcome_unknown":true,"title":"t"}}"#);
            let error = answered(503, &body);
            assert_eq!((error.kind(), error.outcome_unknown()), (kind, true), "{code}");
        }
        assert!(!answered(503, r#"{"code":"store-unavailable"}"#).outcome_unknown());
    }

    #[test]
    fn only_what_may_help_later_is_worth_repeating() {
        for status in [400, 401, 403, 404, 405, 413, 415] {
            let error = answered(status, r#"{"detail":"no"}"#);
            assert!(!error.is_retryable() && !error.outcome_unknown(), "{status}");
        }
        for (status, body, unknown) in
            [(503, r#"{"detail":"busy"}"#, false), (502, "", true), (504, "<html>", true), (429, "{}", false)]
        {
            let error = answered(status, body);
            assert!(error.is_retryable(), "{status}");
            assert_eq!(error.outcome_unknown(), unknown, "{status}");
        }
    }
}
