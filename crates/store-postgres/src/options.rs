//! Where the server is and how it is to be talked to, from a URL.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr as _;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

use crate::error::{OpenError, OpenErrorKind};

/// The schema that is used when the URL names none.
pub const SCHEMA: &str = "onlyonce";
/// The longest name of a schema: it is part of the name of a channel.
const SCHEMA_CHARS_MAX: usize = 40;
/// How many connections carry claims and completions when the URL does not say.
const CONNECTIONS: usize = 4;
const CONNECTIONS_MAX: usize = 64;
/// How long one call may take in all.
const CALL_WITHIN: Duration = Duration::from_secs(10);
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// How a store is to be reached.
///
/// `postgres://user:password@host:port/database` with the parameters that `PostgreSQL`'s own clients know, and these:
///
/// | parameter | default | meaning |
/// |---|---|---|
/// | `schema` | `onlyonce` | where the tables are; several stores may share a database |
/// | `pooler` | `none` | `transaction`: there is a pooler in between that hands out connections by transaction |
/// | `connections` | 4 | how many connections carry claims and completions, 1 to 64 |
/// | `sslmode` | `prefer` | `disable`, `prefer` or `require`; a certificate is always verified, with its host name |
/// | `sslrootcert` | the system's | a file with the certificates to trust, in PEM |
#[derive(Clone)]
pub struct Options {
    pub(crate) config: Config,
    pub(crate) schema: String,
    pub(crate) pooler: bool,
    pub(crate) connections: usize,
    pub(crate) root_certificates: Option<PathBuf>,
    pub(crate) call_within: Duration,
}

impl Options {
    /// Reads a `postgres://` or `postgresql://` URL.
    pub fn from_url(url: &str) -> Result<Self, OpenError> {
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        let mut options = Self {
            config: Config::new(),
            schema: SCHEMA.to_owned(),
            pooler: false,
            connections: CONNECTIONS,
            root_certificates: None,
            call_within: CALL_WITHIN,
        };
        let mut theirs = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !options.take(name, value)? {
                theirs.push(pair);
            }
        }
        let url =
            if theirs.is_empty() { address.to_owned() } else { format!("{address}?{}", theirs.join("&")) };
        let config =
            Config::from_str(&url).map_err(|error| wrong("the URL cannot be read").because(error))?;
        options.config = options.complete(config);
        Ok(options)
    }

    /// The schema as it is written in a statement: also `user` and `select` are names.
    pub(crate) fn quoted_schema(&self) -> String {
        // Nothing that could end the quotes is in a checked name.
        format!("\"{}\"", self.schema)
    }

    /// Takes a parameter of our own; `false` when it is not one.
    fn take(&mut self, name: &str, value: &str) -> Result<bool, OpenError> {
        match (name, value) {
            ("schema", value) => self.schema = checked_schema(value)?,
            ("pooler", "none") => self.pooler = false,
            ("pooler", "transaction") => self.pooler = true,
            ("pooler", _) => return Err(wrong("`pooler` is `none` or `transaction`")),
            ("connections", value) => {
                let number = value.parse().ok().filter(|number| (1..=CONNECTIONS_MAX).contains(number));
                self.connections = number.ok_or_else(|| wrong("`connections` is a number from 1 to 64"))?;
            }
            ("sslrootcert", value) => self.root_certificates = Some(value.into()),
            // What these ask for beyond `require` is done in every case.
            ("sslmode", "verify-ca" | "verify-full") => {
                self.config.ssl_mode(SslMode::Require);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Adds what the URL leaves open.
    fn complete(&self, mut config: Config) -> Config {
        if self.config.get_ssl_mode() == SslMode::Require {
            config.ssl_mode(SslMode::Require);
        }
        if config.get_application_name().is_none() {
            config.application_name("onlyonce");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_WITHIN);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(self.call_within);
        }
        if !self.pooler {
            // A pooler refuses these; the functions do not rest on them.
            let ours = format!(
                "-c default_transaction_isolation=read\\ committed -c statement_timeout={}",
                self.call_within.as_millis()
            );
            let options = config.get_options().map_or(ours.clone(), |theirs| format!("{ours} {theirs}"));
            config.options(options);
        }
        config
    }
}

fn checked_schema(name: &str) -> Result<String, OpenError> {
    let fine = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
    let starts_well = name.bytes().next().is_some_and(|byte| matches!(byte, b'a'..=b'z' | b'_'));
    if !starts_well || name.len() > SCHEMA_CHARS_MAX || !name.bytes().all(fine) || name.starts_with("pg_") {
        return Err(wrong("`schema` has 1 to 40 of a-z, 0-9 and _, begins with no digit and not with pg_"));
    }
    Ok(name.to_owned())
}

fn wrong(problem: &str) -> OpenError {
    OpenError::new(OpenErrorKind::Settings, problem)
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The configuration of the client shows no password.
        f.debug_struct("Options")
            .field("config", &self.config)
            .field("schema", &self.schema)
            .field("pooler", &self.pooler)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read_with_our_parameters_and_theirs() {
        let url = "postgres://alice:secret@db:6432/app?schema=pay_1&pooler=transaction&connect_timeout=3&connections=7";
        let options = Options::from_url(url).expect("a good URL");
        assert_eq!((options.schema.as_str(), options.pooler, options.connections), ("pay_1", true, 7));
        assert_eq!(options.config.get_connect_timeout(), Some(&Duration::from_secs(3)));
        assert_eq!(options.config.get_options(), None, "a pooler refuses start-up options");
        assert!(!format!("{options:?}").contains("secret"));
        let plain = Options::from_url("postgresql://db/app").expect("a good URL");
        assert!(plain.config.get_options().is_some_and(|options| options.contains("statement_timeout")));
        let verified = Options::from_url("postgres://db/app?sslmode=verify-full").expect("a good URL");
        assert_eq!(verified.config.get_ssl_mode(), SslMode::Require);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for bad in [
            "schema=",
            "schema=Pay",
            "schema=a-b",
            "schema=1a",
            "schema=pg_x",
            "schema=a%22",
            "pooler=session",
            "connections=0",
            "connections=65",
            "connections=x",
            "no_such=1",
            "sslmode=maybe",
        ] {
            let error = Options::from_url(&format!("postgres://db/app?{bad}")).expect_err(bad);
            assert_eq!(error.kind(), OpenErrorKind::Settings, "{bad}");
        }
        assert!(Options::from_url("mysql://db/app").is_err());
    }
}
