//! What can be chosen about a Redis store.

use std::path::PathBuf;
use std::time::Duration;

use onlyonce_core::{Lease, MisuseError};

/// How a Redis store is to behave. Start from the default and change what differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// What every key begins with. Default `onlyonce`. Letters, digits and `_.-`, so that stores can share a server.
    pub prefix: String,
    /// How long one call may take, connecting included. Default 2 s: a server that answers slower is in trouble.
    pub timeout: Duration,
    /// How many connections each server gets. Default 2: commands share them, and Redis syncs once for what it has
    /// read from all of them.
    pub connections: usize,
    /// Start although the server may evict records, which runs their work again. Default `false`.
    pub allow_eviction: bool,
    /// What a grant and an outcome wait for before they count. Default: what the server does by itself. A wait blocks its
    /// connection, so those that wait have connections of their own, again as many as `connections`: raise that
    /// with it. Other routes can have another one: [`RedisStore::acknowledged`](crate::RedisStore::acknowledged).
    pub acknowledgement: Acknowledgement,
    /// For how long no new grant is made after records may have been lost; the longest lease that any process ever used
    /// if that is longer. Default 30 s, the default lease. A lease above this costs the first claim that uses it one
    /// more round trip, so that every server knows of it.
    pub quarantine: Duration,
    /// After how long a waiter looks for itself, should its wake-up be lost. Default 1 s.
    pub wake_within: Duration,
    /// The shortest time between two passes of the sweeper over all records, of all processes together. Default 1 min;
    /// passes that take long are made rarer: a pause of four times as long follows. Zero: at once.
    pub sweep_every: Duration,
    /// As a cache tier: how long a look may take, past which asking the authority is faster. Default 100 ms.
    pub look_within: Duration,
    /// The certificates for `rediss://` and `?tls=true`.
    pub tls: TlsFiles,
}

/// What a grant and an outcome wait for, beyond the server's own answer. A replay waits as well: it tells of an outcome
/// that may have been written a moment ago. The wait travels with the command, in the same round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Acknowledgement {
    /// Nothing more. The default.
    #[default]
    None,
    /// `WAIT`: this many replicas have it in memory. It makes a loss at fail-over rarer; it does not rule it out.
    Replicas {
        /// How many.
        count: u8,
        /// For how long to wait before the command counts as failed.
        within: Duration,
    },
    /// `WAITAOF` (Redis 7.2, Valkey): it is on the disks of the master and of replicas.
    Disks {
        /// Whether the master is one of them.
        master: bool,
        /// How many replicas are.
        replicas: u8,
        /// For how long to wait before the command counts as failed.
        within: Duration,
    },
}

/// Files in PEM format for TLS.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsFiles {
    /// Whom to trust, in place of the machine's own list.
    pub authority: Option<PathBuf>,
    /// The certificate to show, and its key, where the server asks for one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            prefix: "onlyonce".to_owned(),
            timeout: Duration::from_secs(2),
            connections: 2,
            allow_eviction: false,
            acknowledgement: Acknowledgement::None,
            quarantine: Lease::DEFAULT.get(),
            wake_within: Duration::from_secs(1),
            sweep_every: Duration::from_mins(1),
            look_within: Duration::from_millis(100),
            tls: TlsFiles::default(),
        }
    }
}

impl Options {
    /// Refuses what cannot work.
    pub(crate) fn check(&self) -> Result<(), MisuseError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        if self.prefix.is_empty() || self.prefix.len() > 64 || !self.prefix.bytes().all(plain) {
            return Err(MisuseError::new("prefix is not 1 to 64 letters, digits, `_`, `.` or `-`"));
        }
        if !(Duration::from_millis(10)..=Duration::from_mins(1)).contains(&self.timeout) {
            return Err(MisuseError::new("timeout is not between 10 ms and 1 min"));
        }
        if !(1..=64).contains(&self.connections) {
            return Err(MisuseError::new("connections is not between 1 and 64"));
        }
        if self.quarantine > Duration::from_hours(1) {
            return Err(MisuseError::new("quarantine is longer than 1 h, the longest lease"));
        }
        if !(Duration::from_millis(10)..=Duration::from_mins(1)).contains(&self.wake_within) {
            return Err(MisuseError::new("wake_within is not between 10 ms and 1 min"));
        }
        self.acknowledgement.check(self.timeout)
    }
}

impl Acknowledgement {
    /// Refuses what cannot work when a call may take `timeout`.
    pub(crate) fn check(self, timeout: Duration) -> Result<(), MisuseError> {
        match self {
            Self::Replicas { count: 0, .. } | Self::Disks { master: false, replicas: 0, .. } => {
                Err(MisuseError::new("an acknowledgement by nobody is none: leave it out"))
            }
            Self::Replicas { within, .. } | Self::Disks { within, .. }
                if within < Duration::from_millis(1) || within >= timeout =>
            {
                Err(MisuseError::new("an acknowledgement must come within 1 ms to the timeout of a call"))
            }
            _ => Ok(()),
        }
    }
}
