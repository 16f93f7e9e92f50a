//! The scripts: one per operation, each loaded once per server and then called by its hash.

use std::sync::OnceLock;

use onlyonce_core::StoreError;
use redis::aio::MultiplexedConnection;
use redis::{Arg, Cmd, Pipeline, Value, cmd};

use crate::error;

/// An operation that runs inside the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Script {
    Claim,
    Renew,
    Complete,
    Release,
    Abandon,
    RecordStep,
    Resolve,
    Erase,
    Sweep,
    Lookup,
    Import,
    Epoch,
    Secret,
    SweepTurn,
}

impl Script {
    const ALL: [Self; 14] = [
        Self::Claim,
        Self::Renew,
        Self::Complete,
        Self::Release,
        Self::Abandon,
        Self::RecordStep,
        Self::Resolve,
        Self::Erase,
        Self::Sweep,
        Self::Lookup,
        Self::Import,
        Self::Epoch,
        Self::Secret,
        Self::SweepTurn,
    ];

    const fn text(self) -> &'static str {
        match self {
            Self::Claim => include_str!("../scripts/claim.lua"),
            Self::Renew => include_str!("../scripts/renew.lua"),
            Self::Complete => include_str!("../scripts/complete.lua"),
            Self::Release => include_str!("../scripts/release.lua"),
            Self::Abandon => include_str!("../scripts/abandon.lua"),
            Self::RecordStep => include_str!("../scripts/record_step.lua"),
            Self::Resolve => include_str!("../scripts/resolve.lua"),
            Self::Erase => include_str!("../scripts/erase.lua"),
            Self::Sweep => include_str!("../scripts/sweep.lua"),
            Self::Lookup => include_str!("../scripts/lookup.lua"),
            Self::Import => include_str!("../scripts/import.lua"),
            Self::Epoch => include_str!("../scripts/epoch.lua"),
            Self::Secret => include_str!("../scripts/secret.lua"),
            Self::SweepTurn => include_str!("../scripts/sweep_turn.lua"),
        }
    }

    /// What the server lets the script do when it is out of memory or cannot write. What was granted must be
    /// completed also then; a claim must still be answered with what is there, which only a script without flags can.
    const fn flags(self) -> &'static str {
        match self {
            Self::Claim | Self::RecordStep | Self::Import | Self::Secret => "",
            Self::Lookup => "#!lua flags=no-writes\n",
            _ => "#!lua flags=allow-oom\n",
        }
    }

    /// What comes before all that reads and writes records: the usual case of an operation, where it is worth it.
    const fn usual(self) -> &'static str {
        match self {
            Self::Claim => {
                concat!(include_str!("../scripts/touch.lua"), include_str!("../scripts/claim_usual.lua"))
            }
            Self::Complete => {
                concat!(include_str!("../scripts/touch.lua"), include_str!("../scripts/complete_usual.lua"))
            }
            Self::Sweep => include_str!("../scripts/sweep_usual.lua"),
            _ => "",
        }
    }

    /// Whether the script is about a record, and so begins with what reads and writes one.
    const fn is_about_a_record(self) -> bool {
        !matches!(self, Self::Epoch | Self::Secret | Self::SweepTurn)
    }
}

/// The server's own time.
const MOMENT: &str = include_str!("../scripts/moment.lua");
/// The time that a test sends.
#[cfg(feature = "testkit")]
const MOMENT_OF_THE_TEST: &str = include_str!("../scripts/moment_testkit.lua");
const LIMITS: &str = include_str!("../scripts/limits.lua");
const RECORD: &str = include_str!("../scripts/record.lua");

/// Where the scripts get the time from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Time {
    /// The server.
    Server,
    /// The last argument.
    #[cfg(feature = "testkit")]
    Test,
}

/// How changes are told: in a cluster only on the shard that holds the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Telling {
    Everywhere,
    Shard,
}

impl Telling {
    /// The command that begins, or ends, hearing of what is told on `channel`.
    pub(crate) fn subscription(self, channel: &[u8], is_wanted: bool) -> Cmd {
        let mut command = cmd(match (self, is_wanted) {
            (Self::Everywhere, true) => "SUBSCRIBE",
            (Self::Everywhere, false) => "UNSUBSCRIBE",
            (Self::Shard, true) => "SSUBSCRIBE",
            (Self::Shard, false) => "SUNSUBSCRIBE",
        });
        command.arg(channel);
        command
    }

