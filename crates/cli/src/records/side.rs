//! Whom to ask: the admin side of a running process, or a store itself. The answers are the same.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use onlyonce_server::config::{File, Sources};
use onlyonce_server::operator::{Asked, By, Call, OfDoor, OpenOperator, Operator};
use onlyonce_server::{AdminClient, CallError, EventStream, Trust};
use serde_json::Value;

use crate::failure::Failure;
use crate::output::write_line;
use crate::plain::plain;
use crate::proxy::{environment, start_failure};

/// Where processes have their admin side when nobody says otherwise.
const ADMIN: &str = "http://127.0.0.1:9090";
/// Where the token is looked for: it is the setting of the process, too.
const TOKEN: &str = "ONLYONCE_ADMIN_TOKEN";

/// Whom a command asks.
#[derive(Debug, Args)]
#[command(next_help_heading = "Where")]
pub(crate) struct SideArgs {
    /// The admin side of a running process: `http://HOST:PORT`, `https://…` or `unix:PATH` [default: `http://127.0.0.1:9090`]
    #[arg(long, value_name = "URL", conflicts_with_all = ["store", "config"])]
    admin: Option<String>,

    /// Its token. Better in `ONLYONCE_ADMIN_TOKEN`: others on this machine can read command lines
    #[arg(long, value_name = "TOKEN", conflicts_with_all = ["store", "config"])]
    token: Option<String>,

    /// Its certificate must be signed by one of these (PEM) [default: what the machine trusts]
    #[arg(long, value_name = "FILE", requires = "admin")]
    admin_ca: Option<PathBuf>,

    /// The certificate and chain to show it, where it asks for one (PEM)
    #[arg(long, value_name = "FILE", requires = "admin", requires = "admin_key")]
    admin_certificate: Option<PathBuf>,

    /// The private key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "admin_certificate")]
    admin_key: Option<PathBuf>,

    /// Straight on a store instead: `redis://…`, `postgres://…`, or `file:DIR` while no process has it open
    #[arg(long, value_name = "URL")]
    store: Option<String>,

    /// Straight on the store of this configuration, by its rules
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// With --store or --config: who wrote the records [default: proxy]
    #[arg(long, value_name = "COMMAND")]
    door: Option<DoorName>,

    /// The namespace: of the claims API, or of keys
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,

    /// With --store: the file that commands are audited in [default: beside a `file:` store]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["admin", "token"])]
    audit: Option<PathBuf>,

    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Whose records a store holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DoorName {
    Proxy,
    Consume,
    Serve,
}

/// Whoever answers.
pub(crate) enum Side {
    Process(Box<AdminClient>),
    Store(Operator),
}

/// A side that is ready to be asked, always in the same namespace.
pub(crate) struct Ready {
    side: Side,
    namespace: Option<String>,
}

impl SideArgs {
    pub(crate) async fn open(&self) -> Result<Ready, Failure> {
        let side = if self.store.is_some() || self.config.is_some() {
            let operator = self.opener().open().await.map_err(start_failure)?;
            if let Some(warning) = operator.warning() {
                // What was asked for is worth more than the warning.
                let _ = writeln!(std::io::stderr().lock(), "warning: {warning}");
            }
            Side::Store(operator)
        } else {
            if self.door.is_some() || self.audit.is_some() {
                let text = "--door and --audit are for --store: a running process knows its own".to_owned();
                return Err(Failure::Usage(text));
            }
            let token = self.token.clone().or_else(|| std::env::var(TOKEN).ok());
            let client = AdminClient::new(self.url(), token.as_deref(), &self.trust());
            Side::Process(Box::new(client.map_err(|error| Failure::Usage(error.to_string()))?))
        };
        Ok(Ready { side, namespace: self.namespace.clone() })
    }

    fn url(&self) -> &str {
        self.admin.as_deref().unwrap_or(ADMIN)
    }

    /// The process is known by `--admin-ca`, and we are by `--admin-certificate`.
    fn trust(&self) -> Trust {
        let shown = self.admin_certificate.clone().zip(self.admin_key.clone());
        Trust { ca: self.admin_ca.clone(), shown }
    }

    fn opener(&self) -> OpenOperator {
        let mut flags = File::default();
        flags.store.url.clone_from(&self.store);
        let sources =
            Sources { file: self.config.clone(), environment: environment(std::env::vars_os()), flags };
        let door = match self.door {
            None | Some(DoorName::Proxy) => OfDoor::Proxy,
            Some(DoorName::Consume) => OfDoor::Consume,
            Some(DoorName::Serve) => OfDoor::Serve(self.namespace.as_deref().unwrap_or("default").to_owned()),
        };
        OpenOperator { sources, door, audit: self.audit.clone() }
    }
}

impl Ready {
    /// Asks, in nobody's name.
    pub(crate) async fn ask(&self, call: Call) -> Result<Value, Failure> {
        self.ask_as(call, By::default()).await
    }

    /// Asks in somebody's name, for the audit.
    pub(crate) async fn ask_as(&self, call: Call, by: By) -> Result<Value, Failure> {
        let asked = Asked { call, namespace: self.namespace.clone(), by };
        match &self.side {
            Side::Process(process) => process.ask(&asked).await.map_err(failure),
            Side::Store(operator) => {
                operator.answer(asked).await.map_err(|refusal| refused(&refusal.to_json()))
            }
        }
    }

    /// Listens to a process, from behind the event `last` if it knows it.
    pub(crate) async fn events(&self, backlog: bool, last: Option<&str>) -> Result<EventStream, Failure> {
        match &self.side {
            Side::Process(process) => process.events(backlog, last).await.map_err(failure),
            Side::Store(_) => {
                let text = "a store has no events: ask the process that serves it, with --admin";
                Err(Failure::Usage(text.to_owned()))
            }
        }
    }
}

/// The exit code that fits.
pub(crate) fn failure(error: CallError) -> Failure {
    match error {
        CallError::Refused(problem) => refused(&problem),
        error @ CallError::Unreachable(_) => Failure::Unavailable(Box::new(error)),
    }
}

pub(crate) fn refused(problem: &Value) -> Failure {
    let part = |name: &str| problem[name].as_str().unwrap_or_default().to_owned();
    let text = format!("{}: {}", part("title"), part("detail"));
    match part("type").rsplit(':').next() {
        Some("store-unavailable" | "overloaded" | "audit-unavailable") => Failure::Unavailable(text.into()),
        _ => Failure::Refused(text.into()),
    }
}

/// A member as it is shown in a table.
pub(crate) fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => plain(text).into_owned(),
        value => plain(&value.to_string()).into_owned(),
    }
}

/// Writes lines of `name  value`, the names in one column.
pub(crate) fn write_pairs(pairs: &[(&str, String)]) -> Result<(), Failure> {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let lines: Vec<_> = pairs.iter().map(|(name, value)| format!("{name:<width$}  {value}")).collect();
    write_line(&lines.join("\n"))
}

/// Whether somebody sits there to be asked.
pub(crate) fn is_attended() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}
