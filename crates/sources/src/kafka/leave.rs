//! Leaves the group, and does not wait for ever.
//!
//! A client that is closed lets its group end, and then hears of the rebalances that are still on their way. To answer one it
//! asks the group, and a group that has ended throws the question away and leaves whoever asked waiting (librdkafka's issues
//! 4041 and 4884). So all that is on its way is heard before; an assignment that comes in between is not answered, as nobody
//! waits for that; and should a revocation come just then, leaving is not waited for beyond its time.

use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use onlyonce_inbox::SourceError;
use rdkafka::consumer::{Consumer as _, StreamConsumer};
use tokio::sync::oneshot;

use super::context::Watch;
use super::failure::unavailable;

const DOING: &str = "leaving the group";

/// A member of the group. It leaves when the last who uses it lets go, which blocks while the broker is told.
pub(super) struct Member(pub(super) StreamConsumer<Watch>);

impl Deref for Member {
    type Target = StreamConsumer<Watch>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.context().leave();
        hear(self);
    }
}

/// Lets go, and waits for so long at the most until the group is left.
pub(super) async fn leave(member: Arc<Member>, within: Duration) -> Result<(), SourceError> {
    let (left, leaving) = oneshot::channel();
    let let_go = move || {
        drop(member);
        // Nobody listens who has waited for long enough.
        let _ = left.send(());
    };
    // A thread of its own: a runtime that ends waits for those that it has.
    let leaver = thread::Builder::new().name("onlyonce-leave".to_owned());
    leaver.spawn(let_go).map_err(|error| unavailable(DOING, error))?;
    let left = tokio::time::timeout(within, leaving).await;
    left.map_err(|_| unavailable(DOING, "no answer in time"))?.map_err(|error| unavailable(DOING, error))
}

/// Hears everything that the client has to tell. Records among it are not delivered, and so never committed.
fn hear(member: &Member) {
    let again = Arc::new(Again::default());
    let waker = Waker::from(Arc::clone(&again));
    let mut context = Context::from_waker(&waker);
    // After a rebalance it is as pending as with nothing to tell, but asks to be polled again.
    while pin!(member.recv()).poll(&mut context).is_ready() || again.0.swap(false, Ordering::Relaxed) {}
}

/// Whether the client asked to be polled again.
#[derive(Default)]
struct Again(AtomicBool);

impl Wake for Again {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use krafka::testing::{ApiKey, FakeBroker};
    use onlyonce_inbox::Horizon;
    use rdkafka::ClientConfig;

    use super::super::{Settings, Topics};
    use super::*;
    use crate::pumped::Broker as _;

    const ROUNDS: usize = 10;
    /// On the most loaded machine.
    const PATIENCE: Duration = Duration::from_mins(1);

    /// A member of the group whom nobody polls.
    async fn member(broker: &FakeBroker) -> Topics {
        let settings = Settings {
            topics: vec!["orders".to_owned()],
            group: "workers".to_owned(),
            dead_letter: "orders.dead-letter".to_owned(),
            horizon: Horizon::Unbounded,
            timeout: PATIENCE,
            fetch_bytes_max: 1 << 20,
        };
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", broker.bootstrap_servers());
        let connecting =
            tokio::task::spawn_blocking(move || Topics::connect(settings, &config, "earliest", 45));
        let topics = connecting.await.expect("connected").expect("topics");
        topics.subscribe().expect("subscribed");
        topics
    }

    /// Members leave whom the broker was asked `last` and who have not heard of their partitions. It does not hear of it from
    /// them: it does not know the versions in which librdkafka says so.
    async fn leaves_after(last: ApiKey) {
        let broker = FakeBroker::start().await.expect("a broker");
        assert!(broker.create_topic("orders", 2));
        for round in 1..=ROUNDS {
            let topics = member(&broker).await;
            assert!(broker.wait_for_requests(last, round, PATIENCE).await, "it joins");
            topics.give_back(Vec::new()).await.expect("left");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_member_that_has_not_heard_of_its_partitions_yet_leaves() {
        leaves_after(ApiKey::SyncGroup).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_member_that_is_about_to_get_its_partitions_leaves() {
        leaves_after(ApiKey::JoinGroup).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn whoever_lets_go_last_leaves() {
        let broker = FakeBroker::start().await.expect("a broker");
        assert!(broker.create_topic("orders", 2));
        let topics = member(&broker).await;
        let other = topics.consumer().expect("open");
        topics.give_back(Vec::new()).await.expect("let go");
        assert!(broker.wait_for_requests(ApiKey::SyncGroup, 1, PATIENCE).await, "it is still a member");
        leave(other, PATIENCE).await.expect("left");
    }
}
