//! What a broker's tests stand on: a private server, a place in it that nobody else uses, and ways to look behind.

use std::time::Duration;

use onlyonce_inbox::{Delivery, Settled, Settlement, Source, SourceError, Tag};
use onlyonce_sources::Options;

/// A broker with one place to publish to.
pub(crate) trait Stage {
    /// Whether the broker delivers in order, and acknowledges no further than the first that is not.
    const IN_ORDER: bool = false;

    /// Another source of the same group. `options` say how hasty it is.
    async fn open(&self, options: Options) -> Box<dyn Source>;

    /// Publishes a message.
    async fn publish(&self, headers: &[(&str, &str)], body: &[u8]);

    /// Every dead letter: headers and body.
    async fn dead_letters(&self) -> Vec<(Vec<(String, String)>, Vec<u8>)>;

    /// How many messages the group has still to settle, when no source is open.
    async fn outstanding(&self) -> u64;

    /// Kills the broker, starts it again, and waits until it serves.
    async fn restart(&self);
}

/// Deliveries stay ours however slow the machine is.
pub(crate) fn patient() -> Options {
    let mut options = Options::for_group("workers");
    options.unsettled_max = Some(Duration::from_mins(10));
    options.timeout = Duration::from_secs(30);
    options
}

/// Deliveries are delivered again soon.
pub(crate) fn hasty(after: Duration) -> Options {
    let mut options = patient();
    options.unsettled_max = Some(after);
    options
}

/// Fetches until there are `count` deliveries.
pub(crate) async fn fetch(source: &dyn Source, count: usize) -> Vec<Delivery> {
    let mut found = Vec::new();
    while found.len() < count {
        let more = fetched(source, count - found.len()).await;
        assert!(!more.is_empty(), "the source is closed");
        found.extend(more);
    }
    found
}

/// Fetches once, through failures that may pass: a broker that was killed is away for a while.
pub(crate) async fn fetched(source: &dyn Source, max: usize) -> Vec<Delivery> {
    loop {
        match source.fetch(max).await {
            Ok(found) => {
                assert!(found.len() <= max, "no more than asked for");
                return found;
            }
            Err(error) => assert!(error.is_retryable(), "{error:?}"),
        }
    }
}

/// Settles one delivery.
pub(crate) async fn settle(source: &dyn Source, tag: Tag, how: Settlement) -> Result<Settled, SourceError> {
    let mut results = source.settle(vec![(tag, how)]).await?;
    assert_eq!(results.len(), 1);
    results.remove(0)
}

/// Acknowledges one delivery, which must be ours.
pub(crate) async fn ack(source: &dyn Source, tag: Tag) {
    assert_eq!(settle(source, tag, Settlement::Ack).await.expect("settled"), Settled::Settled);
}

/// Waits until the broker has `count` messages left. Brokers count at their leisure.
pub(crate) async fn wait_for_outstanding(stage: &impl Stage, count: u64) {
    while stage.outstanding().await != count {
        tokio::task::yield_now().await;
    }
}

/// The bodies, in order of themselves.
pub(crate) fn bodies(deliveries: &[Delivery]) -> Vec<String> {
    let mut bodies: Vec<_> = deliveries
        .iter()
        .map(|delivery| String::from_utf8_lossy(&delivery.message.body).into_owned())
        .collect();
    bodies.sort();
    bodies
}
