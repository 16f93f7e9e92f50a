//! Calls that are in no hurry: they ride along with a call that is. Both come to the server in one piece, and where it syncs
//! every write it syncs once for both; on its own such a call would keep everybody waiting for a sync more.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onlyonce_core::StoreError;
use redis::{Cmd, Pipeline, Value};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{Live, Node};

/// How long a call waits for one to ride with: long enough for several to be carried one after the other where few calls come.
/// Where nobody comes, nobody is kept waiting by it.
const WAITS_FOR: Duration = Duration::from_millis(25);

/// Those who wait for a ride, the first come first.
#[derive(Default)]
pub(super) struct Rides {
    /// Looked at by every call: nearly always there is nobody.
    count: AtomicUsize,
    waiting: Mutex<VecDeque<Arc<Rider>>>,
}

/// A call that waits: whoever takes it sends it.
struct Rider(Mutex<Option<(Cmd, oneshot::Sender<Value>)>>);

impl Rides {
    fn join(&self, rider: &Arc<Rider>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push_back(Arc::clone(rider));
        self.count.store(waiting.len(), Ordering::Relaxed);
    }

    /// One that has been sent is there no longer, nor is one that is sent on its own.
    fn leave(&self, rider: &Arc<Rider>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|other| !Arc::ptr_eq(other, rider));
        self.count.store(waiting.len(), Ordering::Relaxed);
    }

    /// Who rides along with a call that is sent now.
    pub(super) fn next(&self) -> Option<(Cmd, oneshot::Sender<Value>)> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // One that nobody waits for any more is not sent.
        let is_wanted = |(_, tell): &(Cmd, oneshot::Sender<Value>)| !tell.is_closed();
        let taken =
            std::iter::from_fn(|| waiting.pop_front()).find_map(|rider| rider.take().filter(is_wanted));
        self.count.store(waiting.len(), Ordering::Relaxed);
        taken
    }
}

impl Rider {
    fn take(&self) -> Option<(Cmd, oneshot::Sender<Value>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Node {
    /// Sends `call` along with another; soon on its own if there is none. Answers whether it rode. Nothing is answered if
    /// nobody knows whether the other call arrived; the server's own errors are left to the caller.
    pub(crate) async fn ride(
        &self,
        call: Cmd,
        doing: &'static str,
    ) -> Result<(Option<Value>, bool), StoreError> {
        let (tell, mut told) = oneshot::channel();
        let rider = Arc::new(Rider(Mutex::new(Some((call, tell)))));
        self.inner.rides.join(&rider);
        if let Ok(ridden) = timeout(WAITS_FOR, &mut told).await {
            return Ok((ridden.ok(), true));
        }
        let taken_back = rider.take();
        self.inner.rides.leave(&rider);
        match taken_back {
            Some((call, _)) => Ok((Some(self.call(&call, doing).await?), false)),
            // Whoever carries it is answered within the time of a call, or nobody polls it.
            None => {
                let ridden = timeout(self.inner.shared.options.timeout, told).await;
                Ok((ridden.ok().and_then(Result::ok), true))
            }
        }
    }

    /// Sends a call, and one that rides along.
    pub(super) async fn carry(
        &self,
        live: &Arc<Live>,
        call: Cmd,
        (rider, tell): (Cmd, oneshot::Sender<Value>),
        doing: &'static str,
    ) -> Result<Value, StoreError> {
        let mut both = Pipeline::with_capacity(2);
        both.add_command(call).add_command(rider);
        let mut connection = live.connection();
        let sent = connection.send_packed_commands(&both, 0, 2);
        let mut values = self.bounded(live, doing, sent).await?.into_iter();
        let value = values.next().unwrap_or_default();
        // Who waits no longer looks again later.
        let _ = tell.send(values.next().unwrap_or_default());
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rider(name: &str) -> (Arc<Rider>, oneshot::Receiver<Value>) {
        let (tell, told) = oneshot::channel();
        (Arc::new(Rider(Mutex::new(Some((redis::cmd(name), tell))))), told)
    }

    #[test]
    fn each_is_carried_once_and_in_turn_and_who_left_is_not() {
        let rides = Rides::default();
        assert!(rides.next().is_none());
        let (first, second, third) = (rider("FIRST"), rider("SECOND"), rider("THIRD"));
        for (rider, _) in [&first, &second, &third] {
            rides.join(rider);
        }
        let is_called = |taken: Option<(Cmd, oneshot::Sender<Value>)>, name: &str| {
            taken.is_some_and(|(call, _)| call.get_packed_command() == redis::cmd(name).get_packed_command())
        };
        assert!(is_called(rides.next(), "FIRST"));
        assert!(second.0.take().is_some(), "it waits no longer");
        assert!(is_called(rides.next(), "THIRD"));
        assert!(rides.next().is_none() && third.0.take().is_none(), "nobody is sent twice");
    }
}
