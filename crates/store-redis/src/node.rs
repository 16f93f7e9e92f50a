//! One server: its connections, kept alive and watched over by a task of its own.
//!
//! A server is looked at before the first command goes to it, after every reconnect and once a second. Callers never
//! connect: they take the connection that is there, or wait for one, and give a broken one back.

mod keeper;
mod place;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use onlyonce_core::{Clock as _, StoreError, StoreErrorKind, Timestamp};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ConnectionInfo, Pipeline, Value, cmd};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::asked::{Call, Situation};
use crate::epoch::{Answer, Question};
use crate::error;
use crate::facts::Facts;
use crate::shared::Shared;

pub(crate) use place::Place;

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
    /// The key that holds the server's mark.
    epoch_key: std::sync::Mutex<Vec<u8>>,
    link: watch::Sender<Link>,
    /// Wakes the keeper: something is wrong with the connection.
    suspected: Notify,
    /// Until when, on this process's clock, no new grant may be made; 0 for none.
    quarantined_until: AtomicU64,
    /// The server began to evict after we started.
    may_evict: AtomicBool,
    fence_ahead: AtomicU64,
}

/// Whether there is a connection, or why not.
#[derive(Default)]
struct Link {
    live: Option<Arc<Live>>,
    why: Option<(StoreErrorKind, Arc<str>)>,
    /// The server serves nothing any more: nobody waits for it.
    is_retired: bool,
}

/// Connections that work.
pub(crate) struct Live {
    connections: Vec<MultiplexedConnection>,
    next: AtomicUsize,
    /// Hears of changes. Apart from the others: a server may tell on it that a channel ended, without being asked.
    subscriber: MultiplexedConnection,
    pub(crate) facts: Facts,
    pub(crate) address: String,
}

impl Live {
    fn connection(&self) -> MultiplexedConnection {
        let next = self.next.fetch_add(1, Ordering::Relaxed) % self.connections.len();
        self.connections[next].clone()
    }
}

