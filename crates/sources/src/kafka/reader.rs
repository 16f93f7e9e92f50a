//! Reads records ahead, so many and no more, and hears of rebalances also while nobody fetches.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_inbox::source::FETCH_MAX;
use rdkafka::consumer::Consumer as _;
use rdkafka::message::OwnedMessage;
use rdkafka::{Message as _, TopicPartitionList};
use tokio_util::time::DelayQueue;

use super::offsets::Place;
use super::{Handle, Reader, Topics, convert, failed};
use crate::ledger::{Before, Ledger};
use crate::pumped::{Patience, expired};

/// What the reader keeps in mind.
#[derive(Default)]
struct Mind {
    queue: DelayQueue<Handle>,
    /// How many retries wait in each partition that is paused for them.
    waiting: HashMap<Place, usize>,
    /// Everything is paused: enough is read ahead.
    is_full: bool,
    /// About how many bytes are read ahead.
    bytes: usize,
}

impl Mind {
    /// A retry waits, and the records after it with it.
    fn put_aside(&mut self, consumer: &Reader, handle: Handle, after: Duration) {
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
        loop {
            tokio::select! {
                Some((handle, after)) = retries.recv() => mind.put_aside(&consumer, handle, after),
                due = poll_fn(|context| expired(&mut mind.queue, context)) => {
                    for handle in due {
                        self.deliver_again(&consumer, &mut mind, ledger, handle);
                    }
                }
                _ = ledger.demand(), if mind.is_full => {
                    (mind.is_full, mind.bytes) = (false, 0);
                    let places = self.offsets().places();
                    resume(&consumer, places.into_iter().filter(|place| !mind.waiting.contains_key(place)));
                }
                // Cut off by the others, it loses nothing.
                received = consumer.recv() => match received.map(|record| record.detach()) {
                    Ok(record) => {
                        patience.restore();
                        self.deliver(&consumer, &mut mind, ledger, record);
                    }
                    Err(error) => {
                        ledger.fail(failed("reading the topics", error));
                        patience.wait().await;
                    }
                },
            }
            if consumer.context().has_changed() {
                ledger.recover();
                let offsets = self.offsets();
                ledger.forget(|handle| !offsets.is_open(handle));
                // librdkafka keeps a partition paused that was taken away and given back.
                resume(&consumer, offsets.places());
                (mind.is_full, mind.bytes) = (false, 0);
                mind.waiting.clear();
            }
        }
    }

    fn deliver(&self, consumer: &Reader, mind: &mut Mind, ledger: &Ledger<Handle>, record: OwnedMessage) {
        let place: Place = (record.topic().into(), record.partition());
        let offset = record.offset();
        let Some(epoch) = self.offsets().deliver(&place, offset) else { return };
        let message = convert::message(&record);
        if ledger.ready() == 0 {
            mind.bytes = 0;
        }
        mind.bytes += message.body.len();
        let handle = Handle { place, offset, epoch, deliveries: 1, record: Arc::new(record) };
        // The broker does not say whether it was delivered before.
        ledger.deliver(message, Before::Flagged(false), handle);
        if !mind.is_full && (ledger.ready() >= FETCH_MAX || mind.bytes >= self.settings.fetch_bytes_max) {
            mind.is_full = true;
            pause(consumer, self.offsets().places());
        }
    }

    fn deliver_again(&self, consumer: &Reader, mind: &mut Mind, ledger: &Ledger<Handle>, handle: Handle) {
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
                if !mind.is_full {
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

fn pause(consumer: &Reader, places: impl IntoIterator<Item = Place>) {
    // One that was taken away meanwhile cannot be paused, and need not be.
    let _ = consumer.pause(&list(places));
}

fn resume(consumer: &Reader, places: impl IntoIterator<Item = Place>) {
    let _ = consumer.resume(&list(places));
}
