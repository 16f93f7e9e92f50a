//! Leaves the group.
//!
//! A client that is closed before it has heard of a rebalance may hang: to hear of it, it asks its own group, which may end
//! meanwhile and throw the question away (librdkafka's issues 4041 and 4884). So a reader first ends its subscription, after
//! which there are no more rebalances, and hears of those on their way while the group still answers.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use rdkafka::consumer::Consumer as _;

use super::Reader;

/// Leaves the group, and closes the client when nobody else uses it. Blocks while the broker is told.
pub(super) fn leave(consumer: Arc<Reader>) {
    consumer.unsubscribe();
    hear(&consumer);
    drop(consumer);
}

/// Hears everything that the client has to tell. Records among it are not delivered, and so never committed.
fn hear(consumer: &Reader) {
    let again = Arc::new(Again::default());
    let waker = Waker::from(Arc::clone(&again));
    let mut context = Context::from_waker(&waker);
    // After a rebalance it is as pending as with nothing to tell, but asks to be polled again.
    while pin!(consumer.recv()).poll(&mut context).is_ready() || again.0.swap(false, Ordering::Relaxed) {}
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
    use std::time::Duration;

    use krafka::testing::{ApiKey, FakeBroker};
    use onlyonce_inbox::Horizon;
    use rdkafka::ClientConfig;

    use super::super::{Settings, Topics};
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

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_member_that_has_not_heard_of_its_partitions_yet_leaves() {
        let broker = FakeBroker::start().await.expect("a broker");
        assert!(broker.create_topic("orders", 2));
        for round in 1..=ROUNDS {
            let topics = member(&broker).await;
            assert!(broker.wait_for_requests(ApiKey::SyncGroup, round, PATIENCE).await, "it joins");
            let left = tokio::time::timeout(PATIENCE, topics.give_back(Vec::new())).await;
            left.expect("it does not hang").expect("left");
        }
    }
}
