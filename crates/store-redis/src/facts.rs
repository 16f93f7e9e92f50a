//! What a server says about itself: its version, its role, what it keeps, and who it is.

use onlyonce_core::{StoreError, StoreErrorKind};
use redis::aio::MultiplexedConnection;
use redis::{Value, cmd};

use crate::error;
use crate::options::{Acknowledgement, Options};

/// What one server says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// What it calls itself.
    pub(crate) name: String,
    /// The version of Redis that it speaks as.
    pub(crate) version: String,
    pub(crate) is_master: bool,
    pub(crate) is_loading: bool,
    /// Changes with every start of the server.
    pub(crate) run_id: String,
    /// Changes when the server begins to lead: `replid2` is then the one it followed.
    pub(crate) replid: String,
    pub(crate) replid2: String,
    pub(crate) eviction: String,
    pub(crate) persistence: Persistence,
}

/// What a server keeps of what it answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Persistence {
    /// Nothing, or snapshots now and then.
    #[default]
    None,
    /// Every command, on disk some time later; or the server does not say when.
    Later,
    /// Every command, on disk before it is answered.
    Always,
}

const DOING: &str = "asking Redis about itself";

impl Facts {
    pub(crate) async fn read(connection: &mut MultiplexedConnection) -> Result<Self, StoreError> {
        let info = match connection.send_packed_command(&cmd("INFO")).await {
            Ok(Value::BulkString(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
            Ok(Value::VerbatimString { text, .. }) => text,
            Ok(other) => return Err(error::unexpected(&other, DOING)),
            Err(error) => return Err(error::lost(error, DOING)),
        };
        let field = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.unwrap_or_default().trim().to_owned()
        };
        let keeps_commands = field("aof_enabled") == "1";
        let is_synced = keeps_commands && is_synced_first(connection).await;
        Ok(Self {
            name: match field("valkey_version").as_str() {
                "" => format!("Redis {}", field("redis_version")),
                version => format!("Valkey {version}"),
            },
            version: field("redis_version"),
            is_master: field("role") == "master",
            is_loading: field("loading") == "1" || field("async_loading") == "1",
            run_id: field("run_id"),
            replid: field("master_replid"),
            replid2: field("master_replid2"),
            eviction: field("maxmemory_policy"),
            persistence: match (keeps_commands, is_synced) {
                (false, _) => Persistence::None,
                (true, false) => Persistence::Later,
                (true, true) => Persistence::Always,
            },
        })
    }

    /// Refuses a server that records must not be kept on.
    pub(crate) fn check(&self, options: &Options) -> Result<(), StoreError> {
        let refuse =
            |why: String| Err(StoreError::new(StoreErrorKind::Unavailable, "starting on Redis").because(why));
        let version = self.version_number();
        if version < (7, 0) {
            return refuse(format!("it is version {}; 7.0 or later is needed", self.version));
        }
        if self.is_loading {
            return refuse("it is still loading what it kept".to_owned());
        }
        if !self.is_master {
            return refuse(
                "it is a replica: name the master, or use redis-sentinel:// or redis-cluster://".to_owned(),
            );
        }
        if self.may_evict() && !options.allow_eviction {
            return refuse(format!(
                "maxmemory-policy is {}, so that it may drop records and their work would run again: \
                 CONFIG SET maxmemory-policy noeviction, or set allow_eviction",
                self.eviction
            ));
        }
        Ok(())
    }

    /// Refuses, and says why, what the server cannot acknowledge.
    pub(crate) fn check_acknowledgement(&self, wanted: Acknowledgement) -> Result<(), String> {
        let Acknowledgement::Disks { master, .. } = wanted else { return Ok(()) };
        if self.version_number() < (7, 2) {
            return Err(format!("it is version {}; WAITAOF needs 7.2 or later", self.version));
        }
        if master && self.persistence == Persistence::None {
            return Err("it keeps nothing on disk (appendonly no), so it cannot acknowledge that (WAITAOF)"
                .to_owned());
        }
        Ok(())
    }

    /// Whether records may be dropped to make room. A server that does not say may.
    pub(crate) fn may_evict(&self) -> bool {
        self.eviction != "noeviction"
    }

    fn version_number(&self) -> (u32, u32) {
        let mut parts = self.version.split('.').map(|part| part.parse().unwrap_or_default());
        (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
    }
}

/// Whether commands are on disk before they are answered, always. A server that hides its configuration is believed
/// the least.
async fn is_synced_first(connection: &mut MultiplexedConnection) -> bool {
    // The second one lets a rewrite of the file suspend the first.
    const WANTED: [(&str, &str); 2] = [("appendfsync", "always"), ("no-appendfsync-on-rewrite", "no")];
    let mut ask = cmd("CONFIG");
    ask.arg("GET").arg(WANTED[0].0).arg(WANTED[1].0);
    let Ok(Value::Map(pairs)) = connection.send_packed_command(&ask).await else { return false };
    let text = |value: &Value| match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    };
    let is_set = |(name, value): &(&str, &str)| {
        pairs.iter().any(|(known, found)| text(known) == *name && text(found) == *value)
    };
    WANTED.iter().all(is_set)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts {
            version: "7.0.15".to_owned(),
            is_master: true,
            eviction: "noeviction".to_owned(),
            ..Facts::default()
        }
    }

    #[test]
    fn a_server_that_may_lose_records_is_refused_and_told_what_to_do() {
        let options = Options::default();
        assert!(facts().check(&options).is_ok());
        let evicting = Facts { eviction: "allkeys-lru".to_owned(), ..facts() };
        let text = format!("{:?}", evicting.check(&options));
        assert!(text.contains("CONFIG SET maxmemory-policy noeviction"), "{text}");
        assert!(evicting.check(&Options { allow_eviction: true, ..Options::default() }).is_ok());
        for wrong in [
            Facts { version: "6.2.14".to_owned(), ..facts() },
            Facts { version: String::new(), ..facts() },
            Facts { is_master: false, ..facts() },
            Facts { is_loading: true, ..facts() },
            Facts { eviction: String::new(), ..facts() },
        ] {
            assert!(wrong.check(&options).is_err(), "{wrong:?}");
        }
        let within = std::time::Duration::from_millis(100);
        let on_disk = Acknowledgement::Disks { master: true, replicas: 0, within };
        let synced = Facts { persistence: Persistence::Later, ..facts() };
        let able = Facts { version: "7.2.0".to_owned(), ..synced.clone() };
        assert!(able.check_acknowledgement(on_disk).is_ok());
        assert!(synced.check_acknowledgement(on_disk).is_err(), "too old");
        let forgetful = Facts { persistence: Persistence::None, ..able };
        assert!(forgetful.check_acknowledgement(on_disk).is_err(), "it has no file");
        assert!(facts().check_acknowledgement(Acknowledgement::Replicas { count: 1, within }).is_ok());
    }
}
