//! From what Redis or the network said to a [`StoreError`] that answers both questions: try again? and was it done?

use onlyonce_core::{StoreError, StoreErrorKind};
use redis::{RedisError, ServerError, Value};

/// Codes with which a server refuses before a script wrote anything. After every other one a write may have happened.
const REFUSED_BEFORE_WRITING: [&str; 16] = [
    "ASK",
    "BUSY",
    "CLUSTERDOWN",
    "CROSSSLOT",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "MOVED",
    "NOAUTH",
    "NOREPLICAS",
    "NOSCRIPT",
    "OOM",
    "READONLY",
    "TRYAGAIN",
    "WRONGPASS",
    "WRONGTYPE",
];

/// The server answered with an error.
pub(crate) fn refused(error: &ServerError, doing: &'static str) -> StoreError {
    let code = error.code();
    let text = format!("{code} {}", error.details().unwrap_or_default());
    let kind = match code {
        "OOM" => StoreErrorKind::Full,
        // Something else lives under the record's key.
        "WRONGTYPE" => StoreErrorKind::Corrupt,
        // A script stumbled over what it read, unless it may not do what it must.
        "ERR" if text.contains("user_script") && !is_forbidden(&text) => StoreErrorKind::Corrupt,
        _ => StoreErrorKind::Unavailable,
    };
    let told =
        StoreError::new(kind, doing).because(match hint(if is_forbidden(&text) { "NOPERM" } else { code }) {
            "" => text,
            hint => format!("{text} ({hint})"),
        });
    if REFUSED_BEFORE_WRITING.contains(&code) { told } else { told.with_unknown_outcome() }
}

/// Whether the user lacks a right. In scripts this is an error like any other, told by its words only: Redis 7.0, then
/// later ones.
fn is_forbidden(text: &str) -> bool {
    text.starts_with("NOPERM")
        || ["The user executing the script can't", "ACL failure"].iter().any(|said| text.contains(said))
}

/// Whether the server does not know the script.
pub(crate) fn is_forgotten(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.code() == "NOSCRIPT")
}

/// Whether the key is on another server of the cluster, or on its way there.
pub(crate) fn is_elsewhere(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if ["MOVED", "ASK"].contains(&error.code()))
}

/// What to do about it.
fn hint(code: &str) -> &'static str {
    match code {
        "OOM" => "the server is at maxmemory: raise it, or shorten retention",
        "READONLY" => {
            "this server is a replica: name the master, or use redis-sentinel:// or redis-cluster://"
        }
        "NOAUTH" | "WRONGPASS" => "name user and password in the store's URL",
        "NOPERM" => {
            "the user needs +evalsha +eval +script|load +get +getrange +strlen +set +setrange +del +time +scan +dbsize +info +ping \
             +wait +waitaof +publish +subscribe +unsubscribe (in a cluster +spublish +ssubscribe +sunsubscribe +cluster|slots \
             +asking), and ~PREFIX:* &PREFIX:* for keys and channels"
        }
        "MISCONF" => "the server cannot write to its disk",
        "NOREPLICAS" => "min-replicas-to-write is not met",
        _ => "",
    }
}

/// The connection failed after the command may have left.
pub(crate) fn lost(error: RedisError, doing: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, doing).because(error).with_unknown_outcome()
}

/// There is no connection, so nothing was sent.
pub(crate) fn unreachable(why: &str, doing: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, doing).because(why.to_owned())
}

/// The server did not answer in time.
pub(crate) fn timed_out(doing: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::TimedOut, doing)
}

/// The server answered what no script of ours answers.
pub(crate) fn unexpected(answer: &Value, doing: &'static str) -> StoreError {
    if let Value::ServerError(error) = answer {
        return refused(error, doing);
    }
    StoreError::new(StoreErrorKind::Corrupt, doing)
        .because(format!("an answer of an unknown form ({} bytes)", format!("{answer:?}").len()))
        .with_unknown_outcome()
}
