//! Reads records ahead, so many and no more, and hears of rebalances also while nobody fetches.
//!
//! Pausing a partition throws away what the client has of it, and resuming fetches that again. So what is read ahead is
//! bounded by not taking more from the client. Partitions are paused only when nobody has asked for long: the client has to
//! be polled all the same, which is how it hears of rebalances, and how the group knows that it lives.

use std::collections::HashMap;
use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use onlyonce_inbox::Message;
use onlyonce_inbox::source::FETCH_MAX;
use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, OwnedMessage};
use rdkafka::{Message as _, TopicPartitionList};
use tokio::time::Sleep;
use tokio_util::time::DelayQueue;

use super::failure::failed;
use super::leave::Member;
use super::offsets::Place;
use super::{Handle, Topics, convert};
use crate::ledger::{Before, Ledger};
use crate::pumped::{Patience, expired};

/// How long the client is not polled while enough is read ahead: a rebalance waits for that long at the most.
const UNPOLLED_MAX: Duration = Duration::from_secs(1);
/// How many records are delivered together, at the most.
const CHUNK_MAX: usize = 256;

/// What the reader keeps in mind.
#[derive(Default)]
struct Mind {
    queue: DelayQueue<Handle>,
    /// How many retries wait in each partition that is paused for them.
    waiting: HashMap<Place, usize>,
    ahead: Ahead,
}

/// How far ahead it is.
#[derive(Default)]
enum Ahead {
    /// There is room for more.
    #[default]
    Reading,
    /// Enough is read. The client must be polled again when this is over.
    Enough(Pin<Box<Sleep>>),
    /// Enough is read, and everything is paused, so that the client can be polled.
    Paused,
}

impl Ahead {
    /// Waits until it is otherwise, and says how.
    async fn changed(&mut self, ledger: &Ledger<Handle>, bytes_max: usize) -> Self {
        match self {
            Self::Reading => pending().await,
            Self::Enough(unpolled) => tokio::select! {
                () = ledger.drained(FETCH_MAX - 1, bytes_max.saturating_sub(1)) => Self::Reading,
                () = unpolled => Self::Paused,
            },
            // Not for the sake of a few: what was thrown away has to be fetched again.
            Self::Paused => {
                ledger.drained(FETCH_MAX / 2, bytes_max / 2).await;
                Self::Reading
            }
        }
    }
}

impl Mind {
    /// A retry waits, and the records after it with it.
    fn put_aside(&mut self, consumer: &Member, handle: Handle, after: Duration) {
        if !after.is_zero() {
            *self.waiting.entry(handle.place.clone()).or_default() += 1;
            pause(consumer, [handle.place.clone()]);
        }
        self.queue.insert(handle, after);
    }
}

impl Topics {
    pub(super) async fn read(&self, ledger: &Ledger<Handle>) {
        let Some(consumer) = self.consumer() else { return };
        let mut retries = self.waiting.lock().await;
        let (mut mind, mut patience) = (Mind::default(), Patience::default());
        let bytes_max = self.settings.fetch_bytes_max;
        loop {
            tokio::select! {
                Some((handle, after)) = retries.recv() => mind.put_aside(&consumer, handle, after),
                due = poll_fn(|context| expired(&mut mind.queue, context)) => {
                    for handle in due {
                        self.deliver_again(&consumer, &mut mind, ledger, handle);
                    }
                }
                ahead = mind.ahead.changed(ledger, bytes_max) => self.go_on(&consumer, &mut mind, ahead),
                // Cut off by the others, it loses nothing.
                received = consumer.recv(), if !matches!(mind.ahead, Ahead::Enough(_)) => {
                    match self.deliver(&consumer, ledger, received) {
                        Ok(()) => patience.restore(),
                        Err(error) => {
                            ledger.fail(failed("reading the topics", error));
                            patience.wait().await;
                        }
                    }
                    let (count, bytes) = ledger.left(bytes_max);
                    if matches!(mind.ahead, Ahead::Reading) && (count == 0 || bytes == 0) {
                        mind.ahead = Ahead::Enough(Box::pin(tokio::time::sleep(UNPOLLED_MAX)));
                    }
                }
            }
            if consumer.context().has_changed() {
                ledger.recover();
                let offsets = self.offsets();
                ledger.forget(|handle| !offsets.is_open(handle));
                // librdkafka keeps a partition paused that was taken away and given back.
                resume(&consumer, offsets.places());
                mind.ahead = Ahead::Reading;
                mind.waiting.clear();
            }
        }
    }

