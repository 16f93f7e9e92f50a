//! What all parts of one store share.

#[cfg(feature = "testkit")]
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

#[cfg(feature = "testkit")]
use onlyonce_core::Clock;
use onlyonce_core::store::Watches;
use onlyonce_core::{RecordId, SystemClock, Timestamp};
use redis::{Cmd, Value};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::epoch::Counts;
use crate::options::Options;
use crate::scripts::{Script, Scripts, Telling};

/// How many replication ids of earlier masters are remembered.
const LED_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) scripts: Scripts,
    pub(crate) telling: Telling,
    pub(crate) watches: Watches,
    pub(crate) counts: Counts,
    /// This process's own time, for waits; records go by the server's.
    pub(crate) clock: SystemClock,
    /// Where connections live, whoever calls.
    pub(crate) runtime: Handle,
    /// The time that the scripts go by, when a test moves it.
    #[cfg(feature = "testkit")]
    test_clock: Option<Arc<dyn Clock>>,
    /// The longest lease that any process is known to have used.
    longest_lease_ms: AtomicU64,
    /// The longest lease that every server knows of, or outlasts in any case.
    announced_lease_ms: AtomicU64,
    /// The highest that fences of any server could have been, and of records that were taken in.
    fence_source: AtomicU64,
    /// Wakes whoever reads a cluster's slots.
    pub(crate) slots_changed: Notify,
    led: Mutex<Vec<String>>,
    /// Whether the servers have another secret than this process goes by: then no grant of ours means anything.
    pub(crate) has_other_secret: AtomicBool,
}

impl Shared {
    pub(crate) fn new(options: Options, scripts: Scripts, telling: Telling, runtime: Handle) -> Self {
        Self {
            scripts,
            telling,
            runtime,
            watches: Watches::default(),
            counts: Counts::default(),
            clock: SystemClock::new(),
            #[cfg(feature = "testkit")]
            test_clock: None,
            longest_lease_ms: AtomicU64::new(0),
            announced_lease_ms: AtomicU64::new(millis_of(options.quarantine)),
            fence_source: AtomicU64::new(0),
            slots_changed: Notify::new(),
            led: Mutex::default(),
            has_other_secret: AtomicBool::new(false),
            options,
        }
    }

    /// The same, but scripts go by `clock`.
    #[cfg(feature = "testkit")]
    pub(crate) fn on(mut self, clock: Arc<dyn Clock>) -> Self {
        self.test_clock = Some(clock);
        self
    }

    /// The key of a record, and the channel of its changes.
    pub(crate) fn key_of(&self, id: &RecordId) -> Vec<u8> {
        [self.options.prefix.as_bytes(), b":r:", id.as_bytes()].concat()
    }

    /// The record whose key this is.
    pub(crate) fn id_of(&self, key: &[u8]) -> Option<RecordId> {
        let id = key.strip_prefix(self.options.prefix.as_bytes())?.strip_prefix(b":r:")?;
        Some(RecordId::from_bytes(id.try_into().ok()?))
    }

    /// The key of what is kept once: the secret, the epoch, the sweeper's turn.
    pub(crate) fn key_named(&self, name: &str) -> Vec<u8> {
        format!("{}:{name}", self.options.prefix).into_bytes()
    }

    /// A call of a script about a record: `arguments` adds its arguments, and the time comes last where a test sends it.
    pub(crate) fn call(&self, script: Script, key: &[u8], arguments: impl FnOnce(&mut Cmd)) -> Cmd {
        self.call_on(script, &[key], arguments)
    }

    /// The same on several keys, where the script takes them.
    pub(crate) fn call_on(
        &self,
        script: Script,
        keys: &[impl AsRef<[u8]>],
        arguments: impl FnOnce(&mut Cmd),
    ) -> Cmd {
        let mut call = self.scripts.call_on(script, keys);
        arguments(&mut call);
        #[cfg(feature = "testkit")]
        if let Some(clock) = &self.test_clock {
            call.arg(clock.now().as_millis());
        }
        call
    }

    /// The moment that scripts go by, where a server answered TIME with this.
    #[cfg_attr(
        not(feature = "testkit"),
        expect(clippy::unused_self, reason = "a test has a clock of its own")
    )]
    pub(crate) fn moment(&self, time: &Value) -> Option<Timestamp> {
        #[cfg(feature = "testkit")]
        if let Some(clock) = &self.test_clock {
            return Some(clock.now());
        }
        let Value::Array(parts) = time else { return None };
        let part = |at: usize| match parts.get(at)? {
            Value::BulkString(digits) => std::str::from_utf8(digits).ok()?.parse::<u64>().ok(),
            _ => None,
        };
        Some(Timestamp::from_millis(part(0)? * 1000 + part(1)? / 1000))
    }

    /// Whether servers may not know yet that leases can be this long.
    pub(crate) fn is_unannounced(&self, lease: Duration) -> bool {
        millis_of(lease) > self.announced_lease_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn see_lease(&self, lease: Duration) {
        self.longest_lease_ms.fetch_max(millis_of(lease), Ordering::Relaxed);
    }

    /// Every server knows by now, or will before it serves.
    pub(crate) fn set_announced(&self, lease: Duration) {
        self.announced_lease_ms.fetch_max(millis_of(lease), Ordering::Relaxed);
    }

    pub(crate) fn longest_lease(&self) -> Duration {
        Duration::from_millis(self.longest_lease_ms.load(Ordering::Relaxed))
    }

    pub(crate) fn fence_source(&self) -> u64 {
        self.fence_source.load(Ordering::Relaxed)
    }

    pub(crate) fn raise_fence_source(&self, source: u64) {
        self.fence_source.fetch_max(source, Ordering::Relaxed);
    }

    pub(crate) fn led(&self) -> Vec<String> {
        self.led.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn remember_led(&self, replid: &str) {
        let mut led = self.led.lock().unwrap_or_else(PoisonError::into_inner);
        if !led.iter().any(|known| known == replid) {
            if led.len() == LED_MAX {
                led.remove(0);
            }
            led.push(replid.to_owned());
        }
    }
}

fn millis_of(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