    /// The command that tells nothing on `channel`.
    pub(crate) fn publication(self, channel: &[u8]) -> Cmd {
        let mut command = cmd(match self {
            Self::Everywhere => "PUBLISH",
            Self::Shard => "SPUBLISH",
        });
        command.arg(channel).arg("");
        command
    }
}

/// The scripts of one store.
#[derive(Debug)]
pub(crate) struct Scripts {
    texts: Vec<String>,
    /// Told by the first server that loads them; every server says the same.
    hashes: Vec<OnceLock<String>>,
}

impl Scripts {
    pub(crate) fn new(time: Time, telling: Telling) -> Self {
        let moment = match time {
            Time::Server => MOMENT,
            #[cfg(feature = "testkit")]
            Time::Test => MOMENT_OF_THE_TEST,
        };
        let text = |script: Script| {
            let before = if script.is_about_a_record() {
                [moment, LIMITS, script.usual(), RECORD].concat()
            } else {
                String::new()
            };
            let text = [script.flags(), &before, script.text()].concat();
            match telling {
                Telling::Everywhere => text,
                Telling::Shard => text.replace("'PUBLISH'", "'SPUBLISH'"),
            }
        };
        let texts: Vec<_> = Script::ALL.into_iter().map(text).collect();
        Self { hashes: texts.iter().map(|_| OnceLock::new()).collect(), texts }
    }

    /// Loads every script into a server.
    pub(crate) async fn load(&self, connection: &mut MultiplexedConnection) -> Result<(), StoreError> {
        const DOING: &str = "loading the scripts";
        let mut loads = Pipeline::with_capacity(self.texts.len());
        for text in &self.texts {
            loads.cmd("SCRIPT").arg("LOAD").arg(text);
        }
        let answers = connection.send_packed_commands(&loads, 0, loads.len()).await;
        let answers = answers.map_err(|error| error::lost(error, DOING))?;
        for (known, answer) in self.hashes.iter().zip(answers) {
            match answer {
                Value::BulkString(hash) => {
                    known.get_or_init(|| String::from_utf8_lossy(&hash).into_owned());
                }
                other => return Err(error::unexpected(&other, DOING)),
            }
        }
        Ok(())
    }

    /// The same call with the script itself in place of its hash, for a server that forgot it. It then knows it again.
    pub(crate) fn with_text(&self, call: &Cmd) -> Option<Cmd> {
        let mut arguments = call.args_iter().skip(1).filter_map(|argument| match argument {
            Arg::Simple(bytes) => Some(bytes),
            _ => None,
        });
        let hash = arguments.next()?;
        let at =
            self.hashes.iter().position(|known| known.get().is_some_and(|known| known.as_bytes() == hash))?;
        let mut whole = cmd("EVAL");
        whole.arg(&self.texts[at]);
        for argument in arguments {
            whole.arg(argument);
        }
        Some(whole)
    }

    /// A call of `script` on `key`, to which its arguments are added.
    pub(crate) fn call(&self, script: Script, key: &[u8]) -> Cmd {
        self.call_on(script, &[key])
    }

    /// A call of `script` on keys of one server, and in a cluster of one slot.
    pub(crate) fn call_on(&self, script: Script, keys: &[impl AsRef<[u8]>]) -> Cmd {
        let mut call = cmd("EVALSHA");
        let hash = self.hashes.get(script as usize).and_then(OnceLock::get).map_or("", String::as_str);
        call.arg(hash).arg(keys.len());
        for key in keys {
            call.arg(key.as_ref());
        }
        call
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_is_in_its_place() {
        for (at, script) in Script::ALL.into_iter().enumerate() {
            assert_eq!(script as usize, at, "{script:?}");
        }
    }

    #[test]
    fn what_is_in_production_goes_by_the_servers_time_only() {
        let scripts = Scripts::new(Time::Server, Telling::Everywhere);
        for text in &scripts.texts {
            assert!(!text.contains("ARGV[#ARGV]"), "{text}");
            assert!(text.contains("redis.call('TIME')") || text.contains("the secret"), "{text}");
        }
    }
}
