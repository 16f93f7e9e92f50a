//! Which record is meant: by its id, or by the key that a caller sent.

use clap::Args;
use onlyonce::RecordId;
use onlyonce_server::operator::{Call, Sought};

use super::side::Ready;
use crate::failure::Failure;

/// Names one record.
#[derive(Debug, Args)]
pub(crate) struct WhichArgs {
    /// The record's id, 64 hexadecimal digits, as problems and logs name it
    #[arg(value_name = "ID", conflicts_with_all = ["id", "key"])]
    record: Option<RecordId>,

    /// The same
    #[arg(long, value_name = "ID", conflicts_with = "key")]
    id: Option<RecordId>,

    /// Or the key that the caller sent
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,

    /// Whose key: what the caller shows, as the route reads it (under `authorization` the whole field, `Bearer …`)
    #[arg(long, value_name = "WHO")]
    pub(crate) principal: Option<String>,

    /// The path of the request, where routes name their keys differently
    #[arg(long, value_name = "PATH", requires = "key")]
    pub(crate) path: Option<String>,
}

impl WhichArgs {
    /// The id, if one was given.
    pub(crate) fn given(&self) -> Option<RecordId> {
        self.record.or(self.id)
    }

    /// The id: as it was given, or found by the key.
    pub(crate) async fn find(&self, ready: &Ready) -> Result<RecordId, Failure> {
        if let Some(id) = self.given() {
            return Ok(id);
        }
        let Some(key) = self.key.clone() else {
            return Err(Failure::Usage("name a record: its ID, or --key with whose key it is".to_owned()));
        };
        let sought = Sought { key, principal: self.principal.clone(), path: self.path.clone(), method: None };
        let found = ready.ask(Call::Find(sought)).await?;
        if found["record"].is_null() {
            return Err(Failure::Refused(
                "there is no record of this key: was it --principal's, on this --path?".into(),
            ));
        }
        let id = found["id"].as_str().and_then(|id| id.parse().ok());
        id.ok_or_else(|| Failure::Refused("what answers there is no admin side of onlyonce".into()))
    }
}
