//! Redis as the cache tier in front of a store that is the authority: it may lose anything at any time.
//!
//! Nothing is decided here and nothing is only here, so there is no epoch, no quarantine and no demand on the server's
//! settings: an eviction policy is welcome. What goes wrong is "nothing known", is counted, and is said once until it
//! is over; while the tier is away it is tried once a second and holds nobody else up.
//!
//! | key | what | expiry |
//! |---|---|---|
//! | `onlyonce:tier:` + 32 bytes of the id | a completed record, or the hint of one in flight, in core's format | what is left of it |
//! | the same | one zero byte: nothing may be put here | 10 s |

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::record::codec;
use onlyonce_core::store::StoreFuture;
use onlyonce_core::store::tier::{Keeps, Known, Look, Tier, VOID_FOR};
use onlyonce_core::{Clock, RecordId, StoreError, StoreErrorKind, SystemClock, Timestamp};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, ErrorKind, RedisResult, Script, ScriptInvocation};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::error;
use crate::options::Options;
use crate::target::Target;

/// How long forgetting for sure may take.
const VOID_WITHIN: Duration = Duration::from_secs(2);
/// How long a tier that failed is left alone.
const REST: Duration = Duration::from_secs(1);
/// How many answers may be on their way into the tier. More are not kept.
const PUTS_MAX: usize = 256;
/// The longest expiry a key is given, in milliseconds: the longest retention there is.
const LEFT_MAX: u64 = 10 * 366 * 86_400_000;
/// Larger answers are not worth their way.
const BYTES_MAX: usize = 1 << 20;

/// A cache tier on one Redis or Valkey server.
#[derive(Clone)]
pub struct RedisTier(Arc<Inner>);

struct Inner {
    connection: ConnectionManager,
    runtime: Handle,
    clock: SystemClock,
    prefix: Vec<u8>,
    look_within: Duration,
    scripts: Scripts,
    puts: Arc<Semaphore>,
    /// Until when the tier is left alone.
    resting_until: AtomicU64,
    is_away: AtomicBool,
    failures: AtomicU64,
    /// How far the server's clock is ahead of ours, in milliseconds.
    ahead: AtomicI64,
}

/// Nobody has asked the server for its time.
const UNKNOWN: i64 = i64::MAX;

struct Scripts {
    get: Script,
    put: Script,
    forget: Script,
    void: Script,
}

impl RedisTier {
    /// A tier at `url`, `redis://` or `rediss://`. A server that is away only warns.
    pub async fn connect(url: &str, options: &Options) -> Result<Self, StoreError> {
        let wrong = |why: &str| {
            StoreError::new(StoreErrorKind::Misuse, "opening the cache tier").because(why.to_owned())
        };
        options.check().map_err(|error| wrong(&error.to_string()))?;
        let Target::One(info) = Target::parse(url, options)? else {
            return Err(wrong("the cache tier is one server: redis:// or rediss://"));
        };
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(1)
            .set_connection_timeout(Some(REST))
            .set_response_timeout(Some(VOID_WITHIN.max(options.look_within)));
        let open = |error: redis::RedisError| error::lost(error, "opening the cache tier");
        let connection = ConnectionManager::new_lazy_with_config(Client::open(info).map_err(open)?, config)
            .map_err(open)?;
        let tier = Self(Arc::new(Inner {
            connection,
            runtime: Handle::current(),
            clock: SystemClock::new(),
            prefix: format!("{}:tier:", options.prefix).into_bytes(),
            look_within: options.look_within,
            scripts: Scripts::new(),
            puts: Arc::new(Semaphore::new(PUTS_MAX)),
            resting_until: AtomicU64::new(0),
            is_away: AtomicBool::new(false),
            failures: AtomicU64::new(0),
            ahead: AtomicI64::new(UNKNOWN),
        }));
        let mut connection = tier.0.connection.clone();
        let ping = redis::cmd("PING");
        let answer = timeout(REST, ping.query_async::<String>(&mut connection)).await;
        tier.0.judge(answer.map_err(|_| "it does not answer".to_owned()).and_then(said));
        Ok(tier)
    }

    /// How many times the server could not be asked or told.
    pub fn failures(&self) -> u64 {
        self.0.failures.load(Ordering::Relaxed)
    }

    /// Whether the server could not be reached the last time.
    pub fn is_away(&self) -> bool {
        self.0.is_away.load(Ordering::Relaxed)
    }
}

/// What a call came to: an answer, nothing that can be read, or no answer.
fn said<T>(result: RedisResult<T>) -> Result<Option<T>, String> {
    match result {
        Ok(answer) => Ok(Some(answer)),
        // The server is there; what it has under this key is not ours.
        Err(error)
            if error.code() == Some("WRONGTYPE") || error.kind() == ErrorKind::UnexpectedReturnType =>
        {
            tracing::warn!(%error, "the cache tier holds what cannot be read");
            Ok(None)
        }
        Err(error) => Err(error.to_string()),
    }
}

impl Scripts {
    fn new() -> Self {
        Self {
            get: Script::new(include_str!("../scripts/tier_get.lua")),
            put: Script::new(include_str!("../scripts/tier_put.lua")),
            forget: Script::new(include_str!("../scripts/tier_forget.lua")),
            void: Script::new(include_str!("../scripts/tier_void.lua")),
        }
    }
}

impl Inner {
    fn key(&self, id: &RecordId) -> Vec<u8> {
        [&self.prefix[..], id.as_bytes()].concat()
    }

