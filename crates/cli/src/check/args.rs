//! What `onlyonce check` takes, and how it becomes settings.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::items::{ITEMS, Item};
use super::named;
use super::options::{Options, other_body, parse_header};
use super::target::Target;
use super::wire::{Trust, Wire};
use crate::args::exit_codes;
use crate::failure::Failure;
use crate::{input, times};

/// The most requests at once.
const CONCURRENCY_MAX: u16 = 64;

/// Find out whether an endpoint handles Idempotency-Key as it should
///
/// Sends real requests: firsts, retries, mismatches, many at once, malformed keys and broken connections, and judges
/// the answers by draft-ietf-httpapi-idempotency-key-header-07 and by what goes wrong in practice. The endpoint may be
/// anything that speaks HTTP/1.1. Point it at a test environment: each new key is a new execution.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "\
Examples:
  onlyonce check http://127.0.0.1:8080/payments --body '{\"amount\": 100}'
  onlyonce check http://127.0.0.1:8080/payments --body @payment.json --effects http://127.0.0.1:8080/payments/count
  onlyonce check http://127.0.0.1:8080/payments --slow 'Demo-Slow: 1s' --fail 'Demo-Fail: 500' --json
  onlyonce check https://test.example.com/v1/orders --header 'Authorization: Bearer …' --only replay --yes

",
    exit_codes!()
))]
pub(crate) struct CheckArgs {
    /// The endpoint, as http://… or https://…
    #[arg(value_name = "URL")]
    url: Target,

    /// The method of the requests
    #[arg(long, default_value = "POST", value_parser = parse_method)]
    method: String,

    /// The body: text, or @FILE
    #[arg(long, value_name = "TEXT|@FILE", default_value = "{\"amount\": 100, \"currency\": \"EUR\"}")]
    body: String,

    /// A body that means another operation [default: made from --body by changing one number or text]
    #[arg(long, value_name = "TEXT|@FILE")]
    other_body: Option<String>,

    /// A body that is refused with 4xx [default for JSON: half an object]
    #[arg(long, value_name = "TEXT|@FILE")]
    error_body: Option<String>,

    /// The content type of the bodies
    #[arg(long, value_name = "TYPE", default_value = "application/json")]
    content_type: String,

    /// A header for every request; can be given more than once
    #[arg(long, value_name = "'N: V'", value_parser = parse_header)]
    header: Vec<(String, String)>,

    /// A header with the credential of another caller, in place of the one in --header
    #[arg(long, value_name = "'N: V'", value_parser = parse_header)]
    other_header: Option<(String, String)>,

    /// A header that makes the endpoint take a second or so: conflicts are then certain to be seen
    #[arg(long, value_name = "'N: V'", value_parser = parse_header)]
    slow: Option<(String, String)>,

    /// A header that makes the endpoint answer 5xx
    #[arg(long, value_name = "'N: V'", value_parser = parse_header)]
    fail: Option<(String, String)>,

    /// The name of the header that carries the key
    #[arg(long, value_name = "NAME", default_value = "Idempotency-Key", value_parser = parse_name)]
    key_header: String,

    /// A URL whose GET answers with the number of effects so far: makes "executed once" certain
    #[arg(long, value_name = "URL")]
    effects: Option<Target>,

    /// How many requests are sent at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(2..=i64::from(CONCURRENCY_MAX)))]
    concurrency: u16,

    /// How long to wait for an answer
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_timeout)]
    timeout: Duration,

    /// Only this item, or the items of this group; can be given more than once
    #[arg(long, value_name = "ITEM")]
    only: Vec<String>,

    /// Not this item, or the items of this group; can be given more than once
    #[arg(long, value_name = "ITEM")]
    skip: Vec<String>,

    /// A file with the certificates (PEM) to trust for https, in place of the machine's own
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,

    /// Do send the requests, also to another machine
    #[arg(long)]
    pub(super) yes: bool,

    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,

    /// Show the bytes of every request and answer
    #[arg(long)]
    pub(super) verbose: bool,
}

impl CheckArgs {
    pub(super) fn url(&self) -> &str {
        self.url.url()
    }

    pub(super) fn ca(&self) -> Option<&Path> {
        self.ca.as_deref()
    }

    pub(super) fn uses_tls(&self) -> bool {
        self.url.tls || self.effects.as_ref().is_some_and(|effects| effects.tls)
    }

    /// The items to judge, in the order of the table.
    pub(super) fn wanted(&self) -> Result<Vec<&'static Item>, Failure> {
        let (only, skip) = (named(&self.only)?, named(&self.skip)?);
        let is_among = |items: &[&Item], item: &Item| items.iter().any(|other| other.id == item.id);
        let is_wanted = |item: &&&Item| (only.is_empty() || is_among(&only, item)) && !is_among(&skip, item);
        let wanted: Vec<_> = ITEMS.iter().filter(is_wanted).copied().collect();
        if wanted.is_empty() {
            return Err(Failure::Usage("--only and --skip leave nothing to check".to_owned()));
        }
        Ok(wanted)
    }

    pub(super) fn options(&self) -> Result<Options, Failure> {
        let body = read(&self.body)?;
        let other = self.other_body.as_deref().map(read).transpose()?;
        let mut options = Options {
            method: self.method.clone(),
            key_name: self.key_header.clone(),
            content_type: self.content_type.clone(),
            headers: self.header.clone(),
            other_body: other.unwrap_or_else(|| other_body(&body)),
            body,
            error_body: Vec::new(),
            slow: self.slow.clone(),
            fail: self.fail.clone(),
            other_caller: self.other_header.clone(),
            concurrency: self.concurrency,
        };
        options.error_body = match &self.error_body {
            Some(text) => read(text)?,
            None if options.is_json() => b"{\"onlyonce-check\":".to_vec(),
            None => Vec::new(),
        };
        Ok(options)
    }

    pub(super) async fn wire(&self, trust: Option<&Trust>) -> Result<Wire, Failure> {
        open(&self.url, trust, self.timeout).await
    }

    pub(super) async fn effects_wire(&self, trust: Option<&Trust>) -> Result<Option<Wire>, Failure> {
        match &self.effects {
            Some(target) => Ok(Some(open(target, trust, self.timeout).await?)),
            None => Ok(None),
        }
    }
}

async fn open(target: &Target, trust: Option<&Trust>, timeout: Duration) -> Result<Wire, Failure> {
    let wire = Wire::new(target.clone(), trust, timeout).await;
    wire.map_err(|error| Failure::Unavailable(format!("{} cannot be reached: {error}", target.url()).into()))
}

/// Text, or the content of the file after an `@`.
fn read(text: &str) -> Result<Vec<u8>, Failure> {
    match text.strip_prefix('@') {
        Some(file) => input::read_file(Path::new(file)),
        None => Ok(text.as_bytes().to_vec()),
    }
}

fn parse_method(text: &str) -> Result<String, String> {
    match text {
        "POST" | "PATCH" | "PUT" | "DELETE" => Ok(text.to_owned()),
        _ => Err("the methods that can be checked are POST, PATCH, PUT and DELETE".to_owned()),
    }
}

fn parse_name(text: &str) -> Result<String, String> {
    parse_header(&format!("{text}: x")).map(|(name, _)| name)
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    let timeout = times::parse_duration(text)?;
    let sensible = Duration::from_millis(10)..=Duration::from_mins(10);
    if sensible.contains(&timeout) { Ok(timeout) } else { Err("between 10ms and 10m".to_owned()) }
}
