//! One server: its connections, kept alive and watched over by a task of its own.
//!
//! A server is looked at before the first command goes to it, after every reconnect and once a second. Callers never
//! connect: they take the connection that is there, or wait for one, and give a broken one back.

mod keeper;
mod live;
mod place;
mod ride;
mod send;
mod waiting;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onlyonce_core::{Clock as _, StoreError, Timestamp};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionInfo, Value};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::asked::{Call, Situation};
use crate::epoch::{Answer, Question};
use crate::error;
use crate::shared::Shared;

use live::Link;
pub(crate) use live::Live;
pub(crate) use place::Place;
use ride::Rides;
pub(crate) use send::{Sending, Sent};

/// A connection for one question.
pub(crate) async fn connect_once(
    info: &ConnectionInfo,
    within: Duration,
) -> Result<MultiplexedConnection, String> {
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(within));
    place::connect(info, config, within).await
}

/// A server. Dropping it closes its connections.
pub(crate) struct Node {
    inner: Arc<Inner>,
    keeper: AbortHandle,
}

struct Inner {
    shared: Arc<Shared>,
    place: Place,
    /// The keys that may hold the server's mark, the best first.
    epoch_keys: Mutex<Vec<Vec<u8>>>,
    /// Wakes the keeper: there are keys for the mark.
    placed: Notify,
    link: watch::Sender<Link>,
    /// Wakes the keeper: something is wrong with the connection.
    suspected: Notify,
    /// Until when, on this process's clock, no new grant may be made; 0 for none.
    quarantined_until: AtomicU64,
    /// The server began to evict after we started.
    may_evict: AtomicBool,
    /// INVARIANT: never goes down; else fences could.
    fence_ahead: AtomicU64,
    rides: Rides,
}

impl Node {
    /// Begins to connect to the server at `place`.
    pub(crate) fn new(shared: Arc<Shared>, place: Place, epoch_keys: Vec<Vec<u8>>) -> Self {
        let inner = Arc::new(Inner {
            place,
            epoch_keys: Mutex::new(epoch_keys),
            placed: Notify::new(),
            link: watch::Sender::new(Link::default()),
            suspected: Notify::new(),
            quarantined_until: AtomicU64::new(0),
            may_evict: AtomicBool::new(false),
            fence_ahead: AtomicU64::new(0),
            rides: Rides::default(),
            shared,
        });
        let keeper = inner.shared.runtime.spawn(keeper::keep(Arc::clone(&inner))).abort_handle();
        Self { inner, keeper }
    }

    /// Waits until the first attempt to connect has succeeded, or says why it failed.
    pub(crate) async fn started(&self) -> Result<(), StoreError> {
        let mut link = self.inner.link.subscribe();
        let tried = link.wait_for(|link| link.live.is_some() || link.why.is_some()).await;
        match tried.as_ref().map(|link| (&link.live, &link.why)) {
            Ok((Some(_), _)) => Ok(()),
            Ok((None, Some((kind, why)))) => {
                Err(StoreError::new(*kind, "opening the Redis store").because(why.to_string()))
            }
            _ => Err(error::unreachable("the store is closed", "opening the Redis store")),
        }
    }

    /// What the server said about itself, if there is a connection.
    pub(crate) fn live(&self) -> Option<Arc<Live>> {
        self.inner.link.borrow().live.clone()
    }

    /// What a claim must know about the server.
    fn situation(&self) -> Situation {
        Situation {
            fence_ahead: self.inner.fence_ahead.load(Ordering::Relaxed),
            is_quarantined: !self.inner.quarantine_left().is_zero()
                || self.inner.may_evict.load(Ordering::Relaxed)
                || self.inner.shared.has_other_secret.load(Ordering::Relaxed),
            is_touched: false,
        }
    }

    /// Keeps the server's mark under other keys, when its slots have changed.
    pub(crate) fn set_epoch_keys(&self, keys: Vec<Vec<u8>>) {
        *self.inner.epoch_keys.lock().unwrap_or_else(PoisonError::into_inner) = keys;
        self.inner.placed.notify_one();
    }

