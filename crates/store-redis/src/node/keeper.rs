//! The task that connects to a server, looks at it, and notices when it is no longer the same.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use onlyonce_core::StoreError;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionInfo, PushInfo, PushKind, Value};
use tokio::time::{sleep, timeout};

use super::place::connect;
use super::{Inner, Live};
use crate::epoch::{Known, Look};
use crate::error;
use crate::facts::Facts;

/// How often a server is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Waits between attempts to connect grow from this to [`BACKOFF_MAX`].
const BACKOFF_MIN: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// Connects, watches, and connects again, until it is aborted.
pub(super) async fn keep(inner: Arc<Inner>) {
    let mut known = None;
    let mut backoff = BACKOFF_MIN;
    // Connecting is several round trips, each of which is bounded by itself.
    let patience = inner.shared.options.timeout * 4;
    loop {
        let dialled = timeout(patience, dial(&inner, &mut known)).await;
        match dialled.unwrap_or_else(|_| Err(error::timed_out("connecting to Redis"))) {
            Ok(live) => {
                backoff = BACKOFF_MIN;
                let live = Arc::new(live);
                inner.link.send_modify(|link| {
                    link.live = Some(Arc::clone(&live));
                    link.why = None;
                });
                watch_over(&inner, &live, &mut known).await;
                inner.give_up(&live);
            }
            Err(failure) => {
                let why = describe(&failure);
                tracing::warn!(error = %why, "no connection to Redis; it is tried again");
                inner.link.send_modify(|link| link.why = Some((failure.kind(), why.as_str().into())));
                tokio::select! {
                    () = sleep(backoff) => {}
                    () = inner.placed.notified() => {}
                }
                backoff = (backoff * 2).min(BACKOFF_MAX);
            }
        }
    }
}

/// The error and what caused it, in one line.
pub(super) fn describe(failure: &StoreError) -> String {
    match std::error::Error::source(failure) {
        Some(source) => format!("{failure}: {source}"),
        None => failure.to_string(),
    }
}

/// Returns when the connection must be replaced.
async fn watch_over(inner: &Inner, live: &Arc<Live>, known: &mut Option<Known>) {
    loop {
        tokio::select! {
            () = inner.suspected.notified() => {}
            () = sleep(LOOK_EVERY) => {}
        }
        let is_current = inner.link.borrow().live.as_ref().is_some_and(|current| Arc::ptr_eq(current, live));
        if !is_current {
            return;
        }
        let look = async {
            // Each of them: one that hangs must not be handed out.
            for connection in &live.connections[1..] {
                ping(&mut connection.clone()).await?;
            }
            ping(&mut live.subscriber.clone()).await?;
            let mut connection = live.connections[0].clone();
            look_at(inner, &mut connection, &live.address, known).await
        };
        let looked = timeout(inner.shared.options.timeout, look).await;
        if let Err(failure) = looked.unwrap_or_else(|_| Err(error::timed_out("checking Redis"))) {
            tracing::warn!(error = %describe(&failure), address = live.address, "the connection to Redis is given up");
            return;
        }
    }
}

pub(super) async fn ping(connection: &mut MultiplexedConnection) -> Result<(), StoreError> {
    match connection.send_packed_command(&redis::cmd("PING")).await {
        Ok(_) => Ok(()),
        Err(error) => Err(error::lost(error, "checking Redis")),
    }
}

async fn dial(inner: &Arc<Inner>, known: &mut Option<Known>) -> Result<Live, StoreError> {
    let Some(channel) = inner.epoch_keys().into_iter().next() else {
        return Err(error::unreachable("its slots are not known yet", "connecting to Redis"));
    };
    let info = inner.place.find(inner.shared.options.timeout).await?;
    let address = info.addr().to_string();
    let mut connections = Vec::with_capacity(inner.shared.options.connections);
    for _ in 0..inner.shared.options.connections {
        connections.push(open(inner, &info).await?);
    }
    let mut subscriber = open(inner, &info).await?;
    let deaf = why_deaf(inner, &mut subscriber, &channel).await?;
    if let Some(why) = &deaf {
        tracing::error!(address, "{why}");
    }
    // ORDER: the first connection is asked last. If it still answers, the server did not start again meanwhile, and
    // what is seen holds for all of them.
    inner.shared.scripts.load(&mut connections[0]).await?;
    let facts = look_at(inner, &mut connections[0], &address, known).await?;
    Ok(Live::new(connections, subscriber, info, facts, deaf))
}

