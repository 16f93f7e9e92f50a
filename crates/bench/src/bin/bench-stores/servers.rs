//! The servers that keep the records: private ones, started for one round and ended with it.

use std::path::Path;
use std::time::Duration;

use onlyonce_bench::commands::Commands;
use onlyonce_bench::{facts, machine};
use onlyonce_testkit::servers::{PostgresServer, RedisOptions, RedisServer};

use crate::Result;
use crate::arguments::{Appendfsync, Arguments, Product};
use crate::counts::Counts;
use crate::subject::{Part, Subject};

/// When Redis takes a snapshot as it is shipped. The tests' servers take none unless told to.
const SNAPSHOTS: &str = "3600 1 300 100 60 10000";
/// As `PostgreSQL` is shipped, but with room for everybody's connections and with its own count of statements.
const SETTINGS: [&str; 3] =
    ["shared_buffers=128MB", "max_connections=200", "shared_preload_libraries=pg_stat_statements"];
const COUNT: &str = "SELECT coalesce(sum(calls), 0), coalesce(sum(greatest(calls, rows)), 0) \
                     FROM pg_stat_statements WHERE query NOT LIKE '%pg_stat_statements%'";

/// What a part needs.
#[derive(Debug)]
pub(crate) struct Servers {
    redis: Option<RedisServer>,
    postgres: Option<PostgresServer>,
}

/// The processor time that each has used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spent {
    pub(crate) redis: Duration,
    pub(crate) postgres: Duration,
}

impl Spent {
    /// What was used since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            redis: self.redis.saturating_sub(before.redis),
            postgres: self.postgres.saturating_sub(before.postgres),
        }
    }
}

impl Servers {
    /// Starts what `part` needs.
    pub(crate) fn start(part: Part, arguments: &Arguments) -> Result<Self> {
        let redis = matches!(part, Part::Redis | Part::Postgres).then(|| redis(arguments)).transpose()?;
        let postgres = (part == Part::Postgres).then(|| PostgresServer::start(&SETTINGS)).transpose()?;
        let servers = Self { redis, postgres };
        if servers.postgres.is_some() {
            servers.ask_postgres("CREATE EXTENSION pg_stat_statements")?;
        }
        let folders = [
            servers.redis.as_ref().map(RedisServer::folder),
            servers.postgres.as_ref().map(PostgresServer::folder),
        ];
        for folder in folders.into_iter().flatten() {
            if !arguments.any_disk {
                machine::check_disk(folder)?;
            }
        }
        Ok(servers)
    }

    pub(crate) fn redis_url(&self) -> Result<String> {
        Ok(self.redis.as_ref().ok_or("there is no Redis")?.url())
    }

    pub(crate) fn postgres_url(&self) -> Result<String> {
        Ok(self.postgres.as_ref().ok_or("there is no PostgreSQL")?.url())
    }

    /// Whether fields of a hash can expire (Redis 7.4, Valkey 9), which axum-idempotent's store needs.
    pub(crate) fn expires_fields(&self) -> Result<bool> {
        let redis = self.redis.as_ref().ok_or("there is no Redis")?;
        Ok(redis.ask(&["COMMAND", "INFO", "HEXPIRE"])?.to_lowercase().contains("hexpire"))
    }

    /// The ids of their first processes.
    pub(crate) fn ids(&self) -> Vec<u32> {
        let redis = self.redis.as_ref().map(RedisServer::id);
        redis.into_iter().chain(self.postgres.as_ref().and_then(PostgresServer::id)).collect()
    }

    /// What they have used until now.
    pub(crate) fn spent(&self) -> Result<Spent> {
        let of = |id: Option<u32>| id.map_or(Ok(Duration::ZERO), machine::family_time);
        Ok(Spent {
            redis: of(self.redis.as_ref().map(RedisServer::id))?,
            postgres: of(self.postgres.as_ref().and_then(PostgresServer::id))?,
        })
    }

    /// What those that `subject` uses were asked until now.
    pub(crate) fn counts(&self, subject: Subject) -> Result<Counts> {
        let mut counts = Counts::default();
        if let Some(redis) = self.redis.as_ref().filter(|_| subject.uses_redis()) {
            counts.read_redis(&redis.ask(&["INFO", "commandstats"])?);
        }
        if subject.uses_postgres() {
            counts.read_postgres(&self.ask_postgres(COUNT)?)?;
        }
        Ok(counts)
    }

    /// What they are and how they keep what they are told.
    pub(crate) fn facts(&self) -> Result<Vec<String>> {
        let mut facts = Vec::new();
        if let Some(redis) = &self.redis {
            facts.push(facts::redis(redis)?);
        }
        if self.postgres.is_some() {
            facts.push(facts::postgres(&self.postgres_url()?)?);
        }
        Ok(facts)
    }

    /// Notes how they were started.
    pub(crate) fn note(&self, commands: &mut Commands) -> Result<()> {
        let redis = self.redis.as_ref().map(|redis| ("Redis", redis.id(), redis.folder()));
        let postgres = self.postgres.as_ref();
        let postgres = postgres.and_then(|server| Some(("PostgreSQL", server.id()?, server.folder())));
        for (name, id, folder) in redis.into_iter().chain(postgres) {
            commands.note(name, line(id, folder)?);
        }
        Ok(())
    }

    fn ask_postgres(&self, question: &str) -> Result<String> {
        facts::ask_postgres(&self.postgres_url()?, question)
    }
}

fn redis(arguments: &Arguments) -> Result<RedisServer> {
    let appendfsync = arguments.appendfsync.map(Appendfsync::word);
    let is_valkey = arguments.redis == Product::Valkey;
    let options = RedisOptions { appendfsync, is_valkey, ..RedisOptions::default() };
    // With its own title a process hides what it was started with.
    let options = options.with("set-proc-title", "no");
    let options = if appendfsync.is_none() { options.with("save", SNAPSHOTS) } else { options };
    Ok(RedisServer::start(options)?)
}

/// The command of a process, without the folders of this machine.
fn line(process: u32, folder: &Path) -> Result<String> {
    let mut words = machine::command_line(process)?;
    if let Some(program) = words.first_mut() {
        let name = Path::new(program.as_str()).file_name().map(|name| name.to_string_lossy().into_owned());
        *program = name.unwrap_or_default();
    }
    let quoted = |word: &String| if word.is_empty() { "''".to_owned() } else { word.clone() };
    let line = words.iter().map(quoted).collect::<Vec<_>>().join(" ");
    Ok(line.replace(&folder.display().to_string(), "$SERVER_DIR"))
}
