//! Waiting for a change: told by this process at once, by other processes through the server, and never for long
//! without looking again.
//!
//! A `NOTIFY` makes commits wait for each other, so a change is told only when someone registered as waiting for that
//! record. A waiter that registers while the change is being committed is not told of it; it looks again by itself.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use onlyonce_core::store::Watch;
use onlyonce_core::{Clock, RecordId, SystemClock};
use tokio::sync::mpsc;
use tokio_postgres::types::Type;

use crate::arrays::argument;
use crate::column;
use crate::connect::Argument;
use crate::shared::Shared;

/// How long a waiter sleeps at most while it would be told.
const LOOK_AGAIN_TOLD: Duration = Duration::from_secs(1);
/// How long a waiter sleeps at most while it would not: behind a pooler, or while the ear is deaf.
const LOOK_AGAIN_UNTOLD: Duration = Duration::from_millis(100);
/// How long registering may hold a waiter up: as long as it would sleep if it were not told.
pub(crate) const REGISTER_WITHIN: Duration = LOOK_AGAIN_UNTOLD;
/// How long a registration lasts.
const REGISTERED_FOR: Duration = Duration::from_mins(1);
/// How long the ear waits before it connects again, at first and at most.
const AGAIN_AFTER: Duration = Duration::from_millis(100);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(5);
const NOTIFICATIONS_MAX: usize = 4096;

/// A watch that was set before anything else is asked.
pub(crate) fn watch(shared: &Shared, id: &RecordId) -> Watch {
    let told = shared.watches.watch(id);
    let patience = if shared.listening.load(Ordering::Relaxed) { LOOK_AGAIN_TOLD } else { LOOK_AGAIN_UNTOLD };
    Watch::new(async move {
        tokio::select! {
            () = told => {}
            () = SystemClock::new().sleep(patience) => {}
        }
    })
}

/// Listens to what other processes change, for as long as the store is open.
pub(crate) async fn listen(shared: Arc<Shared>) {
    let mut pause = AGAIN_AFTER;
    loop {
        let heard_something = listen_once(&shared).await;
        shared.listening.store(false, Ordering::Relaxed);
        pause = if heard_something { AGAIN_AFTER } else { (pause * 2).min(AGAIN_AFTER_MAX) };
        SystemClock::new().sleep(pause).await;
    }
}

/// Until the connection breaks; whether it had been there at all.
async fn listen_once(shared: &Shared) -> bool {
    let (heard, mut hear) = mpsc::channel::<String>(NOTIFICATIONS_MAX);
    let Ok(mut connection) = shared.connector().connect_unchecked(Some(heard)).await else { return false };
    let listen = format!("LISTEN \"onlyonce.{}\"", shared.schema());
    if connection.client().batch_execute(&listen).await.is_err() {
        return false;
    }
    shared.listening.store(true, Ordering::Relaxed);
    loop {
        tokio::select! {
            () = connection.ended() => return true,
            payload = hear.recv() => match payload.as_deref().map(str::parse::<RecordId>) {
                Some(Ok(id)) => shared.watches.wake(&id),
                // Not one of ours.
                Some(Err(_)) => {}
                None => return true,
            },
        }
    }
}

/// The arguments of `wait_for`.
pub(crate) fn registration(id: &RecordId) -> Vec<Argument> {
    vec![
        argument(vec![id.as_bytes().to_vec()], Type::BYTEA_ARRAY),
        argument(column::millis(REGISTERED_FOR), Type::INT8),
    ]
}
