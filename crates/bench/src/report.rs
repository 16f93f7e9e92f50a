//! Results as JSON, for whoever draws pictures of them.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::Result;

/// Writes `value` into `file`.
pub fn write(value: &Value, file: &Path) -> Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    Ok(fs::write(file, text + "\n").map_err(|error| format!("writing {}: {error}", file.display()))?)
}