impl Node {
    /// Begins to connect to the server at `place`.
    pub(crate) fn new(shared: Arc<Shared>, place: Place, epoch_key: Vec<u8>) -> Self {
        let inner = Arc::new(Inner {
            place,
            epoch_key: std::sync::Mutex::new(epoch_key),
            link: watch::Sender::new(Link::default()),
            suspected: Notify::new(),
            quarantined_until: AtomicU64::new(0),
            may_evict: AtomicBool::new(false),
            fence_ahead: AtomicU64::new(0),
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
    pub(crate) fn situation(&self) -> Situation {
        let until = self.inner.quarantined_until.load(Ordering::Relaxed);
        let is_quarantined = until != 0 && self.inner.shared.clock.now() < Timestamp::from_millis(until);
        Situation {
            fence_ahead: self.inner.fence_ahead.load(Ordering::Relaxed),
            is_quarantined: is_quarantined
                || self.inner.may_evict.load(Ordering::Relaxed)
                || self.inner.shared.has_other_secret.load(Ordering::Relaxed),
        }
    }

    /// Keeps the server's mark under another key, when its slots have changed.
    pub(crate) fn set_epoch_key(&self, key: Vec<u8>) {
        *self.inner.epoch_key.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = key;
    }

    /// Sends away whoever waits for a connection: the server serves nothing any more.
    pub(crate) fn retire(&self) {
        self.inner.link.send_modify(|link| link.is_retired = true);
    }

    /// Whether another server has taken its place.
    pub(crate) fn is_retired(&self) -> bool {
        self.inner.link.borrow().is_retired
    }

    /// Gives the connection up: the server leads no longer.
    pub(crate) fn give_up(&self) {
        if let Some(live) = self.live() {
            self.inner.give_up(&live);
        }
    }

    /// Lets every later grant have a fence above `highest`.
    pub(crate) async fn raise_fences_above(&self, highest: u64) -> Result<(), StoreError> {
        const DOING: &str = "raising the fences";
        let question = Question { source: highest + 1, ..Question::default() };
        let call = question.call(&self.inner.shared.scripts, &self.inner.epoch_key())?;
        let value = match self.call(&call, DOING).await? {
            Value::ServerError(error) if error.code() == "NOSCRIPT" => {
                self.call_with_text(&call, DOING).await?
            }
            value => value,
        };
        let ahead = Answer::read(value)?.fence_ahead;
        self.inner.fence_ahead.fetch_max(ahead, Ordering::Relaxed);
        self.inner.shared.raise_fence_ahead(ahead);
        Ok(())
    }

    /// Sends one command and gives the server's answer, which may be an error of its own.
    pub(crate) async fn call(
        &self,
        call: impl Into<Call<'_>> + Send,
        doing: &'static str,
    ) -> Result<Value, StoreError> {
        let call = call.into();
        let live = self.connected(doing).await?;
        // ORDER: the connection first: it is handed out only after the server was looked at, so that a call that
        // waited for it knows of what was found.
        let command = call.packed(self.situation());
        let mut connection = live.connection();
        self.bounded(&live, doing, connection.send_packed_command(&command)).await
    }

    /// Sends calls together, in order, then `last`, and gives one answer for each.
    pub(crate) async fn call_all(
        &self,
        calls: &[Call<'_>],
        last: Option<&Cmd>,
        doing: &'static str,
    ) -> Result<Vec<Value>, StoreError> {
        let live = self.connected(doing).await?;
        let situation = self.situation();
        let mut all = Pipeline::with_capacity(calls.len() + 1);
        for call in calls {
            all.add_command(call.packed(situation).into_owned());
        }
        if let Some(last) = last {
            all.add_command(last.clone());
        }
        let mut connection = live.connection();
        self.bounded(&live, doing, connection.send_packed_commands(&all, 0, all.len())).await
    }

    /// Sends one command to a server that takes the slot over.
    pub(crate) async fn call_asking(&self, call: Call<'_>, doing: &'static str) -> Result<Value, StoreError> {
        let asking = cmd("ASKING");
        let answers = self.call_all(&[Call::Packed(&asking), call], None, doing).await?;
        Ok(answers.into_iter().nth(1).unwrap_or_default())
    }

    /// Sends one call with its script, after the server forgot it.
    pub(crate) async fn call_with_text(
        &self,
        call: impl Into<Call<'_>> + Send,
        doing: &'static str,
    ) -> Result<Value, StoreError> {
        let call = call.into();
        let live = self.connected(doing).await?;
        let whole = self.inner.shared.scripts.with_text(&call.packed(self.situation()));
        let whole = whole.ok_or_else(|| error::unreachable("the script was never loaded", doing))?;
        let mut connection = live.connection();
        self.bounded(&live, doing, connection.send_packed_command(&whole)).await
    }

    /// Hears of what is told on `channel` from when this returns. A lost subscription is made up for by looking.
    pub(crate) async fn subscribe(&self, channel: &[u8], is_wanted: bool) {
        let Some(live) = self.live() else { return };
        let mut command = cmd(match (self.inner.shared.telling, is_wanted) {
            (crate::scripts::Telling::Everywhere, true) => "SUBSCRIBE",
            (crate::scripts::Telling::Everywhere, false) => "UNSUBSCRIBE",
            (crate::scripts::Telling::Shard, true) => "SSUBSCRIBE",
            (crate::scripts::Telling::Shard, false) => "SUNSUBSCRIBE",
        });
        command.arg(channel);
        let mut subscriber = live.subscriber.clone();
        let _ = timeout(self.inner.shared.options.timeout, subscriber.send_packed_command(&command)).await;
    }

    /// The connection, or the next one there is within the time of a call.
    async fn connected(&self, doing: &'static str) -> Result<Arc<Live>, StoreError> {
        if let Some(live) = self.live() {
            return Ok(live);
        }
        let mut link = self.inner.link.subscribe();
        let within = self.inner.shared.options.timeout;
        let connected = timeout(within, link.wait_for(|link| link.live.is_some() || link.is_retired)).await;
        if let Ok(Ok(link)) = connected
            && let Some(live) = &link.live
        {
            return Ok(Arc::clone(live));
        }
        let why = self.inner.link.borrow().why.as_ref().map(|(_, why)| Arc::clone(why));
        Err(error::unreachable(why.as_deref().unwrap_or("there is no connection yet"), doing))
    }

    async fn bounded<T>(
        &self,
        live: &Arc<Live>,
        doing: &'static str,
        call: impl Future<Output = Result<T, redis::RedisError>>,
    ) -> Result<T, StoreError> {
        match timeout(self.inner.shared.options.timeout, call).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                self.inner.give_up(live);
                Err(error::lost(error, doing))
            }
            Err(_) => {
                self.inner.suspected.notify_one();
                Err(error::timed_out(doing))
            }
        }
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

    fn epoch_key(&self) -> Vec<u8> {
        self.epoch_key.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
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
