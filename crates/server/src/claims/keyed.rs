//! The door for callers who have a key: `/v1/claims`. The service finds the record; the caller never computes an id.

pub(crate) mod claim;
pub(crate) mod holder;
pub(crate) mod operator;
pub(crate) mod record;

use onlyonce_core::record::CompletedBy;
use onlyonce_core::record::Step;
use serde::Serialize;
use utoipa::ToSchema;

use super::content::Content;

/// A step of the work that is on record.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StepShown {
    name: String,
    /// Absent when it was erased.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Content>,
}

impl From<&Step> for StepShown {
    fn from(step: &Step) -> Self {
        Self { name: step.name.as_str().to_owned(), value: step.value.as_ref().map(Content::of_step) }
    }
}

/// Who completed a record.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum By {
    Execution,
    Seal,
    Resolve,
}

impl From<CompletedBy> for By {
    fn from(by: CompletedBy) -> Self {
        match by {
            CompletedBy::Execution => Self::Execution,
            CompletedBy::Seal => Self::Seal,
            CompletedBy::Resolve => Self::Resolve,
        }
    }
}
