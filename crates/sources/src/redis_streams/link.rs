//! A connection to the server that is made again after it broke, and the scripts that are called over it.

use std::error::Error as _;
use std::time::Duration;

use onlyonce_inbox::{SourceError, SourceErrorKind};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, RedisError, Script, ScriptInvocation, Value, cmd};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::url::wrong;

/// Codes with which a server says no, until somebody changes something.
const REFUSALS: [&str; 6] = ["NOAUTH", "WRONGPASS", "NOPERM", "WRONGTYPE", "BUSYGROUP", "NOGROUP"];

/// What runs inside the server.
#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) settle: Script,
    pub(super) abandoned: Script,
    pub(super) again: Script,
    pub(super) leave: Script,
    pub(super) join: Script,
    pub(super) trim: Script,
}

impl Default for Scripts {
    fn default() -> Self {
        Self {
            settle: Script::new(include_str!("../../scripts/settle.lua")),
            abandoned: Script::new(include_str!("../../scripts/abandoned.lua")),
            again: Script::new(include_str!("../../scripts/again.lua")),
            leave: Script::new(include_str!("../../scripts/leave.lua")),
            join: Script::new(include_str!("../../scripts/join.lua")),
            trim: Script::new(include_str!("../../scripts/trim.lua")),
        }
    }
}

/// One connection.
pub(super) struct Link {
    client: Client,
    /// Under which the server lists it: that of the consumer.
    name: String,
    timeout: Duration,
    connection: Mutex<Option<MultiplexedConnection>>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The client knows the password.
        f.debug_struct("Link").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl Link {
    pub(super) fn new(server: &str, name: &str, timeout: Duration) -> Result<Self, SourceError> {
        // Our own text, and not the error's: it could show the URL.
        let client =
            Client::open(server).map_err(|_| wrong("a host, port, database or password is not one"))?;
        Ok(Self { client, name: name.to_owned(), timeout, connection: Mutex::new(None) })
    }

    /// Sends a command and waits for its answer.
    pub(super) async fn ask(&self, command: &Cmd, doing: &'static str) -> Result<Value, SourceError> {
        self.ask_for(command, Duration::ZERO, doing).await
    }

    /// The same for a command that may take `longer`.
    pub(super) async fn ask_for(
        &self,
        command: &Cmd,
        longer: Duration,
        doing: &'static str,
    ) -> Result<Value, SourceError> {
        let mut connection = self.connection(doing).await?;
        let answer = timeout(self.timeout + longer, command.query_async(&mut connection)).await;
        self.judge(answer.ok(), doing).await
    }

    /// Calls a script and waits for its answer.
    pub(super) async fn call(
        &self,
        script: &ScriptInvocation<'_>,
        doing: &'static str,
    ) -> Result<Value, SourceError> {
        let mut connection = self.connection(doing).await?;
        let answer = timeout(self.timeout, script.invoke_async(&mut connection)).await;
        self.judge(answer.ok(), doing).await
    }

    /// Lets go of the server.
    pub(super) async fn drop_connection(&self) {
        self.connection.lock().await.take();
    }

    async fn connection(&self, doing: &'static str) -> Result<MultiplexedConnection, SourceError> {
        let mut connection = self.connection.lock().await;
        if let Some(connection) = connection.as_ref() {
            return Ok(connection.clone());
        }
        // Commands have our own time-out: one that waits must not be cut short by another.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(None);
        let connecting = self.client.get_multiplexed_async_connection_with_config(&config);
        let mut connected = connecting.await.map_err(|error| failed(error, doing))?;
        // For operators: a user who may not say it reads all the same.
        let mut named = cmd("CLIENT");
        named.arg("SETNAME").arg(&self.name);
        let _ = timeout(self.timeout, named.query_async::<Value>(&mut connected)).await;
        *connection = Some(connected.clone());
        Ok(connected)
    }

    async fn judge(
        &self,
        answer: Option<Result<Value, RedisError>>,
        doing: &'static str,
    ) -> Result<Value, SourceError> {
        match answer {
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => {
                if error.code().is_none() {
                    self.drop_connection().await;
                }
                Err(failed(error, doing))
            }
            None => {
                self.drop_connection().await;
                Err(SourceError::new(SourceErrorKind::Unavailable, doing).because("no answer in time"))
            }
        }
    }
}

fn failed(error: RedisError, doing: &'static str) -> SourceError {
    let kind = match error.code() {
        Some(code) if REFUSALS.contains(&code) => SourceErrorKind::Refused,
        None if error.kind() == redis::ErrorKind::AuthenticationFailed => SourceErrorKind::Refused,
        _ => SourceErrorKind::Unavailable,
    };
    SourceError::new(kind, doing).because(error)
}

/// An answer of a shape that no server we know gives.
pub(super) fn unreadable(doing: &'static str) -> SourceError {
    SourceError::new(SourceErrorKind::Corrupt, doing).because("the answer has another shape")
}

/// Whether the server refused with this code.
pub(super) fn has_code(error: &SourceError, code: &str) -> bool {
    // A script passes on what a command in it said, with words of its own around it.
    error.source().is_some_and(|cause| cause.to_string().contains(code))
}
