//! The words of the commands on the wire, and back into the core's.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::fingerprint::{Fingerprint, Rules};
use onlyonce_core::record::{Step, StepName};
use onlyonce_core::transition::Token;
use onlyonce_core::{Body, Lease, MisuseError, Outcome, Retention, Terms, hex};
use onlyonce_http::rules::Unknown;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::claims::content::{TombstoneName, decoded, encoded};
use crate::claims::refusal::Refusal;
use crate::claims::request::{fence, owner, record_id};

/// What a request looked like, as a keyed digest.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FingerprintShape {
    /// The rules it was made by, in base64.
    rules: String,
    /// 64 hexadecimal digits.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    digest: String,
}

impl FingerprintShape {
    fn read(&self) -> Result<Fingerprint, Refusal> {
        let rules = Rules::new(decoded(&self.rules)?).map_err(|error| refused(&error))?;
        Ok(Fingerprint::from_parts(rules, digits("digest", &self.digest)?))
    }
}

/// An outcome: `body` in base64, or `tombstone`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OutcomeShape {
    content_version: u16,
    /// In base64.
    head: String,
    /// In base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tombstone: Option<TombstoneName>,
}

impl OutcomeShape {
    pub(super) fn read(self) -> Result<Outcome, Refusal> {
        let outcome = match (self.body, self.tombstone) {
            (Some(body), None) => Outcome::kept(self.content_version, decoded(&body)?),
            (None, Some(why)) => Outcome::tombstone(self.content_version, why.into()),
            _ => return Err(Refusal::invalid("an outcome has either `body` or `tombstone`")),
        };
        outcome.with_head(decoded(&self.head)?).map_err(|error| refused(&error))
    }
}

impl From<&Outcome> for OutcomeShape {
    fn from(outcome: &Outcome) -> Self {
        let (body, tombstone) = match outcome.body() {
            Body::Kept(bytes) => (Some(encoded(bytes)), None),
            Body::Tombstone(why) => (None, Some((*why).into())),
        };
        let head = encoded(outcome.head());
        Self { content_version: outcome.content_version(), head, body, tombstone }
    }
}

/// The conditions of a claim.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TermsShape {
    lease_ms: u64,
    run_max_ms: u64,
    retention_ms: u64,
    unknown_retention_ms: u64,
    /// `hold`, `seal`, `query` or `rerun`.
    #[schema(value_type = String, example = "hold")]
    unknown: Unknown,
    attempts_max: u32,
    hold_for_ms: u64,
    sealed: OutcomeShape,
    remote: bool,
}

impl TermsShape {
    fn read(self) -> Result<Terms, Refusal> {
        Ok(Terms {
            lease: lease(self.lease_ms)?,
            run_max: Duration::from_millis(self.run_max_ms),
            retention: retention(self.retention_ms)?,
            unknown_retention: retention(self.unknown_retention_ms)?,
            unknown: self.unknown.into(),
            attempts_max: self.attempts_max,
            hold_for: Duration::from_millis(self.hold_for_ms),
            sealed: self.sealed.read()?,
            remote: self.remote,
        })
    }
}

/// A claim.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClaimShape {
    #[schema(pattern = "^[0-9a-f]{64}$")]
    id: String,
    fingerprint: FingerprintShape,
    #[schema(pattern = "^[0-9a-f]{32}$")]
    owner: String,
    terms: TermsShape,
}

impl ClaimShape {
    pub(super) fn read(self) -> Result<onlyonce_core::transition::Claim, Refusal> {
        Ok(onlyonce_core::transition::Claim {
            id: record_id(&self.id)?,
            fingerprint: self.fingerprint.read()?,
            owner: owner(&self.owner)?,
            terms: Arc::new(self.terms.read()?),
        })
    }
}

/// A value that the work recorded.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StepShape {
    name: String,
    /// In base64; `null` when it was erased.
    value: Option<String>,
}

impl From<&Step> for StepShape {
    fn from(step: &Step) -> Self {
        Self { name: step.name.as_str().to_owned(), value: step.value.as_deref().map(encoded) }
    }
}

pub(super) fn token(id: &str, of: &str, number: u64) -> Result<Token, Refusal> {
    Ok(Token { id: record_id(id)?, owner: owner(of)?, fence: fence(number)? })
}

pub(super) fn step_name(name: &str) -> Result<StepName, Refusal> {
    StepName::new(name).map_err(|error| refused(&error))
}

pub(super) fn lease(millis: u64) -> Result<Lease, Refusal> {
    Lease::new(Duration::from_millis(millis)).map_err(|error| refused(&error))
}

pub(super) fn retention(millis: u64) -> Result<Retention, Refusal> {
    Retention::new(Duration::from_millis(millis)).map_err(|error| refused(&error))
}

/// Exactly as many hexadecimal digits as are needed.
pub(super) fn digits<const BYTES: usize>(name: &str, text: &str) -> Result<[u8; BYTES], Refusal> {
    let bytes = hex::decode(text).and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| Refusal::invalid(format!("`{name}` is not {} hexadecimal digits", 2 * BYTES)))
}

pub(super) fn refused(error: &MisuseError) -> Refusal {
    Refusal::invalid(error.to_string())
}