    /// Sends away whoever waits for a connection: the server serves nothing any more.
    pub(crate) fn retire(&self) {
        self.inner.link.send_modify(|link| link.is_retired = true);
    }

    /// Whether another server has taken its place.
    pub(crate) fn is_retired(&self) -> bool {
        self.inner.link.borrow().is_retired
    }

    /// Gives these connections up, unless they were replaced already: the server leads no longer.
    pub(crate) fn give_up(&self, refused: &Arc<Live>) {
        self.inner.give_up(refused);
    }

    /// Lets every later grant have a fence above `highest`.
    pub(crate) async fn raise_fences_above(&self, highest: u64) -> Result<(), StoreError> {
        let question = Question { source: highest + 1, ..Question::default() };
        let answer = self.ask_epoch(&question, "raising the fences").await?;
        self.inner.fence_ahead.fetch_max(answer.fence_ahead, Ordering::Relaxed);
        Ok(())
    }

    /// Lets the server remember the longest lease, before a claim uses it.
    pub(crate) async fn announce_lease(&self) {
        // Without a connection there is nothing to do: every new one begins with a look, which announces it.
        let Some(live) = self.live() else { return };
        let question = Question { lease: self.inner.shared.longest_lease(), ..Question::default() };
        if let Err(failure) = self.ask_epoch(&question, "announcing a lease").await {
            tracing::warn!(error = %failure, "the longest lease could not be announced to Redis");
            self.inner.give_up(&live);
        }
    }

    async fn ask_epoch(&self, question: &Question<'_>, doing: &'static str) -> Result<Answer, StoreError> {
        let mut refusal = None;
        for key in self.inner.epoch_keys() {
            let call = question.call(&self.inner.shared.scripts, &key)?;
            let mut sending = Sending::plainly(Call::Packed(&call));
            let mut value = self.send_one(sending, doing).await?;
            if error::is_forgotten(&value) {
                sending.forgotten = 1;
                value = self.send_one(sending, doing).await?;
            }
            if !error::is_elsewhere(&value) {
                return Answer::read(value);
            }
            self.inner.shared.slots_changed.notify_one();
            refusal = Some(value);
        }
        Err(error::unexpected(&refusal.unwrap_or_default(), doing))
    }

    async fn send_one(&self, sending: Sending<'_>, doing: &'static str) -> Result<Value, StoreError> {
        Ok(self.send(&[sending], None, doing).await?.values.pop().unwrap_or_default())
    }

    /// Hears of what is told on `channel` from when this returns. A lost subscription is made up for by looking.
    pub(crate) async fn subscribe(&self, channel: &[u8], is_wanted: bool) {
        let Some(live) = self.live().filter(|live| live.deaf.is_none()) else { return };
        let command = self.inner.shared.telling.subscription(channel, is_wanted);
        let mut subscriber = live.subscriber.clone();
        let _ = timeout(self.inner.shared.options.timeout, subscriber.send_packed_command(&command)).await;
    }
}

impl Inner {
    /// Takes a broken connection away from everyone, unless it was replaced already.
    fn give_up(&self, broken: &Arc<Live>) {
        self.link.send_if_modified(|link| {
            let is_current = link.live.as_ref().is_some_and(|live| Arc::ptr_eq(live, broken));
            if is_current {
                link.live = None;
            }
            is_current
        });
        self.suspected.notify_one();
    }

    /// No new grant for this long from now.
    fn quarantine(&self, left: Duration) {
        let until = if left.is_zero() { 0 } else { (self.shared.clock.now() + left).as_millis() };
        self.quarantined_until.store(until, Ordering::Relaxed);
    }

    /// For how long no new grant may be made.
    fn quarantine_left(&self) -> Duration {
        match self.quarantined_until.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            until => self.shared.clock.now().until(Timestamp::from_millis(until)),
        }
    }

    fn epoch_keys(&self) -> Vec<Vec<u8>> {
        self.epoch_keys.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.live().map(|live| live.address.clone());
        f.debug_struct("Node").field("address", &address).finish()
    }
}
