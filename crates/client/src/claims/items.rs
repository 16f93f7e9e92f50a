//! Commands as the contract writes them.

use onlyonce_core::store::Listing;
use onlyonce_core::transition::{
    Actor, Claim, Complete, RecordStep, Release, Renew, Resolve, Terms, Token, Verdict,
};
use onlyonce_core::{Lease, Record, RecordId, StateKind, Timestamp};
use serde::Serialize;

use super::wire::{Base64, Hex, OutcomeText, id, millis, owner, unknown_policy};

#[derive(Serialize)]
pub(super) struct ClaimItem {
    id: Hex<32>,
    fingerprint: FingerprintText,
    owner: Hex<16>,
    terms: TermsText,
}

#[derive(Serialize)]
struct FingerprintText {
    rules: Base64,
    digest: Hex<32>,
}

#[derive(Serialize)]
struct TermsText {
    lease_ms: u64,
    run_max_ms: u64,
    retention_ms: u64,
    unknown_retention_ms: u64,
    unknown: &'static str,
    attempts_max: u32,
    hold_for_ms: u64,
    sealed: OutcomeText,
    remote: bool,
}

impl From<&Terms> for TermsText {
    fn from(terms: &Terms) -> Self {
        Self {
            lease_ms: millis(terms.lease.get()),
            run_max_ms: millis(terms.run_max),
            retention_ms: millis(terms.retention.get()),
            unknown_retention_ms: millis(terms.unknown_retention.get()),
            unknown: unknown_policy(terms.unknown),
            attempts_max: terms.attempts_max,
            hold_for_ms: millis(terms.hold_for),
            sealed: OutcomeText::of(&terms.sealed),
            remote: terms.remote,
        }
    }
}

impl From<&Claim> for ClaimItem {
    fn from(claim: &Claim) -> Self {
        let fingerprint = FingerprintText {
            rules: Base64(claim.fingerprint.rules().text().clone()),
            digest: Hex(*claim.fingerprint.digest()),
        };
        let terms = TermsText::from(claim.terms.as_ref());
        Self { id: id(&claim.id), fingerprint, owner: owner(&claim.owner), terms }
    }
}

/// Who commands.
#[derive(Serialize)]
pub(super) struct TokenItem {
    id: Hex<32>,
    owner: Hex<16>,
    fence: u64,
}

impl From<&Token> for TokenItem {
    fn from(token: &Token) -> Self {
        Self { id: id(&token.id), owner: owner(&token.owner), fence: token.fence.get() }
    }
}

#[derive(Serialize)]
pub(super) struct RenewItem {
    #[serde(flatten)]
    token: TokenItem,
    lease_ms: u64,
}

impl From<&Renew> for RenewItem {
    fn from(Renew { token, lease }: &Renew) -> Self {
        Self { token: token.into(), lease_ms: millis(Lease::get(*lease)) }
    }
}

#[derive(Serialize)]
pub(super) struct CompleteItem {
    #[serde(flatten)]
    token: TokenItem,
    outcome: OutcomeText,
    #[serde(skip_serializing_if = "Option::is_none")]
    retention_ms: Option<u64>,
}

impl From<&Complete> for CompleteItem {
    fn from(complete: &Complete) -> Self {
        Self {
            token: (&complete.token).into(),
            outcome: OutcomeText::of(&complete.outcome),
            retention_ms: complete.retention.map(|retention| millis(retention.get())),
        }
    }
}

#[derive(Serialize)]
pub(super) struct ReleaseItem {
    #[serde(flatten)]
    token: TokenItem,
    keep_fingerprint: bool,
}

impl From<&Release> for ReleaseItem {
    fn from(release: &Release) -> Self {
        Self { token: (&release.token).into(), keep_fingerprint: release.keep_fingerprint }
    }
}

#[derive(Serialize)]
pub(super) struct StepItem<'a> {
    #[serde(flatten)]
    token: TokenItem,
    name: &'a str,
    value: Base64,
}

impl<'a> From<&'a RecordStep> for StepItem<'a> {
    fn from(step: &'a RecordStep) -> Self {
        Self { token: (&step.token).into(), name: step.name.as_str(), value: Base64(step.value.clone()) }
    }
}

#[derive(Serialize)]
pub(super) struct ResolveItem<'a> {
    id: Hex<32>,
    fence: u64,
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<OutcomeText>,
    #[serde(skip_serializing_if = "Option::is_none")]
    force: Option<bool>,
    /// Absent for a hook.
    actor: Option<&'a str>,
}

impl<'a> From<&'a Resolve> for ResolveItem<'a> {
    fn from(resolve: &'a Resolve) -> Self {
        let (verdict, outcome, force) = match &resolve.verdict {
            Verdict::Executed(outcome) => ("executed", Some(OutcomeText::of(outcome)), None),
            Verdict::NotExecuted { force } => ("not-executed", None, Some(*force)),
            Verdict::StillUnknown => ("still-unknown", None, None),
        };
        let actor = match &resolve.actor {
            Actor::Hook => None,
            Actor::Operator(name) => Some(name.as_str()),
        };
        Self { id: id(&resolve.id), fence: resolve.fence.get(), verdict, outcome, force, actor }
    }
}

/// A record by its id.
#[derive(Serialize)]
pub(super) struct IdItem {
    pub(super) id: Hex<32>,
}

#[derive(Serialize)]
pub(super) struct ListItem<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    states: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<Hex<8>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_before_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<Hex<32>>,
    limit: usize,
}

impl<'a> From<&'a Listing> for ListItem<'a> {
    fn from(listing: &'a Listing) -> Self {
        Self {
            states: listing.states.iter().map(StateKind::to_string).collect(),
            scope: listing.scope.map(|tag| Hex(*tag.as_bytes())),
            prefix: listing.prefix.as_deref(),
            created_before_ms: listing.created_before.map(Timestamp::as_millis),
            after: listing.after.as_ref().map(id),
            limit: listing.page_size(),
        }
    }
}

/// A record as the codec writes it.
#[derive(Serialize)]
pub(super) struct RecordItem {
    id: Hex<32>,
    record: Base64,
}

impl RecordItem {
    pub(super) fn of(record_id: &RecordId, record: &Record) -> Self {
        let bytes = onlyonce_core::record::codec::encode(record_id, record);
        Self { id: id(record_id), record: Base64(bytes.into()) }
    }
}

/// Asks for the next change of a record, or for the version that changes are counted from.
#[derive(Serialize)]
pub(super) struct WaitItem<'a> {
    pub(super) id: Hex<32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) within_ms: Option<u64>,
}