    fn go_on(&self, consumer: &Member, mind: &mut Mind, ahead: Ahead) {
        if matches!(ahead, Ahead::Paused) {
            pause(consumer, self.offsets().places());
        } else if matches!(mind.ahead, Ahead::Paused) {
            let places = self.offsets().places();
            resume(consumer, places.into_iter().filter(|place| !mind.waiting.contains_key(place)));
        }
        mind.ahead = ahead;
    }

    /// Delivers what was received, and what the client has ready behind it, as far as there is room.
    fn deliver<'c>(
        &self,
        consumer: &'c Member,
        ledger: &Ledger<Handle>,
        first: Result<BorrowedMessage<'c>, KafkaError>,
    ) -> Result<(), KafkaError> {
        let (count, mut bytes) = ledger.left(self.settings.fetch_bytes_max);
        let count = count.min(CHUNK_MAX);
        let mut chunk = Vec::new();
        let mut next = Some(first);
        let mut ended = Ok(());
        while let Some(received) = next.take() {
            match received.map(|record| record.detach()) {
                Ok(record) => chunk.extend(self.delivery(record)),
                Err(error) => {
                    ended = Err(error);
                    break;
                }
            }
            bytes = bytes.saturating_sub(chunk.last().map_or(0, |(message, ..)| message.body.len()));
            if chunk.len() < count && bytes > 0 {
                next = consumer.recv().now_or_never();
            }
        }
        ledger.deliver_all(chunk);
        ended
    }

    /// `None` when its partition is not ours.
    fn delivery(&self, record: OwnedMessage) -> Option<(Message, Before, Handle)> {
        let place: Place = (record.topic().into(), record.partition());
        let offset = record.offset();
        let epoch = self.offsets().deliver(&place, offset)?;
        let message = convert::message(&record);
        let handle = Handle { place, offset, epoch, deliveries: 1, record: Arc::new(record) };
        // The broker does not say whether it was delivered before.
        Some((message, Before::Flagged(false), handle))
    }

    fn deliver_again(&self, consumer: &Member, mind: &mut Mind, ledger: &Ledger<Handle>, handle: Handle) {
        let place = handle.place.clone();
        if self.offsets().is_open(&handle) {
            let handle = Handle { deliveries: handle.deliveries.saturating_add(1), ..handle };
            let message = convert::message(&handle.record);
            ledger.deliver(message, Before::Counted(handle.deliveries), handle);
        }
        let left = mind.waiting.get(&place).map(|count| count.saturating_sub(1));
        match left {
            Some(0) => {
                mind.waiting.remove(&place);
                if !matches!(mind.ahead, Ahead::Paused) {
                    resume(consumer, [place]);
                }
            }
            Some(left) => {
                mind.waiting.insert(place, left);
            }
            None => {}
        }
    }
}

fn list(places: impl IntoIterator<Item = Place>) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for (topic, partition) in places {
        list.add_partition(&topic, partition);
    }
    list
}

fn pause(consumer: &Member, places: impl IntoIterator<Item = Place>) {
    // One that was taken away meanwhile cannot be paused, and need not be.
    let _ = consumer.pause(&list(places));
}

fn resume(consumer: &Member, places: impl IntoIterator<Item = Place>) {
    let _ = consumer.resume(&list(places));
}