/// Whether changes can be told and heard of; if not, what is missing. A server that takes over a slot may say so here
/// once, which is no lack of rights.
async fn why_deaf(
    inner: &Inner,
    subscriber: &mut MultiplexedConnection,
    channel: &[u8],
) -> Result<Option<String>, StoreError> {
    let telling = inner.shared.telling;
    let (begin, tell) = (telling.subscription(channel, true), telling.publication(channel));
    for (command, right) in [(begin, "hear"), (tell, "tell"), (telling.subscription(channel, false), "hear")]
    {
        match subscriber.send_packed_command(&command).await {
            Ok(Value::ServerError(refusal)) if refusal.code() == "NOPERM" => {
                return Ok(Some(missing_right(&inner.shared.options.prefix, right, &refusal)));
            }
            Ok(_) => {}
            Err(error) => return Err(error::lost(error, "subscribing to changes")),
        }
    }
    Ok(None)
}

fn missing_right(prefix: &str, right: &str, refusal: &redis::ServerError) -> String {
    format!(
        "the user of the Redis store may not {right} of changes ({}): grant the channels `&{prefix}:*` and \
         `+publish +subscribe +unsubscribe` (in a cluster `+spublish +ssubscribe +sunsubscribe`); until then waiters \
         are not woken and look for themselves",
        refusal.details().unwrap_or("NOPERM")
    )
}

pub(super) async fn open(
    inner: &Arc<Inner>,
    info: &ConnectionInfo,
) -> Result<MultiplexedConnection, StoreError> {
    // Weak: a connection must not keep alive what keeps the connection.
    let listener = Arc::downgrade(inner);
    let hear = move |push: PushInfo| -> Result<(), ()> {
        let inner = listener.upgrade().ok_or(())?;
        match (&push.kind, push.data.first()) {
            (PushKind::Message | PushKind::SMessage, Some(Value::BulkString(channel))) => {
                if let Some(id) = inner.shared.id_of(channel) {
                    inner.shared.watches.wake(&id);
                }
            }
            (PushKind::Disconnection, _) => inner.suspected.notify_one(),
            _ => {}
        }
        Ok(())
    };
    // Calls are bounded by whoever makes them.
    let config = AsyncConnectionConfig::new().set_push_sender(hear).set_response_timeout(None);
    let connected = connect(info, config, inner.shared.options.timeout).await;
    connected.map_err(|why| error::unreachable(&format!("{}: {why}", info.addr()), "connecting to Redis"))
}

/// Looks at the server, refuses it if records must not be kept there, and notes what changed since it was known.
async fn look_at(
    inner: &Inner,
    connection: &mut MultiplexedConnection,
    address: &str,
    known: &mut Option<Known>,
) -> Result<Facts, StoreError> {
    let shared = &inner.shared;
    let facts = Facts::read(connection).await?;
    if known.is_some() && facts.may_evict() && !shared.options.allow_eviction {
        // Not refused: what is granted must be completed. But nothing new is granted.
        if !inner.may_evict.swap(true, Ordering::Relaxed) {
            tracing::error!(
                address,
                policy = facts.eviction,
                "Redis may evict records now: no new grant until maxmemory-policy is noeviction"
            );
        }
        let lenient = crate::options::Options { allow_eviction: true, ..shared.options.clone() };
        facts.check(&lenient)?;
    } else {
        inner.may_evict.store(false, Ordering::Relaxed);
        facts.check(&shared.options)?;
    }
    let look = Look {
        scripts: &shared.scripts,
        keys: inner.epoch_keys(),
        address,
        quarantine: shared.options.quarantine,
        left: inner.quarantine_left(),
        fence_ahead: inner.fence_ahead.load(Ordering::Relaxed),
        source: shared.fence_source(),
        lease: shared.longest_lease(),
        led: &shared.led(),
    };
    let seen = look.at(connection, &facts, known.as_ref()).await?;
    // ORDER: whoever hears of a loss finds the quarantine in force.
    inner.quarantine(seen.quarantine);
    inner.fence_ahead.fetch_max(seen.fence_ahead, Ordering::Relaxed);
    shared.raise_fence_source(seen.known.source);
    shared.see_lease(seen.lease);
    shared.remember_led(&facts.replid);
    if seen.has_moved {
        shared.slots_changed.notify_one();
    }
    if let Some(loss) = seen.loss {
        shared.counts.add(Some(loss));
        tracing::error!(
            address,
            quarantine = ?seen.quarantine,
            "Redis may have lost records: {}; no new grant until every lease from before has ended",
            loss.text()
        );
    } else if seen.is_new_run {
        shared.counts.add(None);
        tracing::warn!(address, "Redis started again; it had synced all that it answered");
    }
    *known = Some(seen.known);
    Ok(facts)
}
