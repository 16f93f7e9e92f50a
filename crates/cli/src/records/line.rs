//! The lines of an export: a head with the store's secret, then one record a line, its bytes as the store keeps them.
//!
//! The bytes carry their own version and checksum over the id, so that a line that was changed is refused.

use onlyonce::record::codec;
use onlyonce::{Record, RecordId, Secret, hex};
use serde::{Deserialize, Serialize};

/// The version of the lines themselves.
const VERSION: u32 = 1;

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Head {
    onlyonce_export: u32,
    /// Without it no key would find its record. Whoever has it can search the records for a known key.
    secret: String,
}

/// One record.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line {
    id: String,
    /// For whoever reads the file; not read back.
    state: String,
    record: String,
}

impl Head {
    pub(crate) fn new(secret: &Secret) -> Self {
        Self { onlyonce_export: VERSION, secret: hex::encode(secret.expose()) }
    }

    pub(crate) fn secret(&self) -> Result<Secret, String> {
        if self.onlyonce_export != VERSION {
            return Err(format!(
                "the export has version {}, this program reads {VERSION}",
                self.onlyonce_export
            ));
        }
        let bytes = hex::decode(&self.secret).and_then(|bytes| bytes.try_into().ok());
        bytes.map(Secret::new).ok_or_else(|| "the secret is not 64 hexadecimal digits".into())
    }
}

impl Line {
    pub(crate) fn new(id: &RecordId, record: &Record) -> Self {
        let bytes = codec::encode(id, record);
        Self { id: id.to_string(), state: record.kind().to_string(), record: hex::encode(&bytes) }
    }

    pub(crate) fn read(&self) -> Result<(RecordId, Record), String> {
        let id: RecordId = self.id.parse().map_err(|error| format!("{error}"))?;
        let bytes = hex::decode(&self.record).ok_or("the record is not in hexadecimal digits")?;
        let record = codec::decode(&id, &bytes.into()).map_err(|error| error.to_string())?;
        Ok((id, record))
    }
}
