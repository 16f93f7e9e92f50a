//! What is measured: who keeps records, and where.

use clap::ValueEnum;

/// What is compared with each other: those that keep their records in the same place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Part {
    /// Over the same Redis.
    Redis,
    /// Over the same `PostgreSQL`, one of them with Redis in front.
    Postgres,
    /// Without a server, for comparison.
    Alone,
}

impl Part {
    pub(crate) const ALL: [Self; 3] = [Self::Redis, Self::Postgres, Self::Alone];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Redis => "Redis",
            Self::Postgres => "PostgreSQL",
            Self::Alone => "Without a server",
        }
    }

    /// Who is measured. In the order of the tables.
    pub(crate) const fn subjects(self) -> &'static [Subject] {
        match self {
            Self::Redis => &[
                Subject::SidecarRedis,
                Subject::LayerRedis,
                Subject::Idempotent,
                Subject::ExpressRedis,
                Subject::Fastapi,
            ],
            Self::Postgres => &[
                Subject::SidecarPostgres,
                Subject::SidecarTiered,
                Subject::LayerPostgres,
                Subject::ExpressPostgres,
            ],
            Self::Alone => &[Subject::SidecarMemory, Subject::SidecarFile],
        }
    }
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    SidecarRedis,
    LayerRedis,
    Idempotent,
    ExpressRedis,
    Fastapi,
    SidecarPostgres,
    SidecarTiered,
    LayerPostgres,
    ExpressPostgres,
    SidecarMemory,
    SidecarFile,
}

impl Subject {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::SidecarRedis => "onlyonce, redis:",
            Self::LayerRedis => "onlyonce layer, redis:",
            Self::Idempotent => "axum-idempotent",
            Self::ExpressRedis => "Express + ioredis",
            Self::Fastapi => "FastAPI + redis-py",
            Self::SidecarPostgres => "onlyonce, postgres:",
            Self::SidecarTiered => "onlyonce, postgres: behind redis:",
            Self::LayerPostgres => "onlyonce layer, postgres:",
            Self::ExpressPostgres => "Express + pg",
            Self::SidecarMemory => "onlyonce, memory:",
            Self::SidecarFile => "onlyonce, file:",
        }
    }

    pub(crate) const fn is_sidecar(self) -> bool {
        matches!(
            self,
            Self::SidecarRedis
                | Self::SidecarPostgres
                | Self::SidecarTiered
                | Self::SidecarMemory
                | Self::SidecarFile
        )
    }

    /// What it asks Redis, of the names in `INFO commandstats`. That counts what a script calls as well, which costs no
    /// round trip: those names are left out.
    pub(crate) const fn asks(self) -> &'static [&'static str] {
        match self {
            Self::SidecarRedis | Self::LayerRedis | Self::SidecarTiered => {
                &["evalsha", "eval", "script|load", "wait", "waitaof"]
            }
            Self::Idempotent => &["hget", "evalsha", "script|load"],
            Self::ExpressRedis | Self::Fastapi => &["get", "set", "setex", "del"],
            _ => &[],
        }
    }

    pub(crate) const fn uses_redis(self) -> bool {
        !self.asks().is_empty()
    }

    pub(crate) const fn uses_postgres(self) -> bool {
        matches!(
            self,
            Self::SidecarPostgres | Self::SidecarTiered | Self::LayerPostgres | Self::ExpressPostgres
        )
    }

    /// Whether it keeps the contract that the goals are about.
    pub(crate) const fn is_ours(self) -> bool {
        self.is_sidecar() || matches!(self, Self::LayerRedis | Self::LayerPostgres)
    }
}
