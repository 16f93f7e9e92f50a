//! Hears which partitions come and go, and answers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, TopicPartitionList};
use tokio::sync::Notify;
use tracing::debug;

use super::offsets::Offsets;

/// Told by the client, on the thread that polls it.
pub(crate) struct Watch {
    offsets: Arc<Mutex<Offsets>>,
    changed: Arc<Notify>,
    has_changed: AtomicBool,
    leaves: AtomicBool,
}

impl Watch {
    pub(super) fn new(offsets: Arc<Mutex<Offsets>>, changed: Arc<Notify>) -> Self {
        Self { offsets, changed, has_changed: AtomicBool::new(false), leaves: AtomicBool::new(false) }
    }

    /// Whether partitions came or went since this was asked last.
    pub(super) fn has_changed(&self) -> bool {
        self.has_changed.swap(false, Ordering::Relaxed)
    }

    /// No more partitions are taken from now on: the group is about to be left.
    pub(super) fn leave(&self) {
        self.leaves.store(true, Ordering::Relaxed);
    }
}

impl ClientContext for Watch {}

impl ConsumerContext for Watch {
    /// As the trait does it where all partitions come and go at once, without asking the group whether they do.
    fn rebalance(&self, consumer: &BaseConsumer<Self>, what: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let is_ours = what == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
        if is_ours && self.leaves.load(Ordering::Relaxed) {
            return;
        }
        // ORDER: before the answer: then records of the new ones come, and others may get the old ones.
        let mut offsets = self.offsets.lock().unwrap_or_else(PoisonError::into_inner);
        for found in list.elements() {
            let place = (found.topic().into(), found.partition());
            if is_ours {
                offsets.assign(place);
            } else {
                offsets.revoke(&place);
            }
        }
        drop(offsets);
        self.has_changed.store(true, Ordering::Relaxed);
        self.changed.notify_waiters();
        let answered = if is_ours { consumer.assign(list) } else { consumer.unassign() };
        if let Err(error) = answered {
            debug!(%error, "a rebalance was not answered");
        }
    }
}
