//! Where log lines go: standard error, for people or as JSON.

use tracing_subscriber::filter::ParseError;
use tracing_subscriber::{EnvFilter, fmt};

/// Starts logging for the whole process. `filter` is written as `tracing` filters are: `info`, `onlyonce_http=debug`.
///
/// Does nothing when somebody else has started it.
pub fn start_logging(json: bool, filter: &str) -> Result<(), ParseError> {
    let filter: EnvFilter = filter.parse()?;
    let builder = fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Who has set up logging before us has their reasons.
    let _ = if json {
        builder.json().flatten_event(true).try_init()
    } else {
        use std::io::IsTerminal as _;
        builder.with_ansi(std::io::stderr().is_terminal()).try_init()
    };
    Ok(())
}
