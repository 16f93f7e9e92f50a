//! What a broker's tests stand on: a private server, a place in it that nobody else uses, and ways to look behind.

use std::collections::HashSet;
use std::future::{Future, ready};
use std::time::Duration;

use bytes::Bytes;
use onlyonce_inbox::source::FETCH_MAX;
use onlyonce_inbox::suite::in_time;
use onlyonce_inbox::{Delivery, Settled, Settlement, Source, SourceError, Tag};
use onlyonce_sources::Options;

/// The headers and the body of a dead letter.
pub(crate) type Letter = (Vec<(String, String)>, Vec<u8>);

/// A broker with one place to publish to.
pub(crate) trait Stage: Send + Sync + 'static {
    /// Whether the broker delivers in order, and acknowledges no further than the first that is not.
    const IN_ORDER: bool = false;

    /// How many kills are enough, where each takes seconds.
    const KILLS: u64 = 40;

    /// Another source of the same group. `options` say how hasty it is.
    fn open(&self, options: Options) -> impl Future<Output = Box<dyn Source>> + Send;

    /// Publishes a message.
    fn publish(&self, headers: &[(&str, &str)], body: &[u8]) -> impl Future<Output = ()> + Send;

    /// Every dead letter.
    fn dead_letters(&self) -> impl Future<Output = Vec<Letter>> + Send;

    /// Kills the broker, starts it again, and waits until it serves.
    fn restart(&self) -> impl Future<Output = ()> + Send;

    /// Takes deliveries away from consumers that are alive.
    fn take_away(&self) -> impl Future<Output = ()> + Send;

    /// What the sources of the suites are opened with.
    fn options(&self) -> Options {
        patient()
    }

    /// A process of a suite is about to start, and all before it are dead, or have lost what they had: the broker knows.
    fn starting(&self) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// A suite waits: the broker knows who is dead.
    fn idle(&self) -> impl Future<Output = ()> + Send {
        ready(())
    }
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
    let fetching = async {
        loop {
            match source.fetch(max).await {
                Ok(found) => {
                    assert!(found.len() <= max, "no more than asked for");
                    return found;
                }
                Err(error) => assert!(error.is_retryable(), "{error:?}"),
            }
        }
    };
    in_time("a fetch", fetching).await
}

/// Settles one delivery.
pub(crate) async fn settle(source: &dyn Source, tag: Tag, how: Settlement) -> Result<Settled, SourceError> {
    let mut results = in_time("a settlement", source.settle(vec![(tag, how)])).await?;
    assert_eq!(results.len(), 1);
    results.remove(0)
}

/// Settles one delivery, for as long as that may still work.
pub(crate) async fn settle_surely(
    source: &dyn Source,
    tag: Tag,
    how: &Settlement,
) -> Result<Settled, SourceError> {
    let settling = async {
        loop {
            match settle(source, tag, how.clone()).await {
                Err(error) if error.is_retryable() => tokio::task::yield_now().await,
                settled => return settled,
            }
        }
    };
    in_time("a settlement", settling).await
}

/// Acknowledges what each of `members` has and gets until nothing is outstanding. Answers the bodies that were seen.
///
/// A group may change more than once until it is at rest: then what was delivered is gone, and comes again.
pub(crate) async fn finish_all(
    mut members: Vec<(&dyn Source, Vec<Delivery>)>,
    outstanding: impl AsyncFn() -> u64,
) -> HashSet<Bytes> {
    let mut seen = HashSet::new();
    in_time("everything finished", async {
        while members.iter().any(|(_, held)| !held.is_empty()) || outstanding().await > 0 {
            for (source, held) in &mut members {
                seen.extend(held.iter().map(|delivery| delivery.message.body.clone()));
                let acks = held.iter().map(|delivery| (delivery.tag, Settlement::Ack)).collect();
                let mut settled = source.settle(acks).await.expect("answered").into_iter();
                held.retain(|_| settled.next().is_some_and(|settled| settled.is_err()));
                let patience = Duration::from_millis(100);
                let more = tokio::time::timeout(patience, fetched(*source, FETCH_MAX)).await;
                held.extend(more.unwrap_or_default());
            }
        }
    })
    .await;
    seen
}

/// Acknowledges one delivery, which must be ours.
pub(crate) async fn ack(source: &dyn Source, tag: Tag) {
    assert_eq!(settle(source, tag, Settlement::Ack).await.expect("settled"), Settled::Settled);
}

/// Waits until a broker's count is what it should be. Brokers count at their leisure.
pub(crate) async fn wait_until<T: PartialEq>(what: &str, count: T, mut counted: impl AsyncFnMut() -> T) {
    in_time(what, async {
        while counted().await != count {
            tokio::task::yield_now().await;
        }
    })
    .await;
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