    /// Whether the server is to be left alone. When its rest is over one caller finds out, and the others go on without.
    fn is_resting(&self) -> bool {
        let until = self.resting_until.load(Ordering::Relaxed);
        if until == 0 {
            return false;
        }
        let now = self.clock.now();
        let next = (now + REST).as_millis();
        now < Timestamp::from_millis(until)
            || self.resting_until.compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed).is_err()
    }

    /// Notes whether the server could be reached, and says so when that changes.
    fn judge<T>(&self, result: Result<T, String>) -> Option<T> {
        let away = result.is_err();
        let was_away = self.is_away.swap(away, Ordering::Relaxed);
        match result {
            Ok(value) => {
                self.resting_until.store(0, Ordering::Relaxed);
                if was_away {
                    tracing::info!("the cache tier is back");
                }
                Some(value)
            }
            Err(error) => {
                self.resting_until.store((self.clock.now() + REST).as_millis(), Ordering::Relaxed);
                self.failures.fetch_add(1, Ordering::Relaxed);
                if !was_away {
                    tracing::warn!(error, "the cache tier is away: the store is asked for everything");
                }
                None
            }
        }
    }

    async fn run<T: redis::FromRedisValue>(
        &self,
        call: &ScriptInvocation<'_>,
        within: Duration,
    ) -> Option<T> {
        let mut connection = self.connection.clone();
        let answer = timeout(within, call.invoke_async(&mut connection)).await;
        self.judge(answer.map_err(|_| "it does not answer in time".to_owned()).and_then(said))?
    }

    async fn look(&self, id: &RecordId) -> Option<Known> {
        let call = self.scripts.get.key(self.key(id));
        let (at, bytes, left): (u64, Option<Vec<u8>>, u64) = self.run(&call, self.look_within).await?;
        // Never ahead of the server's time, as its answer took a moment.
        let ahead = i128::from(at) - i128::from(self.clock.now().as_millis());
        self.ahead.store(i64::try_from(ahead).unwrap_or(UNKNOWN), Ordering::Relaxed);
        let bytes = bytes?;
        match codec::decode(id, &Bytes::from(bytes)) {
            Ok(record) => {
                let known = Known::new(Arc::new(record), Timestamp::default());
                Some(known.with_left(Duration::from_millis(left)))
            }
            Err(error) => {
                // The authority knows better; what cannot be read is replaced by its answer.
                tracing::warn!(id = id.short(), %error, "the cache tier holds what cannot be read");
                self.failures.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }

    /// Until when, on the server's clock, what is learnt now may be put.
    fn put_until(&self) -> Option<u64> {
        let ahead = self.ahead.load(Ordering::Relaxed);
        let now = self.clock.now() + VOID_FOR / 2;
        (ahead != UNKNOWN).then(|| now.as_millis().saturating_add_signed(ahead))
    }

    /// Tells the server on a task of its own, if not too many are being told.
    fn tell(self: &Arc<Self>, id: &RecordId, told: Told) {
        if self.is_resting() {
            return;
        }
        let Ok(permit) = Arc::clone(&self.puts).try_acquire_owned() else { return };
        let (inner, key) = (Arc::clone(self), self.key(id));
        self.runtime.spawn(async move {
            let _permit = permit;
            let call = match &told {
                Told::Put { bytes, left, is_hint, until } => {
                    let mut call = inner.scripts.put.key(key);
                    call.arg(&bytes[..]).arg(left).arg(u8::from(*is_hint)).arg(until);
                    call
                }
                Told::Forget => inner.scripts.forget.key(key),
            };
            let _: Option<i64> = inner.run(&call, inner.look_within).await;
        });
    }
}

/// What a server is told.
enum Told {
    Put {
        bytes: Vec<u8>,
        left: u64,
        is_hint: bool,
        /// Past this time of the server's it comes too late: an erasure in between would not be noticed.
        until: u64,
    },
    Forget,
}

impl Tier for RedisTier {
    fn get<'a>(&'a self, id: &'a RecordId) -> Look<'a> {
        if self.0.is_resting() { Look::Seen(None) } else { Look::Coming(Box::pin(self.0.look(id))) }
    }

    fn put(&self, id: &RecordId, known: Known) {
        let left = u64::try_from(known.left().as_millis()).unwrap_or(u64::MAX).min(LEFT_MAX);
        let Some(until) = self.0.put_until() else { return };
        if left > 0 && known.record().weight() <= BYTES_MAX {
            let bytes = codec::encode(id, known.record());
            self.0.tell(id, Told::Put { bytes, left, is_hint: known.is_hint(), until });
        }
    }

    fn forget(&self, id: &RecordId) {
        self.0.tell(id, Told::Forget);
    }

    fn void<'a>(&'a self, id: &'a RecordId) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut call = self.0.scripts.void.key(self.0.key(id));
            call.arg(VOID_FOR.as_secs());
            match self.0.run::<i64>(&call, VOID_WITHIN.max(self.0.look_within)).await {
                Some(_) => Ok(()),
                None => {
                    Err(StoreError::new(StoreErrorKind::Unavailable, "erasing a record from the cache tier")
                        .because("it may still be replayed from there: erase it again when the tier is back")
                        .with_unknown_outcome())
                }
            }
        })
    }

    fn keeps(&self) -> Keeps {
        Keeps::Everything
    }
}

impl fmt::Debug for RedisTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisTier").field("is_away", &self.is_away()).finish_non_exhaustive()
    }
}
